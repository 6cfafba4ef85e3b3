//! Exchanges blocks and leased slots between magazines and the depot, under the depot's lock.
//!
//! A slot counts against the caps like an idle block, so moving a block together with its slot never fails.
//! Only additional slots are checked against the caps.

use crate::cache::block::Block;
use crate::cache::buckets::SAME_STREAM_SEARCH;
use crate::cache::depot::Depot;
use crate::cache::magazine::class_table;
use crate::cache::magazine::counters::{ListTally, Tally};
use crate::cache::magazine::rack::{Habit, Leaving, Rack};
use crate::source::Key;
use crate::sync::AtomicU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::StreamId;

/// The most slots of a list, whatever the caps. It bounds the time of one exchange.
const MAX_SLOTS: u64 = 64;

/// Divisor of a bucket's cap for the slots of one thread: other threads need slots, too.
const SHARE_OF_BUCKET: u64 = 4;

/// Number of blocks without a slot, while magazines had some, after which slots are recalled.
const RECALL_EVERY: u64 = 64;

impl Depot {
    /// Adds a thread's counters. Returns the pool's epoch, or `None` if no magazines may be used.
    pub(crate) fn enroll(&mut self, tally: &Arc<Tally>, epoch: &AtomicU64) -> Option<u64> {
        if self.is_closed() || self.is_guarded() || self.awaits_forgotten() {
            return None;
        }
        self.tallies.push(Arc::clone(tally));
        Some(epoch.load(Relaxed))
    }

    /// Empties a thread's magazines of `epoch`. Returns blocks that are not kept: all of them if memory was
    /// recalled since, unless the thread is ending, which must not free any.
    pub(crate) fn dismiss(&mut self, rack: &Rack, epoch: u64, leaving: Leaving) -> Vec<Box<Block>> {
        let keep = !self.is_closed() && (epoch >= self.trimmed || leaving == Leaving::Thread);
        let mut gone = Vec::new();
        for (list, tally) in rack.tally.used_lists() {
            let key = self.key_of(tally.class());
            self.buckets.requests(key).hits += tally.hits();
            let mut blocks = rack.unstack_below(list, 0);
            blocks.iter().for_each(|_| tally.pop());
            self.unlease(rack, list, tally.slots());
            tally.set_class(0);
            if keep {
                blocks.reverse();
                blocks.into_iter().for_each(|block| self.store(block));
            } else {
                blocks.iter().for_each(|block| self.discard(block));
                gone.append(&mut blocks);
            }
        }
        self.settle(rack);
        self.tallies.retain(|tally| !Arc::ptr_eq(tally, &rack.tally));
        gone.append(&mut self.take_dead());
        gone
    }

    /// Takes an idle block of a class: a ready one of this thread, else the depot's best, else its own.
    pub(crate) fn find(&mut self, key: Key, stream: StreamId, rack: Option<&Rack>) -> Option<Box<Block>> {
        let Some((rack, list)) = rack.zip(self.list_of(key)) else {
            return self.find_stored(key, stream);
        };
        let ready = rack.unstack(list, SAME_STREAM_SEARCH, |block| {
            block.key.class == key.class && block.is_ready_on(stream)
        });
        if ready.is_none()
            && let Some(stored) = self.find_stored(key, stream)
        {
            self.refill(rack, list, key, stream);
            return Some(stored);
        }
        let own = ready.or_else(|| rack.unstack(list, 1, |block| block.key.class == key.class))?;
        rack.tally.list(list).pop();
        Some(own)
    }

    /// Moves blocks that need no wait, and leases a slot for the block just taken, to a list without ready
    /// blocks. Each call moves twice as many as the last, if blocks return to this list at all.
    fn refill(&mut self, rack: &Rack, list: u8, key: Key, stream: StreamId) {
        let Some(tally) = self.claim(rack, list, key) else { return };
        let habit = rack.habit(list).get();
        let idle = tally.idle();
        if idle + (tally.hits() - habit.hits) <= habit.idle {
            // Its blocks return to other threads, so its empty slots are of no use here.
            self.unlease(rack, list, tally.slots() - idle);
        }
        let most = self.most_slots(key.class);
        let wanted = (habit.refill * 2).clamp(1, most);
        if tally.slots() < most {
            self.lease(rack, list, key, 1);
        }
        let more = wanted.saturating_sub(idle).min(self.affordable(rack, key.class) + tally.slots() - idle);
        let moved = self.unstore_ready(key, stream, more);
        let places = (idle + moved.len() as u64).saturating_sub(tally.slots());
        self.lease(rack, list, key, places);
        for block in moved {
            if tally.push() {
                rack.stack(list, block);
            } else {
                self.store(block);
            }
        }
        rack.habit(list).set(Habit { refill: wanted, hits: tally.hits(), idle: tally.idle() });
    }

    /// Keeps a returned block in its list, leasing slots for it. A list with all its slots first spills the
    /// older half of its blocks. Returns a block that finds no place.
    pub(crate) fn keep_in_list(&mut self, block: Box<Block>, rack: &Rack) -> Option<Box<Block>> {
        let key = block.key;
        let Some(list) = self.list_of(key) else { return Some(block) };
        let Some(tally) = self.claim(rack, list, key) else { return Some(block) };
        let (slots, most) = (tally.slots(), self.most_slots(key.class));
        if !tally.has_room() {
            if slots < most {
                let more = slots.clamp(1, most - slots).min(self.affordable(rack, key.class));
                self.lease(rack, list, key, more);
            } else {
                self.spill(rack, list, key);
            }
        }
        if !tally.push() {
            return Some(block);
        }
        self.accounts.returned(key.class, block.requested);
        rack.stack(list, block);
        None
    }

    /// Moves the older half of a full list to the bucket, and leases slots again within the caps.
    fn spill(&mut self, rack: &Rack, list: u8, key: Key) {
        let tally = rack.tally.list(list);
        let mut spilled = rack.unstack_below(list, tally.idle() / 2);
        spilled.reverse();
        let places = spilled.len() as u64;
        spilled.iter().for_each(|_| tally.pop());
        self.unlease(rack, list, places);
        spilled.into_iter().for_each(|block| self.store(block));
        self.lease(rack, list, key, places);
    }

    /// Returns the list for `key`, switching an empty list to this class.
    fn claim<'a>(&mut self, rack: &'a Rack, list: u8, key: Key) -> Option<&'a ListTally> {
        rack.flush_hot();
        let tally = rack.tally.list(list);
        if tally.class() != key.class {
            if tally.slots() > 0 {
                return None;
            }
            if tally.class() != 0 {
                let before = self.key_of(tally.class());
                self.buckets.requests(before).hits += tally.hits();
            }
            tally.set_class(key.class);
            rack.habit(list).set(Habit::default());
        }
        Some(tally)
    }

    /// Returns the list for `key`, if magazines take it.
    pub(crate) fn list_of(&self, key: Key) -> Option<u8> {
        let takes = key.kind == self.kind && self.accounts.caps.magazines_take(key.class);
        takes.then(|| class_table::number(key.class))
    }

    /// Returns the most slots of a thread for one class.
    fn most_slots(&self, class: u64) -> u64 {
        let caps = &self.accounts.caps;
        let share = (caps.max_buffers_per_bucket / SHARE_OF_BUCKET).max(1);
        MAX_SLOTS.min(share).min((caps.magazine_bytes / class).max(1))
    }

    /// Returns how many more blocks of a class a thread may keep.
    fn affordable(&self, rack: &Rack, class: u64) -> u64 {
        self.accounts.caps.magazine_bytes.saturating_sub(rack.leased.get()) / class
    }

    /// Leases up to `slots` more to a list, as many as the caps allow.
    fn lease(&mut self, rack: &Rack, list: u8, key: Key, slots: u64) {
        let wanted = slots.min(self.affordable(rack, key.class));
        if wanted == 0 {
            return;
        }
        let bucket = self.buckets.of(&key);
        let granted = wanted.min(self.accounts.leasable(key.class, bucket.kept()));
        bucket.leased += granted;
        self.accounts.lease(granted * key.class);
        rack.leased.set(rack.leased.get() + granted * key.class);
        rack.tally.list(list).lease(granted);
    }

    fn unlease(&mut self, rack: &Rack, list: u8, slots: u64) {
        let tally = rack.tally.list(list);
        let key = self.key_of(tally.class());
        self.buckets.of(&key).leased -= slots;
        self.accounts.unlease(slots * key.class);
        rack.leased.set(rack.leased.get() - slots * key.class);
        tally.unlease(slots);
    }

    /// Settles what a thread lent from its magazines since its last call.
    #[inline]
    pub(crate) fn settle(&mut self, rack: &Rack) {
        if !rack.lent_nothing() {
            self.settle_lent(rack);
        }
    }

    #[inline(never)]
    fn settle_lent(&mut self, rack: &Rack) {
        let (lent, most) = rack.take_lent();
        self.accounts.tell(lent, most);
    }

    /// Whether blocks were dropped for lack of slots so often that threads' slots should be recalled.
    pub(crate) fn lacks_slots(&mut self) -> bool {
        let lacks = self.without_slot >= RECALL_EVERY;
        if lacks {
            self.without_slot = 0;
        }
        lacks
    }
}
