//! cuArena's tests against the host backend, that no other test covers, cases for what they leave out,
//! and one for each of its weak points.
//!
//! The tests are written anew; names and sizes are from `tests/test.cu` of <https://github.com/muhos/cuArena>
//! (MIT, © 2026 Muhammad Osama). Its GPU pool is an arena on a device that passes for a discrete one, in the
//! device's memory or managed; its CPU pool is one in host-visible memory ("pinned"), or on a device that is
//! the host ("pageable").
//!
//! Tests without a counterpart in Rust are ported by intention: a null pointer is an absent buffer, a
//! double free does not compile, and an exception is an error.

mod faults;
mod kinds;
mod order;
mod regions;
mod untested;

use vrampool::arena::{ArenaBuffer, ArenaBuilder, DeviceArena};
use vrampool::arena::{SpanState, Zone};
use vrampool::host::{DeviceKind, HostDevice, HostStream};
use vrampool::{Backend, Placement};
use vrampool_test_support::{AuditDevice, close_gate, pattern};

type Audited = AuditDevice<HostDevice>;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// An arena with a stream of its device.
struct Setup<B: Backend = HostDevice> {
    device: B,
    stream: B::Stream,
    arena: DeviceArena<B>,
}

impl<B: Backend<Stream = HostStream>> Setup<B> {
    fn on(device: B, change: impl FnOnce(ArenaBuilder<B>) -> ArenaBuilder<B>) -> Self {
        let stream = device.create_stream().expect("a stream");
        let arena = change(DeviceArena::builder(&device)).build().expect("an arena");
        Self { device, stream, arena }
    }

    fn allocate(&self, bytes: u64) -> ArenaBuffer<B> {
        self.arena.allocate(bytes, &self.stream).expect("memory")
    }

    /// A block full of a pattern of its own.
    fn filled(&self, bytes: u64, seed: u64) -> ArenaBuffer<B> {
        let mut buffer = self.allocate(bytes);
        buffer.write(&pattern(seed, bytes), &self.stream).expect("no fault");
        buffer
    }

    fn streams<const N: usize>(&self) -> [HostStream; N] {
        std::array::from_fn(|_| self.device.create_stream().expect("a stream"))
    }
}

fn discrete() -> HostDevice {
    HostDevice::builder().kind(DeviceKind::Discrete).memory_limit(1 << 30).build()
}

/// An arena of `limit` bytes in the memory of a discrete device.
fn setup(limit: u64) -> Setup {
    Setup::on(discrete(), |builder| builder.limit(limit).memory(Placement::Device))
}

/// The same with a stable region.
fn setup_with_stable(limit: u64, stable: u64) -> Setup {
    Setup::on(discrete(), |builder| builder.limit(limit).stable_bytes(stable).memory(Placement::Device))
}

fn audited(limit: u64) -> Setup<Audited> {
    Setup::on(Audited::new(discrete()), |builder| builder.limit(limit).memory(Placement::Device))
}

fn contents<B: Backend>(buffer: &ArenaBuffer<B>, stream: &B::Stream) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len() as usize];
    buffer.read(&mut bytes, stream).expect("no fault");
    bytes
}

/// Whether it still has the pattern. Not an `assert_eq`, which would print megabytes.
fn holds<B: Backend>(buffer: &ArenaBuffer<B>, stream: &B::Stream, seed: u64) -> bool {
    contents(buffer, stream) == pattern(seed, buffer.len())
}

/// Panics unless pieces follow each other without gap or free neighbours, and the sums are those of the
/// getters.
fn check<B: Backend>(arena: &DeviceArena<B>) {
    let spans = arena.blocks();
    let mut end = 0;
    for span in &spans {
        assert_eq!(span.offset, end, "a gap or an overlap: {spans:?}");
        assert_eq!(span.offset % arena.alignment(), 0);
        end += span.bytes;
    }
    assert_eq!(end, arena.capacity());
    for region in [Zone::Stable, Zone::Dynamic] {
        let of = |free| {
            let spans = spans.iter().filter(|span| span.zone == region);
            spans
                .filter(|span| (span.state == SpanState::Free) == free)
                .map(|span| span.bytes)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(false).iter().sum::<u64>(), arena.used_in(region));
        assert_eq!(of(true).iter().sum::<u64>(), arena.available(region));
        assert_eq!(of(true).into_iter().max().unwrap_or(0), arena.largest_free_block(region));
    }
    let neighbours = |pair: &[vrampool::arena::Span]| {
        pair[0].zone == pair[1].zone && pair.iter().all(|span| span.state == SpanState::Free)
    };
    assert!(!spans.windows(2).any(neighbours), "free neighbours: {spans:?}");
}
