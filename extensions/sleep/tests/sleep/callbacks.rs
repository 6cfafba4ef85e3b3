//! Callbacks for progress that call the sleeper and the arena again: each call is served or refused, and none waits.

use crate::setup::Tags;
use crate::{MIB, Setup, discrete};
use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::time::Duration;
use vrampool::Error as Refused;
use vrampool_sleep::{BlockState, Error, Offload, Wake, sleep_all, wake_all};

#[test]
fn a_callback_calls_its_own_arena() {
    let setup = Setup::new(discrete());
    let (other, count) = (Setup::new(discrete()), Cell::new(0));
    let arena = &setup.arena;
    let block = |bytes| arena.allocate(bytes, &setup.stream).expect("memory");
    let (kept, dropped) = (block(4 * MIB), RefCell::new(Some(block(4 * MIB))));
    let call_again = |_| {
        count.set(count.get() + 1);
        let is_asleep = |error: Option<Refused>| matches!(error, Some(Refused::Asleep { .. }));
        assert!(is_asleep(arena.allocate(MIB, &setup.stream).err()));
        assert!(is_asleep(kept.on(&setup.stream).err()));
        assert!(is_asleep(arena.resize(100 * MIB).err()));
        assert!(is_asleep(arena.reset().err()));
        assert_eq!(arena.release(0).expect("no fault"), 0);
        assert_eq!(setup.sleep.contents(), BlockState::Mapped);
        drop(dropped.take());
        for refused in [
            setup.sleep.sleep(Offload::Discard).err(),
            setup.sleep.wake().err(),
            other.sleep.sleep(Offload::Discard).err(),
            sleep_all([("tag", &other.sleep, Offload::Discard)], Duration::ZERO, &|_| ()).err(),
            wake_all([&other.sleep], &|_| ()).err(),
        ] {
            assert!(matches!(refused, Some(Error::Busy)), "{refused:?}");
        }
        assert!(other.arena.allocate(MIB, &other.stream).is_ok(), "it is awake");
    };
    let _ = sleep_all([("tag", &setup.sleep, Offload::Pinned)], Duration::ZERO, &call_again).expect("asleep");
    assert_eq!(setup.sleep.contents(), BlockState::AsleepBackedUp);
    let slept = count.replace(0);
    let _ = wake_all([&setup.sleep], &call_again).expect("awake");
    assert!(slept > 0 && count.get() > 0, "{slept} and {} pieces", count.get());
    assert!(kept.on(&setup.stream).is_ok() && arena.allocate(MIB, &setup.stream).is_ok());
}

#[test]
fn a_callback_calls_its_own_sleeper() {
    static CALL: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);
    let tags = Tags::with(discrete(), |builder| {
        builder.on_progress(|_| CALL.lock().expect("no panic").as_ref().expect("it is set")())
    });
    let _weights = tags.filled("weights", 4 * MIB, 1);
    let (sleeper, stream) = (tags.sleeper.clone(), tags.stream.clone());
    *CALL.lock().expect("no panic") = Some(Box::new(move || {
        assert!(matches!(sleeper.sleep(&[]), Err(Error::Busy)));
        assert!(matches!(sleeper.discard(&["weights"]), Err(Error::Busy)));
        assert!(matches!(sleeper.wake_up(Wake::All), Err(Error::Busy)));
        assert!(matches!(sleeper.allocate_tagged(MIB, "weights", &stream), Err(Refused::Asleep { .. })));
        drop(sleeper.allocate_tagged(MIB, "other", &stream).expect("its tag is awake"));
        assert!(sleeper.trim().is_ok() && sleeper.usage_of("weights").is_ok());
    }));
    let _ = tags.sleeper.sleep_tags(&["weights"]).expect("asleep");
    let _ = tags.sleeper.wake_up(Wake::All).expect("awake");
    *CALL.lock().expect("no panic") = None;
}
