//! Contents of segments in host memory.

use crate::boundary::{Numbers, Out, exports};
use crate::failure::{Failure, Status, check_no_callback};
use crate::segment::{Segment, State};
use crate::segment_place::Place;
use crate::segments::{get, numbered, release_deferred};
use crate::sleep::{CopyCallback, OnProgress, progress_to};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool::any::AnyMemory;
use vrampool_sleep::{HostCopy, SleepProgress, restore_contents, save_contents};

exports! {
    fn vrampool_segments_save(
        handles: Numbers<'_>,
        count: usize,
        on_progress: Option<CopyCallback>,
        user: *mut c_void,
    ) {
        let segments = of_call(handles, count)?;
        segments.iter().try_for_each(|segment| segment.check_not_captured())?;
        // What was saved before stays if nothing is copied.
        let saved = lock(&segments, |_, _| true).and_then(|mut locked| {
            let saved = on_each_device(&mut locked, &progress_to(on_progress, user), save_on);
            drop(locked);
            saved.inspect_err(|_| forget(&segments, true))
        });
        release_deferred();
        saved
    }

    fn vrampool_segments_restore(
        handles: Numbers<'_>,
        count: usize,
        on_progress: Option<CopyCallback>,
        user: *mut c_void,
    ) {
        // What was saved stays until it is forgotten, and is copied once after each unmapping.
        let waits = |segment: &Segment, state: &State| state.is_saved && segment.is_asleep.load(Ordering::Relaxed);
        let segments = of_call(handles, count)?;
        let restored = lock(&segments, waits)
            .and_then(|mut locked| on_each_device(&mut locked, &progress_to(on_progress, user), restore_on));
        release_deferred();
        restored
    }

    fn vrampool_segments_forget(handles: Numbers<'_>, count: usize, keep_memory: c_int) {
        forget(&of_call(handles, count)?, keep_memory != 0);
        Ok(())
    }

    fn vrampool_segment_saved(handle: u64, address: Out<'_, *mut c_void>, bytes: Out<'_, u64>) {
        address.check("address")?;
        let (start, length) = saved(handle)?.unwrap_or_default();
        address.set(ptr::with_exposed_provenance_mut(start as usize));
        bytes.set(length);
        Ok(())
    }
}

/// The segments that a call is for.
fn of_call(handles: Numbers<'_>, count: usize) -> Result<Vec<Arc<Segment>>, Failure> {
    let handles = handles.read(count, "handles")?;
    check_no_callback()?;
    Ok(numbered(handles))
}

/// Forgets what was saved of segments. Their host memory stays for the next time, or is released.
fn forget(segments: &[Arc<Segment>], keeps_memory: bool) {
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
fn saved(number: u64) -> Result<Option<(u64, u64)>, Failure> {
    check_no_callback()?;
    let Some(segment) = get(number) else { return Ok(None) };
    let mut state = segment.lock();
    let is_saved = state.is_saved;
    let Some(host) = state.host.as_mut().filter(|_| is_saved) else { return Ok(None) };
    let bytes = host.as_slice(&segment.place.home.device)?;
    Ok(Some((bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)))
}

/// Locked segments of one device, so that none is unmapped meanwhile.
type Locked<'a> = Vec<(&'a Segment, MutexGuard<'a, State>)>;

/// Locks mapped segments, by device.
fn lock(
    segments: &[Arc<Segment>],
    is_taken: impl Fn(&Segment, &State) -> bool,
) -> Result<BTreeMap<c_int, Locked<'_>>, Failure> {
    let mut devices: BTreeMap<c_int, Locked<'_>> = BTreeMap::new();
    for segment in segments {
        let state = segment.lock();
        if !is_taken(segment, &state) {
            continue;
        }
        if !state.is_mapped() {
            let text = format!("the segment at {:#x} is not mapped; nothing was copied", segment.address);
            return Err(Failure::new(Status::ASLEEP, text));
        }
        devices.entry(segment.device).or_default().push((segment, state));
    }
    Ok(devices)
}

/// Does something with the segments of each device. Progress is that of all.
fn on_each_device(
    devices: &mut BTreeMap<c_int, Locked<'_>>,
    on_progress: OnProgress<'_>,
    act: impl Fn(&Place, &mut Locked<'_>, OnProgress<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let bytes_of = |locked: &Locked<'_>| locked.iter().map(|(segment, _)| segment.bytes).sum::<u64>();
    let (mut before, total_bytes) = (0, devices.values().map(bytes_of).sum());
    for locked in devices.values_mut() {
        let report = |progress: SleepProgress| on_progress(progress.within(before, total_bytes));
        act(&Arc::clone(&locked[0].0.place), locked, &report)?;
        before += bytes_of(locked);
    }
    Ok(())
}

fn save_on(place: &Place, locked: &mut Locked<'_>, on_progress: OnProgress<'_>) -> Result<(), Failure> {
    let device = &place.home.device;
    place.home.drain()?;
    let mut kept: Vec<_> =
        locked.iter_mut().map(|(segment, state)| segment.change(state, |state| state.host.take())).collect();
    let memories: Vec<&AnyMemory> = locked.iter().map(|(segment, _)| &segment.reservation).collect();
    let host = |nth: usize| match kept[nth].take() {
        Some(host) => Ok(host),
        None => HostCopy::new(device, locked[nth].0.bytes, place.offload),
    };
    let saved = save_contents(device, &memories, host, on_progress)?;
    for ((segment, state), host) in locked.iter_mut().zip(saved) {
        segment.change(state, |state| (state.host, state.is_saved) = (Some(host), true));
    }
    Ok(())
}

fn restore_on(place: &Place, locked: &mut Locked<'_>, on_progress: OnProgress<'_>) -> Result<(), Failure> {
    let contents: Vec<_> = locked
        .iter()
        .filter_map(|(segment, state)| Some((state.host.as_ref()?, &segment.reservation)))
        .collect();
    restore_contents(&place.home.device, &contents, on_progress)?;
    locked.iter().for_each(|(segment, _)| segment.is_asleep.store(false, Ordering::Relaxed));
    Ok(())
}
