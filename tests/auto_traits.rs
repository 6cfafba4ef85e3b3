//! Auto traits that the API promises: every type at the root crosses threads, values cross a caught panic. The
//! handles of devices do not, for a backend or a hook may panic within them; that vrampool's own state is right
//! after a panic is what `panics.rs` is about, so `AssertUnwindSafe` is in order.
#![cfg(feature = "host")]

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use vrampool::any::AnyDevice;
use vrampool::host::{HostDevice, HostMemory};
use vrampool::{
    Amount, Backend, BackendError, Buffer, Error, Forbidden, Ledger, MemoryKind, OutOfMemory, Placement,
    Pool, PoolBuilder, PoolReport, PoolStats, Region, RegionMut, Settings, Shortage, SizeClasses, SizeTable,
    Source, Usage,
};

fn crosses_threads<T: Send + Sync + Unpin>() {}

struct Of<T>(PhantomData<T>);

impl<T: UnwindSafe + RefUnwindSafe> Of<T> {
    /// Shadows the trait's constant.
    const CROSSES_PANICS: bool = true;
}

trait Otherwise {
    const CROSSES_PANICS: bool = false;
}

impl<T> Otherwise for Of<T> {}

/// Checks the values, then the handles. Returns the names of all.
macro_rules! check {
    ($($value:ident)*; $($handle:ident<$($argument:tt),*>)*) => {{
        $(crosses_threads::<$value>(); const { assert!(Of::<$value>::CROSSES_PANICS) };)*
        $(crosses_threads::<$handle<$($argument),*>>(); const { assert!(!Of::<$handle<$($argument),*>>::CROSSES_PANICS) };)*
        BTreeSet::from([$(stringify!($value),)* $(stringify!($handle)),*])
    }};
}

#[test]
fn every_type_at_the_root_is_what_is_promised() {
    let checked = check!(
        Amount BackendError Error Forbidden Ledger MemoryKind OutOfMemory Placement PoolReport PoolStats
        Settings Shortage SizeClasses SizeTable Source Usage;
        Buffer<HostDevice> PoolBuilder<HostDevice> Pool<HostDevice>
        Region<'static, HostMemory> RegionMut<'static, HostMemory>
    );
    let listed: BTreeSet<&str> = include_str!("api/vrampool.txt")
        .lines()
        .filter_map(|line| {
            let (words, path) = line.split_once("vrampool::")?;
            let words = words.trim_start_matches("#[non_exhaustive] ");
            let of_contract = words.starts_with("use vrampool_backend::");
            let name = path.split(['<', ' ']).next().filter(|name| !name.contains("::"))?;
            let is_trait = ["Backend", "Event", "Memory", "Stream"].contains(&name) || name == "backend";
            (["struct ", "enum "].contains(&words) || of_contract && !is_trait).then_some(name)
        })
        .collect();
    assert_eq!(checked, listed, "a new type is checked here, too");
}

#[test]
fn types_of_any_and_the_modules_handles_cross_threads() {
    crosses_threads::<Pool<AnyDevice>>();
    crosses_threads::<Buffer<AnyDevice>>();
    crosses_threads::<vrampool::any::AnyStream>();
    crosses_threads::<vrampool::any::AnyMemory>();
    crosses_threads::<vrampool::any::AnyEvent>();
    crosses_threads::<vrampool::arena::DeviceArena<AnyDevice>>();
    crosses_threads::<vrampool::arena::ArenaBuffer<AnyDevice>>();
}

#[test]
fn a_result_takes_at_most_24_bytes() {
    assert!(size_of::<Error>() <= 24, "{}", size_of::<Error>());
    assert!(size_of::<Result<Buffer<HostDevice>, Error>>() <= 24);
}

/// The handles after a panic of the program's own.
#[test]
fn a_buffer_that_a_panic_drops_goes_back_to_its_pool() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::new(&device).expect("a pool");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _buffer = pool.allocate(4096, &stream).expect("memory");
        panic!("of the program's own");
    }));
    assert!(panicked.is_err());
    assert_eq!(pool.stats().live_buffers, 0);
    drop(pool.allocate(4096, &stream).expect("memory"));
    assert_eq!((pool.stats().served.by_bucket, pool.stats().source.allocations), (1, 1));
}
