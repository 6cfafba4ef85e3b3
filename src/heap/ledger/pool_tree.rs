//! The pools of a tree: a pool, its children, and theirs.
//!
//! Each of these pools has a separate depot. [`LockedDepot::lock`] then locks the accounts of the tree, too. So the
//! [limits and shares](crate::heap::ledger) hold at every instant, and no thread holds the locks of two
//! depots.

use crate::error::Error;
use crate::heap::ledger::{Bounds, Level, Sum, Waiting};
use crate::heap::{BackendState, Depot, DepotGuard, Family, Life, LockedDepot, Member, PoolCore};
use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, mem};

/// A pool's demand, for which other pools release memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) class: u64,
    /// The new share, if the share is to change.
    pub(crate) share: Option<u64>,
}

impl LockedDepot {
    /// Removes a pool from its tree. No thread, block or child refers to the pool, so nothing is charged to it.
    pub(in crate::heap) fn leave_family(&'static self) {
        let mut guard = self.lock();
        guard.accounts.share = 0;
        let (at, mut family) = (guard.node.take(), guard.family.take());
        if let (Some((_, at)), Some(family)) = (at, &mut family) {
            let member = &mut family.members[at];
            (member.own, member.bounds.share) = (Sum::default(), 0);
            let idle = mem::take(&mut member.idle);
            (family.idle, family.change) = (family.idle - idle, family.change + 1);
            family.uncounted = Some(at);
            family.count();
            family.members.remove(at);
            if family.members.is_empty() {
                // The pools of a later tree have keys in the order in which they were made.
                family.members.clear();
            }
        }
        self.sleeping.store(0, Relaxed);
    }
}

impl Family {
    /// Counts the changes of the last pool that left in the nodes above it. No pool reads those nodes before that.
    fn count(&mut self) {
        let Some(mut node) = self.uncounted.take() else { return };
        while let Some(above) = self.members[node].above {
            let member = &mut self.members[node];
            let counted = member.bounds.counted(member.sum());
            let before = mem::replace(&mut member.counted, counted);
            if before == counted {
                return;
            }
            let above_member = &mut self.members[above];
            above_member.below = above_member.below.minus(before).plus(counted);
            node = above;
        }
    }

    /// The nodes from `at` to the root.
    fn up(&self, at: usize) -> impl Iterator<Item = (usize, &Member)> {
        successors(Some((at, &self.members[at])), |(_, member)| {
            member.above.map(|above| (above, &self.members[above]))
        })
    }

    /// Returns the first waiting request with a deadline of each other pool, with the bytes that it needs in the first
    /// node that the two pools have in common.
    fn waiting_beside(&self, at: usize) -> impl Iterator<Item = Waiting> {
        let members = self.members.iter().filter(move |(node, _)| *node != at);
        members.filter_map(move |(node, member)| {
            let (number, mut bytes) = member.waiting?;
            for (node, member) in self.up(node) {
                if let Some(height) = self.up(at).position(|(above, _)| above == node) {
                    return Some(Waiting { number, height, bytes });
                }
                bytes = member.bounds.growth(member.sum(), bytes);
            }
            None
        })
    }

    /// Returns the pools below the node `height` levels above `at`, without the pool of `at`, with the bytes that each
    /// may release for `asked`.
    fn below(&self, at: usize, height: usize, asked: Asked) -> Vec<(usize, &Member, u64)> {
        let (mut path, mut more, mut share) = (Vec::new(), asked.class, asked.share);
        for (node, member) in self.up(at).take(height.saturating_add(1)) {
            let bounds = Bounds { share: share.take().unwrap_or(member.bounds.share), ..member.bounds };
            let mut sum = member.sum();
            sum.charged = sum.charged.saturating_add(more);
            path.push((node, bounds.spare(sum)));
            more = bounds.counted(sum).charged.saturating_sub(member.counted.charged);
        }
        let top = path.last().map_or(at, |(top, _)| *top);
        let spare = |node: usize, own: Sum| {
            let mut spare = own.idle + own.leased;
            for (node, member) in self.up(node) {
                if node == top {
                    return Some(spare);
                }
                let on_path = path.iter().find(|(on_path, _)| *on_path == node);
                spare =
                    spare.min(on_path.map_or_else(|| member.bounds.spare(member.sum()), |(_, spare)| *spare));
            }
            None
        };
        let members = self.members.iter().filter(|(node, _)| *node != at);
        members.filter_map(|(node, member)| Some((node, member, spare(node, member.own)?))).collect()
    }
}

impl Member {
    fn sum(&self) -> Sum {
        self.own.plus(self.below)
    }
}

impl Depot {
    /// Returns the number of blocks in magazines of threads that have not visited a pool since the pool's last handle
    /// was dropped. `None` while the pool has a handle or a live buffer.
    fn parked(&self) -> Option<u64> {
        (self.is_dropped() && self.memory_now().live == 0).then_some(self.counters.live_buffers)
    }

    /// For the pool that an arena serves: returns the number of pools that have memory of the arena, and the sum of
    /// their [parked](Self::parked) blocks. `None` while one of these pools is in use. The sum is never too large, as a
    /// block leaves it before it leaves the arena.
    pub(in crate::heap) fn parked_in_arena(&self) -> Option<(usize, u64)> {
        let own = self.parked()?;
        let Some((root, at)) = self.node else { return Some((1, own)) };
        let family = root.family.lock();
        let arena = family.members[at].lock;
        let is_over_it = |of: &(usize, &Member)| of.1.arena.is_some_and(|of| std::ptr::eq(of, arena));
        let mut below = family.members.iter().filter(is_over_it);
        below.try_fold((1, own), |(pools, sum), (_, member)| Some((pools + 1, sum + member.parked?)))
    }
}

impl DepotGuard {
    /// Locks the accounts of the tree.
    #[inline(never)]
    pub(in crate::heap) fn enter(&mut self) {
        let Some((root, at)) = self.node else { return };
        let mut family = root.family.lock();
        self.accounts.detached = match &self.backend_state {
            BackendState::Arena(arena) => arena.detached(),
            BackendState::Order { .. } => 0,
        };
        if self.known_change == family.change {
            self.family = Some(family);
            return;
        }
        family.count();
        let member = &family.members[at];
        let do_others_wait = family.waiting > u64::from(member.waiting.is_some());
        let others = do_others_wait.then(|| family.waiting_beside(at));
        self.queue.join(family.turns, others);
        let accounts = &mut self.accounts;
        accounts.others_idle = family.idle - member.idle;
        accounts.below = member.below;
        accounts.above.clear();
        let mut below = member;
        while let Some(above) = below.above {
            let member = &family.members[above];
            let beside = member.sum().minus(below.counted);
            accounts.above.push(Level { bounds: member.bounds, beside });
            below = member;
        }
        let own = accounts.caps.max_cached_bytes;
        accounts.caps.set_common(&family.caps);
        if accounts.is_private {
            accounts.caps.max_cached_bytes = own;
        }
        self.family = Some(family);
    }

    /// Notes the changes in the accounts of the tree, and unlocks them.
    #[inline(never)]
    pub(in crate::heap) fn leave(&mut self) {
        let Some(mut family) = self.family.take() else { return };
        let Some((_, at)) = self.node else { return };
        let (accounts, waiting, parked) = (&self.accounts, self.queue.first_with_deadline(), self.parked());
        let member = &mut family.members[at];
        (member.own, member.bounds, member.parked) = (accounts.own(), accounts.bounds(), parked);
        let idle = if accounts.is_private { 0 } else { accounts.idle() };
        let before = (mem::replace(&mut member.waiting, waiting), mem::replace(&mut member.idle, idle));
        family.waiting = family.waiting + u64::from(waiting.is_some()) - u64::from(before.0.is_some());
        (family.turns, family.idle) = (self.queue.turns(), family.idle - before.1 + idle);
        family.uncounted = Some(at);
        if !accounts.is_private {
            family.caps.set_common(&accounts.caps);
        }
        // The accounts know of every change of the others, so they remain up to date after this one.
        family.change += 1;
        let change = family.change;
        drop(family);
        self.known_change = change;
    }

    /// Returns the locks of all pools of the tree.
    pub(in crate::heap) fn locks(&self) -> Vec<&'static LockedDepot> {
        let members = self.family.iter().flat_map(|family| &family.members);
        members.map(|(_, member)| member.lock).collect()
    }

    /// Returns the live bytes of the other pools below the node `height` levels above the pool's, and the unused bytes
    /// of their shares.
    pub(crate) fn beside(&mut self, height: usize) -> (u64, u64) {
        self.family.iter_mut().for_each(|family| family.count());
        let (Some(family), Some((_, at))) = (&self.family, self.node) else { return (0, 0) };
        let own: Vec<_> = family.up(at).map(|(node, _)| node).collect();
        family.below(at, height, Asked::default()).into_iter().fold(
            (0, 0),
            |(live, unused), (node, member, _)| {
                let share = if own.contains(&node) { 0 } else { member.bounds.share };
                let more = share.saturating_sub(member.sum().charged);
                let idle = member.own.idle + member.own.leased;
                (live + member.own.charged.saturating_sub(idle), unused.saturating_add(more))
            },
        )
    }
}

impl PoolCore {
    /// Adds the pool to the tree, below `parent`. `arena` is the lock of their common arena.
    pub(in crate::heap) fn join(self: &Arc<Self>, parent: &Arc<Self>, arena: Option<&'static LockedDepot>) {
        parent.has_children.store(true, Relaxed);
        for pool in [parent, self] {
            let above = if Arc::ptr_eq(pool, parent) { None } else { parent.depot().node };
            let mut depot = pool.depot();
            if depot.node.is_some() {
                continue;
            }
            let root = above.map_or(parent.lock, |(root, _)| root);
            let mut family = root.family.lock();
            if above.is_none() {
                family.caps.set_common(&depot.accounts.caps);
            }
            let at = family.members.insert(Member {
                lock: pool.lock,
                pool: Arc::downgrade(pool),
                above: above.map(|(_, node)| node),
                arena: arena.filter(|_| above.is_some()),
                parked: None,
                bounds: depot.accounts.bounds(),
                own: Sum::default(),
                idle: 0,
                waiting: None,
                below: Sum::default(),
                counted: Sum::default(),
            });
            if above.is_some() {
                pool.lock.sleeping.store(root.sleeping.load(Relaxed), Relaxed);
            }
            family.change += 1;
            drop(family);
            depot.node = Some((root, at));
            depot.enter();
            pool.set_largest_class(&depot);
        }
        // A close marks the pool before it closes the pools below it, so a pool that joins meanwhile sees the mark.
        let mut above = successors(Some(parent), |pool| pool.parent.as_ref());
        if above.any(|pool| pool.depot().life == Life::Closed) {
            self.depot().life = Life::Closed;
        }
    }

    /// Releases idle memory of other pools of the tree if the pool's own is not enough for `class` bytes. Returns
    /// whether memory was released.
    pub(in crate::heap) fn relieve(&self, class: u64) -> bool {
        let (mut is_any, asked) = (false, Asked { class, share: None });
        loop {
            let lacking = self.depot().accounts.lacking(class);
            if lacking.is_none_or(|(height, bytes)| self.trim_others(height, bytes, asked) == 0) {
                return is_any;
            }
            is_any = true;
        }
    }

    /// Releases at least `bytes` of idle memory of the other pools below the node `height` levels above the pool's, or
    /// all idle memory beyond their shares. Returns the released bytes.
    pub(crate) fn trim_others(&self, height: usize, bytes: u64, asked: Asked) -> u64 {
        let mut released = 0;
        for (other, spare) in self.spare(height, asked) {
            let idle = other.depot().accounts.idle();
            released += other.trim_to(idle.saturating_sub(spare.min(bytes.saturating_sub(released))));
        }
        released
    }

    /// Returns the other pools below the node `height` levels above the pool's, with the bytes that each may release.
    fn spare(&self, height: usize, asked: Asked) -> Vec<(Arc<Self>, u64)> {
        let mut depot = self.depot();
        let at = depot.node;
        let (Some(family), Some((_, at))) = (&mut depot.family, at) else { return Vec::new() };
        family.count();
        let below = family.below(at, height, asked).into_iter();
        below.filter_map(|(_, of, spare)| Some((of.pool.upgrade()?, spare))).collect()
    }

    /// The other pools of the tree.
    pub(crate) fn others(&self) -> Vec<Arc<Self>> {
        self.spare(usize::MAX, Asked::default()).into_iter().map(|(pool, _)| pool).collect()
    }

    /// Returns the pools below this one.
    pub(crate) fn descendants(&self) -> Vec<Arc<Self>> {
        // Relaxed: a thread that has a child's handle sees this store, too.
        if !self.has_children.load(Relaxed) {
            return Vec::new();
        }
        self.spare(0, Asked::default()).into_iter().map(|(pool, _)| pool).collect()
    }

    /// Replaces the limit. Returns the one before.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the share is larger, or the limit has no room for the shares of children beside
    /// other memory.
    pub(crate) fn replace_limit(self: &Arc<Self>, limit: u64) -> Result<u64, Error> {
        let mut depot = self.depot();
        let (needed, share) = (depot.accounts.charged_together(), depot.accounts.share);
        let refuse = |reason| Err(Error::configuration("limit", limit.to_string(), reason));
        if limit < share {
            return refuse(format!("the child's share is {share} bytes; lower the share first"));
        }
        if depot.accounts.has_shares_below() && needed > limit {
            return refuse(format!(
                "children have shares of the limit, which need {needed} bytes together with other memory; lower the \
                 shares by `Pool::set_share`, or drop live buffers"
            ));
        }
        let before = mem::replace(&mut depot.accounts.caps.limit, limit);
        drop(depot);
        self.descendants().iter().chain([self]).for_each(|core| core.set_largest_class(&core.depot()));
        Ok(before)
    }
}

impl fmt::Debug for Family {
    /// Without the pools, which refer to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("idle", &self.idle).finish_non_exhaustive()
    }
}
