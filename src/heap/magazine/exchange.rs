//! Exchanges blocks and leased slots between magazines and the depot, under the depot's lock.
//!
//! A slot counts against the caps like an idle block, so moving a block together with its slot never fails.
//! Only additional slots are checked against the caps.

use crate::heap::magazine::counters::{BinCounters, ThreadCounters};
use crate::heap::magazine::{Leaving, RefillState, ThreadCache, class_table};
use crate::heap::pool_order::order_in;
use crate::heap::store::{Accept, SAME_STREAM_SEARCH};
use crate::heap::{Block, Depot};
use crate::source::Key;
use crate::streams::{Streams, add};
use crate::sync::AtomicU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::{Backend, Stream, StreamId};

/// The most slots of a bin, whatever the caps. It bounds the time of one exchange.
const MAX_SLOTS: u64 = 64;

/// Number of idle blocks of a class whose streams are asked for their progress.
const ASKED: usize = 4;

/// Divisor of a bucket's cap for the slots of one thread: other threads need slots, too.
const SHARE_OF_BUCKET: u64 = 4;

/// Number of blocks without a slot, while magazines had some, after which slots are recalled.
const RECALL_EVERY: u64 = 64;

impl Depot {
    /// Adds a thread's counters. Returns the pool's epoch, or `None` if no magazines may be used.
    pub(crate) fn enroll(&mut self, counters: &Arc<ThreadCounters>, epoch: &AtomicU64) -> Option<u64> {
        if self.is_dropped() || self.is_guarded() {
            return None;
        }
        self.threads.counters.push(Arc::clone(counters));
        Some(epoch.load(Relaxed))
    }

    /// Empties a thread's magazines of `epoch`. Returns blocks that are not kept. If memory was recalled since that
    /// epoch, no block is kept; of a thread that ends, which must not free any, those are kept for which the caps have
    /// room now.
    pub(crate) fn dismiss(&mut self, cache: &ThreadCache, epoch: u64, leaving: Leaving) -> Vec<Box<Block>> {
        let was_recalled = self.is_dropped() || epoch < self.threads.trimmed;
        let mut dismissed = Vec::new();
        for (bin, counters) in cache.counters.used_bins() {
            let key = self.buckets.key_of(counters.class());
            self.buckets.requests(key).hits += counters.hits();
            let mut blocks = cache.unstack_below(bin, 0);
            blocks.iter().for_each(|_| counters.pop());
            self.unlease(cache, bin, counters.slots());
            counters.set_class(0);
            blocks.reverse();
            for block in blocks {
                if !was_recalled || leaving == Leaving::Thread && self.has_room_for(&block) {
                    self.store(block);
                } else {
                    self.discard(&block);
                    dismissed.push(block);
                }
            }
        }
        self.apply_delta(cache);
        self.threads.counters.retain(|counters| !Arc::ptr_eq(counters, &cache.counters));
        dismissed
    }

    /// Takes an accepted idle block of a class: of this thread, else of the depot, or the reverse where it
    /// needs a wait.
    pub(crate) fn find(
        &mut self,
        key: Key,
        stream: StreamId,
        cache: Option<&ThreadCache>,
        accepted: Accept,
    ) -> Option<Box<Block>> {
        let Some((cache, bin)) = cache.zip(self.bin_of(key)) else {
            return self.find_stored(key, stream, accepted);
        };
        let backend_state = &self.backend_state;
        let own = cache.unstack(bin, SAME_STREAM_SEARCH, |block| {
            block.key.class == key.class
                && match accepted {
                    Accept::Ready => block.is_ready_on(stream),
                    Accept::Done { is_captured } => block.is_done(backend_state, stream, is_captured),
                    Accept::Any => false,
                }
        });
        if own.is_none()
            && let Some(stored) = self.find_stored(key, stream, accepted)
        {
            self.refill(cache, bin, key, stream);
            return Some(stored);
        }
        let is_any = |block: &Block| accepted == Accept::Any && block.key.class == key.class;
        let own = own.or_else(|| cache.unstack(bin, 1, is_any))?;
        cache.counters.bin(bin).pop();
        Some(own)
    }

    /// Returns the streams that used idle blocks of some classes, that no marker follows, and that are not known to be
    /// before `stream`. Records that the blocks are idle.
    pub(crate) fn unmarked_users<B: Backend>(
        &mut self,
        key: Key,
        cache: Option<&ThreadCache>,
        stream: StreamId,
    ) -> Streams<B::Stream> {
        let mut users = Streams::new();
        for key in self.keys_for(key) {
            let bin = cache.zip(self.bin_of(key));
            let Self { buckets, backend_state, .. } = self;
            let (markers, ticks) = order_in::<B>(backend_state);
            let is_unmarked = |user: StreamId, tick| {
                !ticks.cover(user, stream, tick) && markers.covering(user, tick).is_none()
            };
            let mut visit = |block: &Block| {
                block.last_use.note_idle(ticks.now());
                let is_open = |user: StreamId| is_unmarked(user, block.last_use.freed());
                if block.user_ids(backend_state).into_iter().any(is_open) {
                    let all = block.users_in::<B>(backend_state);
                    all.iter().filter(|user| is_open(user.id())).for_each(|user| add(&mut users, user));
                }
            };
            if let Some((cache, bin)) = bin
                && cache.counters.bin(bin).class() == key.class
            {
                cache.visit(bin, ASKED, &mut visit);
            }
            if let Some(bucket) = buckets.find(&key) {
                bucket.idle.iter().take(ASKED).for_each(|block| visit(block));
            }
        }
        users
    }

    /// Moves blocks that need no wait, and leases a slot for the block just taken, to a bin without ready
    /// blocks. Each call moves twice as many as the last, if blocks return to this bin at all.
    fn refill(&mut self, cache: &ThreadCache, bin: u8, key: Key, stream: StreamId) {
        let Some(counters) = self.claim(cache, bin, key) else { return };
        let last = cache.refill_state(bin).get();
        let idle = counters.idle();
        if idle + (counters.hits() - last.hits) <= last.idle {
            // Its blocks return to other threads, so its empty slots are of no use here.
            self.unlease(cache, bin, counters.slots() - idle);
        }
        let most = self.most_slots(key.class);
        let wanted = (last.refill * 2).clamp(1, most);
        if counters.slots() < most {
            self.lease(cache, bin, key, 1);
        }
        let more =
            wanted.saturating_sub(idle).min(self.affordable(cache, key.class) + counters.slots() - idle);
        let moved = self.unstore_ready(key, stream, more);
        let places = (idle + moved.len() as u64).saturating_sub(counters.slots());
        self.lease(cache, bin, key, places);
        for block in moved {
            if counters.push() {
                cache.stack(bin, block);
            } else {
                self.store(block);
            }
        }
        cache.refill_state(bin).set(RefillState {
            refill: wanted,
            hits: counters.hits(),
            idle: counters.idle(),
        });
    }

    /// Keeps a returned block in its bin, leasing slots for it. A bin with all its slots first spills the
    /// older half of its blocks. Returns a block that finds no place.
    pub(crate) fn keep_in_bin(&mut self, block: Box<Block>, cache: &ThreadCache) -> Option<Box<Block>> {
        let key = block.key;
        let Some(bin) = self.bin_of(key) else { return Some(block) };
        let Some(counters) = self.claim(cache, bin, key) else { return Some(block) };
        let (slots, most) = (counters.slots(), self.most_slots(key.class));
        if !counters.has_free_slot() {
            if slots < most {
                let more = slots.clamp(1, most - slots).min(self.affordable(cache, key.class));
                self.lease(cache, bin, key, more);
            } else {
                self.spill(cache, bin, key);
            }
        }
        if !counters.push() {
            return Some(block);
        }
        self.accounts.returned(key.class, block.requested);
        cache.stack(bin, block);
        None
    }

    /// Moves the older half of a full bin to the bucket, and leases slots again within the caps.
    fn spill(&mut self, cache: &ThreadCache, bin: u8, key: Key) {
        let counters = cache.counters.bin(bin);
        let mut spilled = cache.unstack_below(bin, counters.idle() / 2);
        spilled.reverse();
        let places = spilled.len() as u64;
        spilled.iter().for_each(|_| counters.pop());
        self.unlease(cache, bin, places);
        spilled.into_iter().for_each(|block| self.store(block));
        self.lease(cache, bin, key, places);
    }

    /// Returns the bin for `key`, switching an empty bin to this class.
    fn claim<'a>(&mut self, cache: &'a ThreadCache, bin: u8, key: Key) -> Option<&'a BinCounters> {
        let counters = cache.counters.bin(bin);
        if counters.class() != key.class {
            if counters.slots() > 0 {
                return None;
            }
            if counters.class() != 0 {
                let before = self.buckets.key_of(counters.class());
                self.buckets.requests(before).hits += counters.hits();
            }
            counters.set_class(key.class);
            cache.refill_state(bin).set(RefillState::default());
        }
        Some(counters)
    }

    /// Returns the bin for `key`, if magazines take it.
    pub(crate) fn bin_of(&self, key: Key) -> Option<u8> {
        let takes = key.kind == self.buckets.kind && self.accounts.caps.magazines_take(key.class);
        takes.then(|| class_table::number(key.class))
    }

    /// Returns the most slots of a thread for one class.
    fn most_slots(&self, class: u64) -> u64 {
        let caps = &self.accounts.caps;
        let share = (caps.max_buffers_per_bucket / SHARE_OF_BUCKET).max(1);
        MAX_SLOTS.min(share).min((caps.magazine_bytes / class).max(1))
    }

    /// Returns how many more blocks of a class a thread may keep.
    fn affordable(&self, cache: &ThreadCache, class: u64) -> u64 {
        self.accounts.caps.magazine_bytes.saturating_sub(cache.leased.get()) / class
    }

    /// Leases up to `slots` more to a bin, as many as the caps allow.
    fn lease(&mut self, cache: &ThreadCache, bin: u8, key: Key, slots: u64) {
        let wanted = slots.min(self.affordable(cache, key.class));
        if wanted == 0 {
            return;
        }
        let bucket = self.buckets.of(&key);
        let granted = wanted.min(self.accounts.leasable(key.class, bucket.kept()));
        bucket.leased += granted;
        self.accounts.lease(granted * key.class);
        cache.leased.set(cache.leased.get() + granted * key.class);
        cache.counters.bin(bin).lease(granted);
    }

    fn unlease(&mut self, cache: &ThreadCache, bin: u8, slots: u64) {
        let counters = cache.counters.bin(bin);
        let key = self.buckets.key_of(counters.class());
        self.buckets.of(&key).leased -= slots;
        self.accounts.unlease(slots * key.class);
        cache.leased.set(cache.leased.get() - slots * key.class);
        counters.unlease(slots);
    }

    /// Adds the bytes that a thread served from its magazines since its last call.
    #[inline]
    pub(crate) fn apply_delta(&mut self, cache: &ThreadCache) {
        if !cache.has_no_delta() {
            self.add_delta(cache);
        }
    }

    #[inline(never)]
    fn add_delta(&mut self, cache: &ThreadCache) {
        let (delta, most) = cache.take_delta();
        self.accounts.add(delta, most);
    }

    /// Whether blocks were dropped for lack of slots so often that threads' slots should be recalled.
    pub(crate) fn lacks_slots(&mut self) -> bool {
        let lacks = self.threads.without_slot >= RECALL_EVERY;
        if lacks {
            self.threads.without_slot = 0;
        }
        lacks
    }
}
