//! Contents of segments in host memory.

use crate::failure::{Failure, Status, check_no_callback};
use crate::segment::{Segment, State};
use crate::segments::{numbered, release_deferred};
use crate::sleep::OnProgress;
use parking_lot::MutexGuard;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool::any::AnyMemory;
use vrampool_sleep::{HostCopy, SleepProgress, restore_contents, save_contents};

/// Copies the contents of mapped segments to the host, after all work of their devices. All of them or none.
pub(crate) fn save(numbers: &[u64], on_progress: OnProgress<'_>) -> Result<(), Failure> {
    check_no_callback()?;
    let segments = numbered(numbers);
    if let Some(segment) = segments.iter().find(|segment| segment.is_captured(None)) {
        let text = format!(
            "the segment at {:#x} may be used by a stream that is captured, and a wait for its work would invalidate \
             the capture; nothing was done: save it after the capture",
            segment.address
        );
        return Err(Failure::new(Status::CAPTURE, text));
    }
    // What was saved before stays if nothing is copied.
    let has_begun = Cell::new(false);
    let saved = progressing(
        &segments,
        |_, _| true,
        on_progress,
        |locked, on_progress| {
            has_begun.set(true);
            save_on(locked, on_progress)
        },
    );
    if saved.is_err() && has_begun.get() {
        forget_all(&segments, true);
    }
    release_deferred();
    saved
}

/// Copies what was saved of segments back to them, once after each unmapping. What was saved stays until it is
/// forgotten.
pub(crate) fn restore(numbers: &[u64], on_progress: OnProgress<'_>) -> Result<(), Failure> {
    check_no_callback()?;
    let waits =
        |segment: &Segment, state: &State| state.is_saved && segment.is_asleep.load(Ordering::Relaxed);
    let restored = progressing(&numbered(numbers), waits, on_progress, restore_on);
    release_deferred();
    restored
}

/// Forgets what was saved of segments. Their host memory stays for the next time, or is released.
pub(crate) fn forget(numbers: &[u64], keeps_memory: bool) -> Result<(), Failure> {
    check_no_callback()?;
    forget_all(&numbered(numbers), keeps_memory);
    Ok(())
}

fn forget_all(segments: &[Arc<Segment>], keeps_memory: bool) {
    for segment in segments {
        let released = segment.change(&mut segment.lock(), |state| {
            state.is_saved = false;
            segment.is_asleep.fetch_and(!state.is_mapped(), Ordering::Relaxed);
            if keeps_memory { None } else { state.host.take() }
        });
        // Without the lock, because that calls the driver.
        drop(released);
    }
}

/// Address and length of the saved contents of a segment, if there are any.
pub(crate) fn saved(number: u64) -> Result<Option<(u64, u64)>, Failure> {
    check_no_callback()?;
    let Some(segment) = numbered(&[number]).pop() else { return Ok(None) };
    let mut state = segment.lock();
    if !state.is_saved {
        return Ok(None);
    }
    let Some(host) = &mut state.host else { return Ok(None) };
    let bytes = host.as_slice(&segment.place.home.device)?;
    Ok(Some((bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)))
}

/// Locked segments of one device.
type Locked<'a> = Vec<(&'a Segment, MutexGuard<'a, State>)>;

/// Does something with the segments of each device, locked, so that none is unmapped meanwhile. Progress is that of
/// all.
fn progressing(
    segments: &[Arc<Segment>],
    is_taken: impl Fn(&Segment, &State) -> bool,
    on_progress: OnProgress<'_>,
    act: impl Fn(&mut Locked<'_>, OnProgress<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut devices: BTreeMap<c_int, Locked<'_>> = BTreeMap::new();
    for segment in segments {
        let state = segment.lock();
        if is_taken(segment, &state) {
            devices.entry(segment.device).or_default().push((segment, state));
        }
    }
    let bytes_of = |locked: &Locked<'_>| locked.iter().map(|(segment, _)| segment.bytes).sum::<u64>();
    let total_bytes = devices.values().map(bytes_of).sum();
    if let Some((segment, _)) = devices.values().flatten().find(|(_, state)| !state.is_mapped()) {
        let text = format!("the segment at {:#x} is not mapped; nothing was copied", segment.address);
        return Err(Failure::new(Status::ASLEEP, text));
    }
    let mut before = 0;
    for locked in devices.values_mut() {
        let report = |progress: SleepProgress| {
            on_progress(progress.within(before, total_bytes));
        };
        act(locked, &report)?;
        before += bytes_of(locked);
    }
    Ok(())
}

fn save_on(locked: &mut Locked<'_>, on_progress: OnProgress<'_>) -> Result<(), Failure> {
    let Some((first, _)) = locked.first() else { return Ok(()) };
    let (device, offload) = (&first.place.home.device, first.place.offload);
    first.place.home.drain()?;
    let mut kept: Vec<_> =
        locked.iter_mut().map(|(segment, state)| segment.change(state, |state| state.host.take())).collect();
    let memories: Vec<&AnyMemory> = locked.iter().map(|(segment, _)| &segment.reservation).collect();
    let host = |nth: usize| match kept[nth].take() {
        Some(host) => Ok(host),
        None => HostCopy::new(device, locked[nth].0.bytes, offload),
    };
    let saved = save_contents(device, &memories, host, on_progress)?;
    for ((segment, state), host) in locked.iter_mut().zip(saved) {
        segment.change(state, |state| (state.host, state.is_saved) = (Some(host), true));
    }
    Ok(())
}

fn restore_on(locked: &mut Locked<'_>, on_progress: OnProgress<'_>) -> Result<(), Failure> {
    let Some((first, _)) = locked.first() else { return Ok(()) };
    let contents: Vec<(&HostCopy<_>, &AnyMemory)> = locked
        .iter()
        .filter_map(|(segment, state)| Some((state.host.as_ref()?, &segment.reservation)))
        .collect();
    restore_contents(&first.place.home.device, &contents, on_progress)?;
    locked.iter().for_each(|(segment, _)| segment.is_asleep.store(false, Ordering::Relaxed));
    Ok(())
}
