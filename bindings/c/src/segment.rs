//! A segment: addresses, and the physical memory and the contents behind them.

use crate::failure::{Failure, Status};
use crate::segment_place::{Place, SegmentUsage, place};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool::any::{AnyDevice, AnyMemory, AnyStream};
use vrampool::backend::spi::Grant;
use vrampool::backend::{AllocationRequest, Physical, VirtualMemory};
use vrampool::{Backend, Error, Memory, MemoryKind};
use vrampool_sleep::HostCopy;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) device: c_int,
    pub(crate) bytes: u64,
    pub(crate) address: u64,
    pub(crate) number: u64,
    /// Whether it was mapped, and its memory or its saved contents are not there. Changes under the lock of the state.
    pub(crate) is_asleep: AtomicBool,
    /// Whether a call frees it.
    pub(crate) is_going: AtomicBool,
    kind: MemoryKind,
    /// The addresses. Dropping them unmaps and releases the memory behind them.
    pub(crate) reservation: AnyMemory,
    state: Mutex<State>,
    /// The stream of the allocation.
    stream: AnyStream,
    pub(crate) place: Arc<Place>,
}

/// What changes of a segment. Locked while its contents are copied.
#[derive(Debug)]
pub(crate) struct State {
    tag: Arc<str>,
    /// The memory behind the addresses, if it is mapped.
    physical: Option<Mapped>,
    /// Host memory, which stays for the next sleep after a wake.
    pub(crate) host: Option<HostCopy<AnyDevice>>,
    /// Whether that memory has the contents.
    pub(crate) is_saved: bool,
}

#[derive(Debug)]
struct Mapped {
    physical: Physical,
    _grant: Grant,
}

impl State {
    pub(crate) fn is_mapped(&self) -> bool {
        self.physical.is_some()
    }
}

impl Segment {
    /// Addresses for `size` bytes, rounded up to the device's granularity, with nothing behind them.
    pub(crate) fn reserve(size: u64, device: c_int, stream: usize) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let place = place(device)?;
        let home = &place.home;
        let kind = home.device.properties().preferred_placement().into();
        let memory = home.device.virtual_memory().ok_or_else(crate::pool::not_virtual)?;
        let bytes = size.checked_next_multiple_of(memory.granularity(kind)?).ok_or_else(|| {
            Failure::new(Status::TOO_LARGE, format!("{size} bytes exceed the address space"))
        })?;
        let reservation = memory.reserve(bytes).map_err(Error::from)?;
        let address = reservation.address().ok_or_else(crate::pool::not_virtual)?;
        // Relaxed: only distinctness matters.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (is_asleep, is_going) = (AtomicBool::new(false), AtomicBool::new(false));
        let stream = home.find(stream)?;
        let tag = Arc::from("default");
        let state = Mutex::new(State { tag, physical: None, host: None, is_saved: false });
        Ok(Self {
            device,
            bytes,
            address,
            number,
            is_asleep,
            is_going,
            kind,
            reservation,
            state,
            stream,
            place,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn memory(&self) -> Result<&dyn VirtualMemory<Memory = AnyMemory>, Failure> {
        self.place.home.device.virtual_memory().ok_or_else(crate::pool::not_virtual)
    }

    /// Maps memory, which is charged to the limit.
    pub(crate) fn map(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if state.is_mapped() {
            let text = format!("the segment at {:#x} is mapped already; nothing was done", self.address);
            return Err(Failure::new(Status::INVALID_ARGUMENT, text));
        }
        let grant = self.place.charge(self.bytes)?;
        let request = AllocationRequest::new(self.bytes, self.kind);
        let physical = self.memory()?.create_and_map(&self.reservation, 0, &request).map_err(Error::from)?;
        self.change(&mut state, |state| {
            state.physical = Some(Mapped { physical, _grant: grant });
            // With saved contents it is asleep until these are restored.
            self.is_asleep.fetch_and(state.is_saved, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Unmaps and releases the memory, after all work of the device, and returns whether there was any.
    pub(crate) fn unmap(&self) -> Result<bool, Failure> {
        self.unmap_locked(&mut self.state.lock())
    }

    /// As [`unmap`](Self::unmap); `None` while another thread copies the contents, or maps or unmaps the memory.
    pub(crate) fn try_unmap(&self) -> Option<Result<bool, Failure>> {
        self.state.try_lock().map(|mut state| self.unmap_locked(&mut state))
    }

    fn unmap_locked(&self, state: &mut State) -> Result<bool, Failure> {
        if !state.is_mapped() {
            return Ok(false);
        }
        // Work on streams that are not known here may use it.
        self.place.home.drain()?;
        let memory = self.memory()?;
        self.change(state, |state| {
            let Some(mapped) = &state.physical else { return Ok(false) };
            memory.unmap(&self.reservation, 0, mapped.physical.len())?;
            state.physical = None;
            self.is_asleep.store(true, Ordering::Relaxed);
            Ok(true)
        })
    }

    /// Sets the tag, which figures are by.
    pub(crate) fn set_tag(&self, tag: &str) {
        self.change(&mut self.state.lock(), |state| state.tag = Arc::from(tag));
    }

    /// Changes the state, and the figures with it.
    pub(crate) fn change<T>(&self, state: &mut State, change: impl FnOnce(&mut State) -> T) -> T {
        let (tag, before) = (Arc::clone(&state.tag), self.usage(state));
        let changed = change(state);
        self.place.note((&tag, before), (&state.tag, self.usage(state)));
        changed
    }

    /// What it adds to the figures of its tag.
    fn usage(&self, state: &State) -> SegmentUsage {
        // Relaxed, here and where it changes: under the lock; a caller without it reads a flag and nothing more.
        let is_asleep = self.is_asleep.load(Ordering::Relaxed) && !state.is_mapped();
        SegmentUsage {
            mapped_bytes: if state.is_mapped() { self.bytes } else { 0 },
            asleep_bytes: if is_asleep { self.bytes } else { 0 },
            backup_bytes: state.host.as_ref().map_or(0, HostCopy::bytes),
        }
    }

    /// Checks that a wait for its work invalidates no capture.
    pub(crate) fn check_not_captured(&self) -> Result<(), Failure> {
        if !self.is_captured(None) {
            return Ok(());
        }
        let text = format!(
            "the segment at {:#x} may be used by a stream that is captured, and a wait for its work would invalidate \
             the capture; nothing was done: call again after the capture",
            self.address
        );
        Err(Failure::new(Status::CAPTURE, text))
    }

    /// Whether a stream that may use it is captured.
    pub(crate) fn is_captured(&self, user: Option<&AnyStream>) -> bool {
        self.place.home.is_captured(user.into_iter().chain([&self.stream]))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let state = self.state.lock();
        self.place.note((&state.tag, self.usage(&state)), (&state.tag, SegmentUsage::default()));
    }
}
