//! Under any operations on an arena with blocks that [several streams used](super::shared), kernels read the bytes that
//! were written for them, and the bounds hold.

use super::PAGE;
use super::streams::stall;
use crate::detached::{attach, detach};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::arena::Zone::Dynamic;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Amount, Backend};

type Block = ArenaBuffer<HostDevice>;

/// No limit is below it.
const LEAST_LIMIT: u64 = 8 * PAGE;

#[derive(Debug, Clone)]
enum Step {
    Allocate { pages: u64, stream: usize, small: bool },
    Read { which: usize, stream: usize, record: bool },
    Write { which: usize, stream: usize },
    Resize { which: usize, pages: u64, stream: usize },
    Free { which: usize },
    // The device refuses events, or to ask for them.
    FreeBadly { which: usize },
    Stall { stream: usize },
    End { stream: usize },
    Release { spare: u64 },
    Decay,
    Limit { pages: u64 },
    Detach { then: usize },
    Reset,
    Compact { stream: usize, pages: u64 },
    Look,
    Fail { call: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..9u64, 0..3usize, prop::bool::weighted(0.03)).prop_map(|(pages, stream, small)| Step::Allocate { pages, stream, small }),
        8 => (any::<usize>(), 0..3usize, prop::bool::weighted(0.85)).prop_map(|(which, stream, record)| Step::Read { which, stream, record }),
        2 => (any::<usize>(), 0..3usize).prop_map(|(which, stream)| Step::Write { which, stream }),
        1 => (any::<usize>(), 1..12u64, 0..3usize).prop_map(|(which, pages, stream)| Step::Resize { which, pages, stream }),
        8 => any::<usize>().prop_map(|which| Step::Free { which }),
        1 => any::<usize>().prop_map(|which| Step::FreeBadly { which }),
        3 => (0..3usize).prop_map(|stream| Step::Stall { stream }),
        3 => (0..3usize).prop_map(|stream| Step::End { stream }),
        1 => (0..9u64).prop_map(|spare| Step::Release { spare }),
        1 => Just(Step::Decay),
        1 => (LEAST_LIMIT / PAGE..40).prop_map(|pages| Step::Limit { pages }),
        1 => (0..3usize).prop_map(|then| Step::Detach { then }),
        1 => Just(Step::Reset),
        1 => (0..3usize, prop_oneof![Just(u64::MAX / PAGE), 0..20u64]).prop_map(|(stream, pages)| Step::Compact { stream, pages }),
        1 => Just(Step::Look),
        1 => (0..4usize).prop_map(|call| Step::Fail { call }),
    ]
}

struct Twin {
    /// First: streams that are dropped wait for them.
    stalled: Vec<std::sync::mpsc::Sender<()>>,
    device: HostDevice,
    arena: DeviceArena<HostDevice>,
    streams: [HostStream; 3],
    spoilt: Arc<AtomicU64>,
    /// With what was written to it, and on which stream.
    live: Vec<(Block, u64, usize)>,
    is_growing: bool,
    overlap: Amount,
}

impl Twin {
    fn end(&mut self) {
        self.stalled.drain(..).for_each(|go| _ = go.send(()));
    }

    fn write(&mut self, nth: usize, tag: u64, stream: usize) {
        let (block, of, writer) = &mut self.live[nth];
        *writer = stream;
        let stream = &self.streams[stream];
        match block.on_mut(stream) {
            Ok(region) => {
                stream
                    .launch([], [region], move |[]: [&[u64]; 0], [bytes]: [&mut [u64]; 1]| bytes.fill(tag))
                    .expect("queued");
                *of = tag;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&self, nth: usize, stream: usize, record: bool) {
        self.read_start(nth, stream, record, self.live[nth].0.len());
    }

    fn read_start(&self, nth: usize, stream: usize, record: bool, bytes: u64) {
        let (block, tag, writer) = &self.live[nth];
        let (tag, spoilt) = (*tag, Arc::clone(&self.spoilt));
        let (stream_of, writer) = (&self.streams[stream], &self.streams[*writer]);
        // The stream that moves a block is another writer.
        let region = if record && self.is_growing {
            self.device.wait(stream_of, &self.device.record(writer).expect("no fault")).expect("queued");
            block.record_stream(stream_of).expect("no fault");
            block.on(writer).expect("no fault").for_stream(stream_of)
        } else {
            block.on(stream_of).expect("no fault")
        };
        let kernel = move |[words]: [&[u64]; 1], []: [&mut [u64]; 0]| {
            spoilt.fetch_add(words.iter().filter(|&&word| word != tag).count() as u64, Ordering::Relaxed);
        };
        let region = region.slice(..bytes).expect("they are in it");
        self.streams[stream].launch([region], [], kernel).expect("queued");
    }

    fn step(&mut self, number: u64, step: Step, most: &mut u64) {
        let len = self.live.len();
        match step {
            Step::Allocate { pages, stream, small } => {
                let bytes = if small { 512 } else { pages * PAGE };
                if small {
                    self.end();
                }
                match self.arena.allocate(bytes, &self.streams[stream]) {
                    Ok(block) => {
                        self.live.push((block, 0, 0));
                        *most = (*most).max(self.arena.used());
                        self.write(len, number, stream);
                    }
                    Err(error) => {
                        // Only if there is no room for it.
                        let fits = self.is_growing
                            && !small
                            && error.is_out_of_memory()
                            && self.arena.used() + bytes + self.small() + PAGE <= LEAST_LIMIT;
                        assert!(!fits, "{error}: {} used of {}", self.arena.used(), LEAST_LIMIT);
                    }
                }
            }
            Step::Read { which, stream, record } if len > 0 => {
                if record && !self.is_growing {
                    // Work that nothing knows: it is not moved, and has no reader.
                    self.live[which % len].0.record_stream(&self.streams[stream]).expect("no fault");
                } else {
                    self.read(which % len, stream, record);
                }
            }
            Step::Write { which, stream } if len > 0 => self.write(which % len, number, stream),
            Step::Resize { which, pages, stream } if len > 0 => {
                let nth = which % len;
                let (size, len) = (self.live[nth].0.capacity(), self.live[nth].0.len());
                let done = self.live[nth].0.resize(pages * PAGE, &self.streams[stream]);
                *most = (*most).max(self.arena.used() + size);
                if done.is_ok() {
                    self.read_start(nth, stream, false, len.min(pages * PAGE));
                    self.write(nth, number, stream);
                }
            }
            Step::Free { which } if len > 0 => drop(self.live.swap_remove(which % len)),
            Step::FreeBadly { which } if len > 0 => {
                self.device.faults().fail_nth(
                    if number.is_multiple_of(3) { Call::Query } else { Call::Record },
                    1 + number % 2,
                );
                drop(self.live.swap_remove(which % len));
                self.device.faults().clear();
            }
            // At the limit what small ones left is released, which waits on the host.
            Step::Stall { .. } if self.small() > 0 => {}
            Step::Stall { stream } => self.stalled.push(stall(&self.streams[stream]).0),
            Step::End { stream } => {
                self.end();
                self.device.synchronize(&self.streams[stream]).expect("no fault");
            }
            Step::Release { spare } => {
                self.end();
                let (mapped, free) = (self.arena.reserved_bytes(), self.arena.available(Dynamic));
                let released = self.arena.release(spare * PAGE).expect("no fault");
                if self.is_growing {
                    assert_eq!(self.arena.reserved_bytes(), mapped - released, "{free}");
                }
            }
            Step::Decay => {
                self.end();
                self.arena.decay().expect("no fault");
            }
            Step::Limit { pages } if self.is_growing => _ = self.arena.resize(pages * PAGE),
            Step::Detach { then } if self.is_growing => {
                self.end();
                let contents = detach(&self.arena).expect("no fault").expect("attached");
                if then == 1 && len > 0 {
                    drop(self.live.swap_remove(number as usize % len));
                }
                if then == 2 {
                    self.live.clear();
                    self.arena.reset().expect("none is held");
                }
                let attached = attach(&self.arena, &contents).expect("no fault");
                assert!(attached.is_some() || then == 2);
            }
            Step::Reset if number.is_multiple_of(3) => {
                self.arena.reset().expect("none is held");
                self.live.clear();
            }
            Step::Compact { stream, pages } if !self.is_growing => {
                let budget = pages * PAGE;
                let report = self.arena.compact(budget, &self.streams[stream], |_| {}).expect("no fault");
                assert!(report.moved_bytes <= budget);
            }
            Step::Look => {
                let sum: u64 = self.arena.blocks().iter().map(|span| span.bytes).sum();
                assert_eq!(
                    sum,
                    self.arena.capacity_of(Dynamic) + self.arena.capacity_of(vrampool::arena::Zone::Stable)
                );
                let used: u64 = self.live.iter().map(|(block, ..)| block.capacity()).sum();
                assert_eq!(self.arena.used(), used);
            }
            Step::Fail { call } if self.is_growing => {
                let calls = [Call::CreatePhysical, Call::Map, Call::SetAccess, Call::Reserve];
                self.device.faults().fail_nth(calls[call], 1);
                let got = self.arena.allocate(3 * PAGE, &self.streams[0]);
                self.device.faults().clear();
                if let Ok(block) = got {
                    self.live.push((block, 0, 0));
                    *most = (*most).max(self.arena.used());
                    self.write(len, number, 0);
                } else {
                    *most = (*most).max(self.arena.used() + 3 * PAGE);
                }
            }
            _ => {}
        }
        if self.is_growing {
            let mapped = self.arena.reserved_bytes();
            assert!(mapped <= 40 * PAGE);
            // Pages for small ones, and for those that a failure cost.
            // At most 27 % of what is held spares waits: 3/8 of what is live.
            let bound = *most + *most / 8 * 3 + self.small();
            assert!(
                self.overlap == Amount::Unlimited || mapped <= bound,
                "{mapped} mapped, {most} live at most"
            );
        }
    }

    /// Bytes for small requests.
    fn small(&self) -> u64 {
        self.arena.capacity_of(vrampool::arena::Zone::Stable)
    }
}

#[test]
fn whatever_is_done_in_between() {
    proptest!(ProptestConfig { max_shrink_iters: 3000, failure_persistence: None, ..ProptestConfig::with_cases(100) }, |(
        steps in prop::collection::vec(step(), 20..160),
        is_growing in prop::bool::weighted(0.7),
        overlap in prop::sample::select(vec![Amount::Unlimited, Amount::Percent(27.0)]),
    )| {
        let (device, streams) = super::host();
        let builder = DeviceArena::builder(&device).limit(40 * PAGE).overlap(overlap);
        let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
        let mut twin = Twin { device, arena, streams, spoilt: Arc::default(), live: Vec::new(), stalled: Vec::new(), is_growing, overlap };
        let mut most = 0;
        for (number, step) in steps.into_iter().enumerate() {
            twin.step(number as u64 + 1, step, &mut most);
        }
        (0..twin.live.len()).for_each(|nth| twin.read(nth, nth % 3, false));
        twin.end();
        twin.streams.iter().for_each(|stream| twin.device.synchronize(stream).expect("no fault"));
        prop_assert_eq!((twin.spoilt.load(Ordering::Relaxed), twin.device.races()), (0, 0));
        twin.live.clear();
        prop_assert_eq!(twin.arena.used(), 0);
        if is_growing {
            twin.arena.release(0).expect("no fault");
            prop_assert_eq!(twin.arena.reserved_bytes(), 0);
        } else {
            prop_assert_eq!(twin.arena.largest_free_block(Dynamic), 40 * PAGE);
        }
    });
}
