//! Copies of contents: in pieces over two streams, through staging buffers for pageable memory, with their progress.

use crate::setup::Tags;
use crate::{MIB, Setup, discrete, integrated};
use std::cell::RefCell;
use std::time::Duration;
use vrampool::backend::AllocationRequest;
use vrampool::host::{Backend, Call, HostDevice};
use vrampool::{Placement, Region, RegionMut};
use vrampool_sleep::{
    HostCopy, Offload, SleepProgress, restore_contents, save_contents, sleep_all, wake_all,
};

/// Bytes of a piece.
const PIECE: u64 = 32 * MIB;

/// Copies, uploads and downloads so far.
fn calls(device: &HostDevice) -> [u64; 3] {
    [Call::Copy, Call::Upload, Call::Download].map(|call| device.faults().calls(call))
}

/// When a piece is complete, the next one is enqueued, and no other: there are two streams and two staging buffers.
#[test]
fn a_piece_is_enqueued_while_another_is_copied() {
    for offload in [Offload::Pinned, Offload::Pageable] {
        let setup = Setup::new(discrete());
        let bytes = 4 * PIECE + 5 * MIB;
        let block = setup.filled(bytes, 3);
        for sleeps in [true, false] {
            let before = calls(&setup.device);
            let reported = RefCell::new(Vec::new());
            let on_progress = |now: SleepProgress| {
                let copies = calls(&setup.device)[0] - before[0];
                reported.borrow_mut().push((now.copied_bytes, now.total_bytes, copies));
            };
            let report = match sleeps {
                true => sleep_all([(&setup.sleep, offload)], Duration::ZERO, &on_progress),
                false => wake_all([&setup.sleep], &on_progress),
            };
            let report = report.expect("no fault");
            let piece = |nth: u64| ((nth * PIECE).min(bytes), bytes, (nth + 1).min(5));
            assert_eq!(
                reported.into_inner(),
                (1..6).map(piece).collect::<Vec<_>>(),
                "{offload:?}, sleeps: {sleeps}"
            );
            assert_eq!(calls(&setup.device)[1..], before[1..], "nothing is copied past pinned memory");
            assert_eq!(report.copied_bytes, bytes);
            assert!(report.elapsed > Duration::ZERO && report.copied_bytes_per_second() > 0.0, "{report}");
        }
        assert!(setup.holds(&block, 3));
        assert_eq!(setup.device.races(), 0);
    }
}

/// Without memory for a staging buffer, and where host and device share memory, copies are made directly.
#[test]
fn copies_go_on_without_staging_buffers() {
    for is_integrated in [false, true] {
        let setup = Setup::new(if is_integrated { integrated() } else { discrete() });
        let block = setup.filled(2 * PIECE, 5);
        setup.device.synchronize(&setup.stream).expect("no fault");
        if !is_integrated {
            // For one staging buffer, not for two.
            setup.device.set_memory_limit(3 * PIECE + MIB);
        }
        let before = calls(&setup.device);
        let _ = setup.sleep.sleep(Offload::Pageable).expect("no fault");
        setup.device.set_memory_limit(2 * PIECE + MIB);
        let _ = setup.sleep.wake().expect("memory");
        let after = calls(&setup.device);
        assert!(after[1] > before[1] && after[2] > before[2], "{before:?}, {after:?}");
        assert!(setup.holds(&block, 5));
    }
}

/// Progress is that of all arenas that a call changes.
#[test]
fn progress_is_of_all_tags() {
    let tags = Tags::new(discrete(), &["weights", "kv_cache", "runtime"], Offload::Pinned);
    let blocks: Vec<_> = tags.all.iter().map(|tag| tags.filled(tag.name, 4 * MIB, 1)).collect();
    let reported = RefCell::new(Vec::new());
    let note = |now: SleepProgress| reported.borrow_mut().push((now.copied_bytes, now.total_bytes));
    let both = [(4 * MIB, 8 * MIB), (8 * MIB, 8 * MIB)];
    for (kept, seen) in [(Offload::Pinned, &both[..]), (Offload::Discard, &[])] {
        let policy = |tag: &str| Some(if tag == "kv_cache" { Offload::Discard } else { kept });
        let _ = tags.sleep_with(policy, Duration::ZERO, &note).expect("no fault");
        assert_eq!(reported.take(), seen);
        let _ = wake_all(tags.all.iter().map(|tag| &tag.arena), &note).expect("memory");
        assert_eq!(reported.take(), seen);
    }
    drop(blocks);
}

/// Memory of several sizes, whose host memory is used again.
#[test]
fn contents_of_any_memory_are_saved_and_restored() {
    for (device, offload) in
        [(discrete(), Offload::Pinned), (discrete(), Offload::Pageable), (integrated(), Offload::Pinned)]
    {
        let stream = device.create_stream().expect("a stream");
        let sizes = [MIB, PIECE + 7 * MIB, 3 * MIB];
        let memories = sizes
            .map(|bytes| device.allocate(&AllocationRequest::new(bytes, Placement::Device)).expect("memory"));
        let mut hosts: Vec<Option<HostCopy<HostDevice>>> = vec![None, None, None];
        for round in 0..3u8 {
            for (nth, memory) in (0..).zip(&memories) {
                device.fill(&stream, RegionMut::whole(memory, &stream), 10 * round + nth).expect("queued");
            }
            device.synchronize(&stream).expect("no fault");
            let host = |nth: usize| {
                hosts[nth].take().map_or_else(|| HostCopy::new(&device, sizes[nth], offload), Ok)
            };
            let mut saved = save_contents(&device, &memories.each_ref(), host, &|_| ()).expect("no fault");
            for (nth, copy) in (0..).zip(&mut saved) {
                let bytes = copy.as_slice(&device).expect("mapped");
                assert!(
                    bytes.len() as u64 == sizes[nth]
                        && bytes.iter().all(|&byte| byte == 10 * round + nth as u8)
                );
            }
            for memory in &memories {
                device.fill(&stream, RegionMut::whole(memory, &stream), 99).expect("queued");
            }
            device.synchronize(&stream).expect("no fault");
            let pairs: Vec<_> = saved.iter().zip(&memories).collect();
            restore_contents(&device, &pairs, &|_| ()).expect("no fault");
            for (nth, memory) in (0..).zip(&memories) {
                let mut read = vec![0; sizes[usize::from(nth)] as usize];
                device.download(&stream, Region::whole(memory, &stream), &mut read).expect("no fault");
                assert!(read.iter().all(|&byte| byte == 10 * round + nth), "round {round}");
            }
            hosts = saved.into_iter().map(Some).collect();
        }
        assert_eq!(device.races(), 0);
    }
}
