//! Idle memory that a compaction moved is behind the copy for the code that gets it next.

use vrampool::arena::DeviceArena;
use vrampool::host::HostDevice;
use vrampool::{Amount, Backend, Pool};
use vrampool_test_support::{close_gate, streams};

const KIB: u64 = 1 << 10;

/// The marker of the last use, and the work that was known to be complete, are both earlier than the copy.
#[test]
fn moved_memory_is_behind_its_copy_although_its_last_user_is_done() {
    let device = HostDevice::new();
    let [writer, asking, next, moving] = streams(&device);
    let arena = DeviceArena::builder(&device).limit(256 * KIB).build().expect("an arena");
    let pool = Pool::builder(&device).arena(&arena).overlap(Amount::Bytes(0)).build().expect("a pool");
    let hole = arena.allocate(8 * KIB, &writer).expect("memory");
    let [mut first, second] = [(); 2].map(|()| pool.allocate(16 * KIB, &writer).expect("memory"));
    first.write(&[1; 16 << 10], &writer).expect("no fault");
    drop((first, second));
    device.synchronize(&writer).expect("no fault");
    // The pool learns that the writer is done with both.
    drop(pool.allocate(16 * KIB, &asking).expect("memory"));
    assert_eq!(pool.stats().stream_waits, 0);

    drop(hole);
    let open = close_gate(&moving);
    let report = arena.compact(None, &moving, |_| {}).expect("no fault");
    assert_eq!(report.moved_blocks, 2);
    let waits = arena.stream_waits();
    let mut taken = [(); 2].map(|()| pool.allocate(16 * KIB, &next).expect("memory"));
    assert!(
        arena.stream_waits() > waits,
        "the copies are queued, and no stream but their own is behind them"
    );
    for buffer in &mut taken {
        buffer.write(&[7; 16 << 10], &next).expect("no fault");
    }
    drop(open);
    device.synchronize(&moving).expect("no fault");
    for buffer in &taken {
        let mut bytes = vec![0; 16 << 10];
        buffer.read(&mut bytes, &next).expect("no fault");
        assert!(bytes.iter().all(|&byte| byte == 7), "a copy came later");
    }
}
