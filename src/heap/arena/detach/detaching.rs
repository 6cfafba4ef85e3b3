//! The change from attached to detached.

use crate::error::{Error, Forbidden};
use crate::heap::arena::detach::{
    Attachment, Change, DetachedPiece, MapState, Mapping, OnFree, Phase, Refusal, Right, View,
};
use crate::heap::arena::panics::caught;
use crate::heap::arena::{ArenaCore, Backing, DeviceArena, LiveBlock};
use crate::heap::space::ArenaError;
use crate::streams::{Need, add};
use crate::sync::Instant;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vrampool_backend::spi::Grant;
use vrampool_backend::{Backend, BackendError, fork, logging};

impl<B: Backend> DeviceArena<B> {
    /// Begins to return all physical memory to the device. Blocks stay live at their addresses. Idle memory of the pool
    /// over the arena is released first, that of other threads' magazines at their next call, and the pool refuses
    /// requests for the arena until it is [attached](Self::attach).
    ///
    /// Only a [growing](crate::arena::ArenaBuilder::growing) arena can be detached. Waits on the host for all work that
    /// uses the blocks, and up to `timeout` for regions of them to end. Returns `None` if the arena is detached.
    ///
    /// From the start of the wait until the result is dropped, new regions and allocations of other threads wait; on
    /// this thread they fail with [`Error::Asleep`]. A detached arena then refuses them with [`Error::Asleep`], until
    /// it is [attached](Self::attach). Contents are lost unless the caller copies them first: see
    /// [`Detaching::memory`]. Several arenas detach all or none if the memory of each is [unmapped](Detaching::unmap)
    /// before any is [released](super::Unmapped::commit). The extension `vrampool-sleep` does both.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use vrampool::{Backend, host::HostDevice, arena::{Attachment, DeviceArena}};
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().build()?;
    /// let block = arena.allocate(4 << 20, &stream)?;
    /// let detaching = arena.detach(Duration::ZERO)?.expect("attached");
    /// assert_eq!(detaching.live(), block.parts());
    /// assert_eq!(detaching.unmap()?.commit(|_freed| {}), 4 << 20);
    /// assert_eq!((arena.attachment(), arena.reserved_bytes()), (Attachment::Detached, 0));
    /// assert!(block.on(&stream).is_err());
    /// assert_eq!(arena.attach()?.expect("detached").commit(), 4 << 20);
    /// assert!(block.on(&stream).is_ok());
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Arena`] with [`Pinned`](crate::arena::ArenaError::Pinned) if a region of a block still exists;
    /// [`Error::Capture`] while a captured stream uses a block; [`Error::Backend`] if the device fails, or the arena is
    /// not a growing one. The arena is then as before; idle memory of its pool may have been released.
    pub fn detach(&self, timeout: Duration) -> Result<Option<Detaching<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_detach(timeout).map_err(|error| self.explain(error, None))
    }

    /// Returns whether the arena has its physical memory: never in a forked child.
    #[must_use]
    pub fn attachment(&self) -> Attachment {
        if fork::is_forked() {
            return Attachment::Detached;
        }
        match self.core.state.lock().phase {
            Phase::Attached => Attachment::Attached,
            Phase::Changing => Attachment::Changing,
            Phase::Detached(_) => Attachment::Detached,
        }
    }
}

/// An arena whose memory no work uses, and no thread can use. A drop makes it usable again.
#[derive(Debug)]
#[must_use = "a drop makes the arena usable again"]
pub struct Detaching<'a, B: Backend> {
    core: &'a ArenaCore<B>,
    _right: Right<'a>,
    range: Arc<B::Memory>,
    /// `None` once the arena is detached.
    change: Option<Change<B>>,
}

/// An arena whose memory is unmapped and not yet released. A drop maps it again.
#[derive(Debug)]
#[must_use = "a drop maps the memory again"]
pub struct Unmapped<'a, B: Backend>(Detaching<'a, B>);

impl<'a, B: Backend> Detaching<'a, B> {
    /// Returns the memory of the arena's range, of which only the [live](Self::live) extents may be used.
    ///
    /// Work on it must be complete before [`unmap`](Self::unmap), and before this object is dropped.
    #[must_use]
    pub fn memory(&self) -> &B::Memory {
        &self.range
    }

    /// Returns the extents of live blocks in [`memory`](Self::memory), bytes, by offset. A block can have several.
    #[must_use]
    pub fn live(&self) -> &[Range<u64>] {
        self.change.as_ref().map_or(&[], |change| &change.live)
    }

    /// Unmaps all memory. The device does not have it back yet.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device fails. The arena is then usable again, with all contents; if the device fails
    /// again during the reversal, it is detached and keeps its physical memory with all contents, and the next
    /// [`attach`](crate::arena::DeviceArena::attach) maps that.
    pub fn unmap(mut self) -> Result<Unmapped<'a, B>, Error> {
        if let Some(change) = &mut self.change {
            self.core.unmap_views(&mut change.views)?;
        }
        Ok(Unmapped(self))
    }
}

impl<B: Backend> Unmapped<'_, B> {
    /// Releases the physical memory to the device, and returns its bytes. Never fails.
    ///
    /// `on_free` is called once with the extents of each block that is freed from now until the arena is attached, also
    /// with those freed since [`detach`](crate::arena::DeviceArena::detach): at once, or after an attachment that
    /// failed. It may be called by several threads at a time, and after a later change has begun.
    pub fn commit(mut self, on_free: impl Fn(&[Range<u64>]) + Send + Sync + 'static) -> u64 {
        let core = self.0.core;
        let Some(mut change) = self.0.change.take() else { return 0 };
        change.on_free = OnFree(Some(Arc::new(on_free)));
        let physical: Vec<_> = change.pieces.iter_mut().filter_map(|piece| piece.physical.take()).collect();
        let freed = physical.iter().map(|physical| physical.len()).sum();
        // Returned after the memory is dropped: only then are the bytes available to other arenas.
        let returned = core.finish_detached(change);
        drop(physical);
        drop(returned);
        core.state.shared().notify_freed();
        logging::debug!("arena on {}: detached, {freed} bytes released", core.id);
        freed
    }
}

impl<B: Backend> Drop for Detaching<'_, B> {
    fn drop(&mut self) {
        let Some(mut change) = self.change.take() else { return };
        let (mapped, panic) = caught(|| self.core.map_views(&mut change.views, &change.pieces));
        match mapped {
            Ok(()) => {
                self.core.state.lock().phase = Phase::Attached;
                self.core.state.set_asleep(false);
            }
            Err(error) => {
                logging::warn!("arena on {}: detached with its memory, because {error}", self.core.id);
                drop(self.core.finish_detached(change));
            }
        }
        panic.go_on();
    }
}

/// The pause between two looks at regions, which have no way to notify of their end.
const PAUSE: Duration = Duration::from_micros(100);

impl<B: Backend> ArenaCore<B> {
    pub(super) fn begin_detach(&self, timeout: Duration) -> Result<Option<Detaching<'_, B>>, Error> {
        // Without one, a timeout is past the end of time.
        let deadline = Instant::now().checked_add(timeout);
        let waited = self.wait_for_others()?;
        let alone = self.changing.lock();
        // Pieces whose unmapping failed before are released now, or the device fails.
        self.release_completed(&[], 0, &waited)?;
        let mut state = self.state.lock();
        if state.backing.is_none() {
            let operation = "detaching the memory of an arena that does not grow";
            return Err(BackendError::unsupported(operation).into());
        }
        if matches!(state.phase, Phase::Detached(_)) {
            return Ok(None);
        }
        // Holds are taken under the lock that is held here.
        while state.slots.iter().any(LiveBlock::is_held) {
            // New regions wait for the lock of changes, so that they cannot put the change off.
            state.phase = Phase::Changing;
            drop(state);
            // Where no other thread could end a region meanwhile, there is no wait.
            let is_over =
                cfg!(target_family = "wasm") || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if !is_over {
                thread::sleep(PAUSE);
            }
            state = self.state.lock();
            state.phase = Phase::Attached;
            if is_over {
                return Err(ArenaError::Pinned.into());
            }
        }
        let range = Arc::clone(&state.range);
        state.phase = Phase::Changing;
        drop(state);
        // From here on a drop reverses everything.
        let (pieces, views, live, on_free) = (Vec::new(), Vec::new(), Vec::new(), OnFree::default());
        let change = Some(Change { pieces, views, live, on_free });
        let mut detaching = Detaching { core: self, _right: (alone, Refusal::new()), range, change };
        self.state.set_asleep(true);
        self.state.pool().into_iter().for_each(|pool| _ = pool.trim_to(0));
        let state = self.state.lock();
        let (mut users, live) = (state.users_of_free(|_, _| true), state.slots.extents(&state.engine));
        state.slots.iter().for_each(|slot| slot.uses.each(|user| add(&mut users, user)));
        let mapped = state.backing.as_ref().map(|backing| backing.views(&state.range));
        let (pieces, views) = mapped.unwrap_or_default();
        drop(state);
        let bytes = live.iter().map(|extent| extent.end - extent.start).sum();
        detaching.change = Some(Change { pieces, views, live, on_free: OnFree::default() });
        // A wait for a captured stream would invalidate the capture.
        let need = Need { requested: bytes, class: bytes };
        users.iter().try_for_each(|user| need.check(&self.device, user, Forbidden::Release))?;
        users.iter().try_for_each(|user| self.device.synchronize(user))?;
        Ok(Some(detaching))
    }

    /// Unmaps all views, which no work uses any more. After a failure the states record what was unmapped.
    pub(super) fn unmap_views(&self, views: &mut [View<B>]) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        views.iter_mut().try_for_each(|view| {
            view.each_run(Mapping::is_mapped, MapState::Out, |memory, run| {
                self.timed(|| device.unmap(memory, run.start, run.bytes))
            })
        })
    }

    /// Maps all pieces with physical memory in the views. After a failure the states record what was mapped.
    pub(super) fn map_views(
        &self,
        views: &mut [View<B>],
        pieces: &[DetachedPiece],
    ) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        for view in views {
            for mapping in view.mappings.iter_mut().filter(|mapping| !mapping.is_mapped()) {
                let place = pieces.binary_search_by_key(&mapping.extent.start, |piece| piece.extent.start);
                let piece = place.ok().and_then(|place| pieces.get(place));
                let Some(physical) = piece.and_then(|piece| piece.physical.as_ref()) else { continue };
                self.timed(|| device.map(&view.memory, mapping.offset, physical))?;
                mapping.state = MapState::Mapped;
            }
            let is_inaccessible = |mapping: &Mapping| mapping.state == MapState::Mapped;
            view.each_run(is_inaccessible, MapState::Accessible, |memory, run| {
                self.timed(|| device.set_access(memory, run.start, run.bytes))
            })?;
        }
        Ok(())
    }

    /// Makes the arena detached, keeping memory that could not be released. Returns the grant of unmapped
    /// memory, to be dropped after that memory.
    pub(super) fn finish_detached(&self, change: Change<B>) -> Grant {
        let (live, on_free) = (change.live.clone(), change.on_free.clone());
        let mut state = self.state.lock();
        // Blocks may have been freed in the meantime.
        let still = state.slots.extents(&state.engine);
        let (mut whole, mut unmapped) = (None, 0);
        if let Some(backing) = &mut state.backing {
            // Pieces that could not be released keep their memory.
            let kept = change.pieces.iter().filter(|piece| piece.physical.is_some());
            let (was_mapped, kept) = (backing.mapped, kept.map(|piece| piece.extent.bytes).sum());
            whole = Some(backing.take_all());
            backing.mapped = kept;
            unmapped = was_mapped.saturating_sub(kept);
        }
        state.phase = Phase::Detached(Box::new(change));
        drop(state);
        // The limits of the pool's tree count none of it from now on.
        self.state.set_asleep(true);
        let returned = self.share.split(unmapped);
        let is_freed =
            |extent: &Range<u64>| still.binary_search_by_key(&extent.start, |live| live.start).is_err();
        on_free.call(&live.into_iter().filter(is_freed).collect::<Vec<_>>());
        // Drops that call the device run without the lock.
        drop(whole);
        returned
    }
}

impl<B: Backend> Backing<B> {
    /// Returns all pieces, and all their views except ranges that no buffer uses.
    fn views(&self, range: &Arc<B::Memory>) -> (Vec<DetachedPiece>, Vec<View<B>>) {
        let pieces = self.extents.iter().zip(&self.physical);
        let pieces = pieces
            .map(|(&extent, physical)| DetachedPiece { extent, physical: Some(physical.clone()) })
            .collect();
        let mapping = |offset, extent| Mapping { offset, extent, state: MapState::Accessible };
        let mut views = vec![View {
            memory: Arc::clone(range),
            is_range: true,
            age: None,
            mappings: self.extents.iter().map(|&extent| mapping(extent.start, extent)).collect(),
        }];
        for (range, parts) in self.ranges().filter(|(range, _)| !range.is_unused()) {
            views.push(View {
                memory: Arc::clone(&range.memory),
                is_range: false,
                age: range.is_whole(&parts).then_some(range.age),
                mappings: parts.iter().map(|part| mapping(part.offset, part.piece)).collect(),
            });
        }
        (pieces, views)
    }
}
