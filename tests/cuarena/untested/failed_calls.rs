//! Each call of the driver failed in turn: every block is at one address, with its data.

use super::*;
use std::sync::mpsc::Sender;

/// Blocks and holes of two streams, whose work is held back, and a third stream to do something on.
struct Scene {
    /// Opened before anything waits for the streams on the host.
    gates: Option<[Sender<()>; 2]>,
    setup: Setup,
    third: HostStream,
    live: Vec<(ArenaBuffer<HostDevice>, u64)>,
    live_bytes: u64,
    /// The bytes of the first block that its data is.
    first: u64,
}

impl Scene {
    fn new() -> Self {
        let setup = setup(2 * MB);
        let [second, third] = setup.streams();
        let gates = [&setup.stream, &second].map(close_gate);
        let mut live = Vec::new();
        // No hole at the front; holes smaller and larger than what is behind them.
        for (n, bytes) in
            [70_000, 66_000, 300_000, 1000, 500, 200_000, 90_000, 80_000].into_iter().enumerate()
        {
            let stream = if n % 4 < 2 { &setup.stream } else { &second };
            let mut buffer = setup.arena.allocate(bytes, stream).expect("memory");
            buffer.write(&pattern(n as u64, bytes), stream).expect("no fault");
            live.push((buffer, n as u64));
        }
        for hole in [6, 3, 1] {
            live.remove(hole);
        }
        Self { gates: Some(gates), live_bytes: setup.arena.used(), setup, third, live, first: 70_000 }
    }

    /// Every block is at one place of its own, with its data, for every stream; nothing is lost.
    fn check(&self) {
        check(&self.setup.arena);
        let used: u64 = self.live.iter().map(|(buffer, _)| buffer.capacity()).sum();
        assert_eq!(self.setup.arena.used(), used);
        for (n, (buffer, seed)) in self.live.iter().enumerate() {
            let kept = if n == 0 { self.first } else { buffer.len() } as usize;
            for stream in [&self.third, &self.setup.stream] {
                assert!(contents(buffer, stream)[..kept] == pattern(*seed, kept as u64), "block {n}");
            }
        }
        assert_eq!(self.setup.device.races(), 0);
    }
}

/// Fails each call of a kind in turn, until the operation has no more of them. Returns the number of failures.
/// A failure to ask whether a stream is idle is none: the operation waits for the stream then.
fn each_failure(call: Call, operation: impl Fn(&mut Scene) -> Result<(), Error>) -> u64 {
    let mut failures = 0;
    for n in 1.. {
        let mut scene = Scene::new();
        let taken = scene.setup.device.memory_info().expect("no fault").free_bytes;
        let calls = scene.setup.device.faults().calls(call);
        scene.setup.device.faults().fail_nth(call, n);
        let answer = operation(&mut scene);
        scene.setup.device.faults().clear();
        let calls = scene.setup.device.faults().calls(call) - calls;
        scene.gates = None;
        match answer {
            Ok(()) => {
                scene.check();
                if calls < n {
                    return failures;
                }
                continue;
            }
            Err(error) => {
                assert!(matches!(error.backend(), Some(BackendError::Driver { .. })), "{error}");
                failures += 1;
            }
        }
        scene.check();
        assert_eq!(scene.live_bytes, scene.setup.arena.used(), "the failure changed something");
        assert_eq!(scene.setup.device.memory_info().expect("no fault").free_bytes, taken);
        operation(&mut scene).expect("no fault any more");
        scene.check();
    }
    unreachable!("a finite number of calls")
}

fn each_kind(operation: impl Fn(&mut Scene) -> Result<(), Error>) -> [bool; 4] {
    [Call::Allocate, Call::Copy, Call::Record, Call::Wait].map(|call| each_failure(call, &operation) > 0)
}

#[test]
fn of_an_allocation() {
    let failed = each_kind(|scene| {
        // All that takes no wait.
        let rest = scene.setup.arena.largest_free_block(Zone::Dynamic);
        let rest = scene.setup.arena.allocate(rest, &scene.setup.stream)?;
        let buffer = scene.setup.arena.allocate(60_000, &scene.third)?;
        drop((buffer, rest));
        Ok(())
    });
    assert_eq!(failed, [false, false, true, true]);
}

#[test]
fn of_a_resize_by_moving() {
    let failed = each_kind(|scene| {
        let before = scene.live[0].0.offset()?;
        scene.live[0].0.resize(150_000, &scene.third)?;
        assert!(scene.live[0].0.offset()? > before);
        Ok(())
    });
    assert_eq!(failed, [false, true, true, true]);
}

#[test]
fn of_a_compaction() {
    let failed = each_kind(|scene| scene.setup.arena.compact(u64::MAX, &scene.third, |_| {}).map(drop));
    assert_eq!(failed[1..], [true; 3]);
}

#[test]
fn reported_moves_are_those_that_happened() {
    for n in 1..20 {
        let scene = Scene::new();
        let places =
            || scene.live.iter().map(|(buffer, _)| buffer.offset().expect("live")).collect::<Vec<_>>();
        let (before, mut moved) = (places(), Vec::new());
        scene.setup.device.faults().fail_nth(Call::Copy, n);
        let answer =
            scene.setup.arena.compact(u64::MAX, &scene.third, |block| moved.push((block.from, block.to)));
        let after = before.into_iter().zip(places()).filter(|(before, after)| before != after);
        assert_eq!(after.collect::<Vec<_>>(), moved, "the {n}th copy failed: {answer:?}");
    }
}
