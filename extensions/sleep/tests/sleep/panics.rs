//! A device whose calls panic during a sleep or a wake: the panic goes on, and neither memory nor contents are lost.

#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../../../../tests/panics/growing.rs"]
mod growing;

use growing::{Device, FromArena, in_each_call};
use vrampool::arena::{Attachment, DeviceArena};
use vrampool_sleep::{Error, Offload, SleepArena};

type Growing = growing::Growing<SleepArena<Device>>;

impl FromArena for SleepArena<Device> {
    fn from_arena(arena: &DeviceArena<Device>) -> Self {
        Self::new(arena.clone())
    }
}

fn sleep(growing: &Growing) -> Result<(), Error> {
    growing.state.sleep(Offload::Pinned).map(drop)
}

fn wake(growing: &Growing) -> Result<(), Error> {
    growing.state.wake().map(drop)
}

#[test]
fn a_panic_while_an_arena_falls_asleep_loses_neither_memory_nor_contents() {
    in_each_call(
        &["synchronize", "copy", "unmap", "drop"],
        |_| {},
        sleep,
        |growing, what| {
            assert_eq!(
                (growing.state.arena().attachment(), growing.ledger.charged()),
                (Attachment::Detached, 0),
                "{what}"
            );
            wake(&growing).expect("no fault");
            growing.check(what);
        },
    );
}

#[test]
fn a_panic_while_an_arena_wakes_loses_neither_memory_nor_contents() {
    in_each_call(
        &["synchronize", "copy", "create_physical", "map", "set_access"],
        |growing| sleep(growing).expect("no fault"),
        wake,
        Growing::check,
    );
}
