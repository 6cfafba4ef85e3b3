//! Bytes reach their next user behind the work of the one before: what random work does not reach.

use super::{Audited, KB, MB, Setup, audited, close_gate, discrete};
use std::sync::mpsc::Sender;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::AllocationRequest;
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Placement, Region, RegionMut};
use vrampool_test_support::AuditMemory;

type Buffer = ArenaBuffer<Audited>;

const BLOCK: u64 = 64 * KB;

struct Scene {
    setup: Setup<Audited>,
    /// Further streams, besides the setup's.
    b: HostStream,
    c: HostStream,
    result: AuditMemory<HostDevice>,
}

impl Scene {
    fn new() -> Self {
        let setup = audited(2 * BLOCK);
        let [b, c] = setup.streams();
        let result =
            setup.device.allocate(&AllocationRequest::new(BLOCK, Placement::Device)).expect("memory");
        Self { setup, b, c, result }
    }

    fn a(&self) -> &HostStream {
        &self.setup.stream
    }

    fn fill(&self, stream: &HostStream, buffer: &mut Buffer, value: u8) {
        let region = buffer.on_mut(stream).expect("live");
        self.setup.device.fill(stream, region, value).expect("queued");
    }

    /// A block whose bytes are there before anything else happens.
    fn block(&self, value: u8) -> Buffer {
        let mut buffer = self.setup.allocate(BLOCK);
        self.fill(self.a(), &mut buffer, value);
        self.setup.device.synchronize(self.a()).expect("no fault");
        buffer
    }

    /// `stream` is held back, and reads the block behind that.
    fn held_back_reader(&self, stream: &HostStream, buffer: &Buffer) -> Sender<()> {
        let gate = close_gate(stream);
        self.read(stream, buffer);
        gate
    }

    fn read(&self, stream: &HostStream, buffer: &Buffer) {
        let region = buffer.on(stream).expect("live").slice(..BLOCK).expect("its length");
        let result = RegionMut::whole(&self.result, stream);
        self.setup.device.copy(stream, region, result).expect("queued");
    }

    /// Opens the gate, and returns the byte that the reader saw.
    fn seen(&self, gate: Sender<()>) -> u8 {
        drop(gate);
        for stream in [self.a(), &self.b, &self.c] {
            self.setup.device.synchronize(stream).expect("no fault");
        }
        let mut bytes = vec![0; BLOCK as usize];
        let whole = Region::whole(&self.result, self.a());
        self.setup.device.download(self.a(), whole, &mut bytes).expect("no fault");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a mix of two copies");
        bytes[0]
    }
}

#[test]
fn one_stream_never_waits() {
    let setup = audited(MB);
    let (hole, mut block) = (setup.allocate(BLOCK), setup.allocate(BLOCK));
    drop(hole);
    setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
    block.resize(4 * BLOCK, &setup.stream).expect("memory");
    block.used_on(&setup.stream).expect("live");
    drop(block);
    drop(setup.allocate(MB));
    let faults = setup.device.inner().faults();
    assert_eq!((setup.arena.stream_waits(), faults.calls(Call::Record), faults.calls(Call::Wait)), (0, 0, 0));
}

/// The stream has not waited for the owner, which may still write.
#[test]
fn a_stream_whose_compaction_failed_to_wait_waits_when_it_uses_the_block() {
    for call in [Call::Record, Call::Wait] {
        let setup = audited(MB);
        let [c] = setup.streams();
        let (hole, block) = (setup.allocate(BLOCK), setup.allocate(BLOCK));
        drop(hole);
        setup.device.inner().faults().fail_nth(call, 1);
        setup.arena.compact(u64::MAX, &c, |_| {}).expect_err("the fault");
        assert_eq!(setup.arena.stream_waits(), 0);
        block.used_on(&c).expect("live");
        assert_eq!(setup.arena.stream_waits(), 1, "{call:?}");
    }
}

/// Its bytes are on their way back while that stream has not come so far.
#[test]
fn the_owner_waits_for_a_move_that_is_taken_back() {
    let setup = audited(MB);
    let [c] = setup.streams();
    let (hole, block) = (setup.allocate(BLOCK), setup.filled(4 * BLOCK, 1));
    drop(hole);
    let gate = close_gate(&c);
    // Two of four pieces are on their way.
    setup.device.inner().faults().fail_nth(Call::Copy, 3);
    setup.arena.compact(u64::MAX, &c, |_| {}).expect_err("the fault");
    let waits = setup.arena.stream_waits();
    block.used_on(&setup.stream).expect("live");
    assert_eq!(setup.arena.stream_waits(), waits + 1);
    let event = setup.device.record(&setup.stream).expect("an event");
    assert!(!vrampool::Event::is_complete(&event).expect("no fault"), "the owner waits");
    drop(gate);
    assert!(super::holds(&block, &setup.stream, 1));
    assert_eq!(setup.device.inner().races(), 0);
}

/// While `b` is being put behind the last reader of its block, on `a`, the block is moved or forgotten, and
/// its bytes go to another stream. Answers what the reader saw and how often the others had to wait.
fn seen_when_it_happens_during_an_allocation(
    event: impl FnOnce(&DeviceArena<Audited>, &HostStream, Buffer) + Send + 'static,
) -> (u8, u64) {
    let scene = Scene::new();
    let [other, next] = scene.setup.streams();
    // A hole of a busy stream that nothing else has to do with.
    let hole = scene.setup.arena.allocate(BLOCK, &other).expect("memory");
    let busy = close_gate(&other);
    let block = scene.block(0xAA);
    let gate = scene.held_back_reader(scene.a(), &block);
    drop(block);
    let (arena, device, mover) = (scene.setup.arena.clone(), scene.setup.device.clone(), scene.c.clone());
    scene.setup.device.before_record(move || {
        event(&arena, &mover, hole);
        // All there is, so the bytes of the block are among it.
        let mut rest: Vec<_> = std::iter::from_fn(|| arena.allocate(BLOCK, &next).ok()).collect();
        let last = rest.last_mut().expect("the bytes are free");
        assert_eq!(last.offset().expect("live"), BLOCK);
        device.fill(&next, last.on_mut(&next).expect("live"), 0xBB).expect("queued");
    });
    let during = scene.setup.arena.allocate(BLOCK, &scene.b).expect("memory");
    let waits = scene.setup.arena.stream_waits();
    drop((during, busy));
    (scene.seen(gate), waits)
}

#[test]
fn a_move_during_an_allocation_waits_for_the_last_reader_too() {
    let seen = seen_when_it_happens_during_an_allocation(|arena, stream, hole| {
        drop(hole);
        assert_eq!(arena.compact(u64::MAX, stream, |_| {}).expect("no fault").moved_blocks, 1);
    });
    // The move: for the hole's user, the block's, its last reader; and the last two for the move. The next:
    // for the move. The allocation: for the reader.
    assert_eq!(seen, (0xAA, 7));
}

#[test]
fn a_reset_during_an_allocation_does_not_forget_the_last_reader() {
    let seen = seen_when_it_happens_during_an_allocation(|arena, _, hole| {
        arena.reset().expect("nothing moves");
        drop(hole);
    });
    // The next two blocks: for the hole's user, and for the block's last reader; its new user is idle. The
    // allocation: for the reader.
    assert_eq!(seen, (0xAA, 3));
}

/// A region is bytes of its own block, also across a reset.
#[test]
fn a_reset_under_a_region_is_refused() {
    let setup = audited(MB);
    let block = setup.allocate(BLOCK);
    let region = block.on(&setup.stream).expect("live");
    assert!(setup.arena.reset().is_err());
    assert_eq!(setup.arena.used(), BLOCK);
    drop(region);
    setup.arena.reset().expect("nothing is held");
    assert_eq!(setup.arena.used(), 0);
}

/// Streams of another device have no order here.
#[test]
fn a_stream_of_another_device_is_refused() {
    let setup = audited(MB);
    let foreign = discrete().create_stream().expect("a stream");
    let mut block = setup.allocate(BLOCK);
    let refused = |answer: Result<(), vrampool::Error>| {
        assert!(matches!(answer, Err(vrampool::Error::WrongDevice { .. })), "{answer:?}");
    };
    refused(setup.arena.allocate(1, &foreign).map(drop));
    refused(setup.arena.compact(u64::MAX, &foreign, |_| {}).map(drop));
    refused(block.on(&foreign).map(drop));
    refused(block.on_mut(&foreign).map(drop));
    refused(block.used_on(&foreign));
    refused(block.resize(2 * MB, &foreign));
    refused(block.resize(2 * BLOCK, &foreign));
    assert_eq!((block.len(), setup.arena.used()), (BLOCK, BLOCK));
}
