//! Pools of the devices that most tests use, compiled once: an unoptimised crate links the instances of generic
//! functions that a crate below it has.

use crate::AuditDevice;
use std::time::Duration;
use vrampool::any::AnyDevice;
use vrampool::arena::{DeviceArena, Zone};
use vrampool::host::HostDevice;
use vrampool::{Backend, Error, Pool};

type Calls<B> = fn(&B) -> Result<(), Error>;

/// The instances are compiled because they are named here. They are not called.
pub static POOLS: (Calls<HostDevice>, Calls<AuditDevice<HostDevice>>, Calls<AnyDevice>) =
    (calls, calls, calls);

fn calls<B: Backend>(device: &B) -> Result<(), Error> {
    let stream = device.create_stream()?;
    let pool = Pool::builder(device).from_environment()?.set("limit", "1MiB")?.build()?;
    let mut buffer = pool.allocate_zeroed(1, &stream)?;
    pool.allocate_timeout(1, &stream, Duration::ZERO)?.copy_from(&buffer, &stream)?;
    buffer.write(&[1], &stream)?;
    buffer.read(&mut [0], &stream)?;
    buffer.reuse_on(&stream)?;
    pool.used_on(&stream)?;
    pool.compact(None, &stream, |_| ())?;
    let child = pool.child("child").private(true).build()?;
    child.set_limit(1)?;
    child.close();
    drop((pool.own_stats(), format!("{pool:?} {} {buffer:?}", pool.report()), pool.trim()?));
    let arena = DeviceArena::builder(device).growing().build()?;
    let mut range = arena.allocate_in(1, Zone::Dynamic, &stream)?;
    range.resize(2, &stream)?;
    drop(range.on_mut(&stream)?);
    arena.release(0)?;
    arena.reset()?;
    if let Some(detaching) = arena.detach(Duration::ZERO)? {
        detaching.unmap()?.commit(|_| ());
    }
    arena.attach()?.map(|attaching| attaching.commit());
    Pool::builder(device).arena(&arena).build().map(drop)
}
