//! A growing arena at its limit, or the device's, while a stream is captured: what that stream freed is no
//! part of what others get, and all the rest serves them, in however many pieces it is.

use proptest::prelude::*;
use vrampool::arena::ArenaError;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, BackendError, Error, Forbidden};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

const PAGE: u64 = 4096;
const PAGES: u64 = 24;

struct Scene {
    device: Device,
    arena: DeviceArena<Device>,
    streams: [HostStream; 3],
}

/// An arena whose pieces are pages and that may have [`PAGES`] of them: its limit, or all that the device
/// has.
fn scene(is_limit_the_devices: bool) -> Option<Scene> {
    let limit = PAGES * PAGE * if is_limit_the_devices { 4 } else { 1 };
    let capacity = PAGES * PAGE * if is_limit_the_devices { 1 } else { 4 };
    let device = AuditDevice::new(HostDevice::builder().memory_limit(capacity).granularity(PAGE).build());
    device.virtual_memory()?;
    let streams = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).growing().piece_bytes(PAGE).limit(limit).build();
    Some(Scene { arena: arena.expect("an arena"), device, streams })
}

/// A block full of one byte.
struct Full {
    buffer: ArenaBuffer<Device>,
    pages: u64,
    stream: usize,
    value: u8,
}

impl Scene {
    fn full(&self, pages: u64, stream: usize, value: u8) -> Result<Full, Error> {
        let mut buffer = self.arena.allocate(pages * PAGE, &self.streams[stream])?;
        buffer.write(&vec![value; (pages * PAGE) as usize], &self.streams[stream])?;
        Ok(Full { buffer, pages, stream, value })
    }

    fn is_intact(&self, full: &Full) -> bool {
        let mut bytes = vec![0; (full.pages * PAGE) as usize];
        full.buffer.read(&mut bytes, &self.streams[full.stream]).expect("no fault");
        bytes.iter().all(|&byte| byte == full.value)
    }
}

fn is_refusal(error: &Error) -> bool {
    let is_full = matches!(error.arena(), Some(ArenaError::NoSpace { .. }))
        || matches!(error.backend(), Some(BackendError::OutOfMemory { .. }));
    is_full || matches!(error, Error::Capture { forbidden: Forbidden::Wait, .. })
}

#[derive(Debug, Clone)]
enum Step {
    Allocate { pages: u64, stream: usize },
    Free { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..9u64, 1..3usize).prop_map(|(pages, stream)| Step::Allocate { pages, stream }),
        1 => any::<usize>().prop_map(|which| Step::Free { which }),
    ]
}

proptest! {
    /// The model counts pages: those that streams which are not captured freed, or that are not mapped, serve
    /// such streams.
    #[test]
    fn all_that_no_captured_stream_used_serves(
        is_limit_the_devices in any::<bool>(),
        first in prop::collection::vec((1..5u64, 0..3usize), 3..16),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let Some(scene) = scene(is_limit_the_devices) else { return Ok(()) };
        let (mut live, mut clear) = (Vec::new(), PAGES);
        for (value, (pages, stream)) in (0..).zip(first) {
            if pages <= clear {
                clear -= pages;
                live.push(scene.full(pages, stream, value).expect("there is room"));
            }
        }
        scene.device.capture(&[&scene.streams[0]]);
        for (value, step) in (100..).zip(steps) {
            match step {
                Step::Free { which } if !live.is_empty() => {
                    let full: Full = live.swap_remove(which % live.len());
                    clear += if full.stream == 0 { 0 } else { full.pages };
                }
                Step::Free { .. } => {}
                Step::Allocate { pages, stream } => match scene.full(pages, stream, value) {
                    Ok(full) => {
                        prop_assert!(pages <= clear, "{pages} pages, {clear} are clear");
                        clear -= pages;
                        live.push(full);
                    }
                    Err(error) => {
                        prop_assert!(pages > clear, "{pages} pages, {clear} are clear: {error}");
                        prop_assert!(is_refusal(&error), "{error}");
                    }
                },
            }
            prop_assert_eq!(scene.device.forbidden(), 0);
        }
        scene.device.capture(&[]);
        prop_assert!(live.iter().all(|full| scene.is_intact(full)));
        let used: u64 = live.iter().map(|full| full.pages).sum();
        prop_assert_eq!(scene.arena.used(), used * PAGE);
        drop(live);
        scene.arena.release(0).expect("no fault");
        prop_assert_eq!((scene.arena.reserved_bytes(), scene.device.taken()), (0, 0));
    }
}
