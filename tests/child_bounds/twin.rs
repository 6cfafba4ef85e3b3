//! Random requests of pools with common caps and of children, one at a time, against a naive twin in lists.

use crate::{Device, KIB, device};
use proptest::prelude::*;
use vrampool::errors::Owner;
use vrampool::host::Call;
use vrampool::{Backend, BackendError, Buffer, Child, Error, Pool, Shortage, SizeClasses};

#[derive(Debug, Clone)]
enum Step {
    /// By a pool, or by a child.
    Allocate {
        of: usize,
        bytes: u64,
        /// Whether the device refuses all memory meanwhile.
        is_refused: bool,
    },
    Drop(usize),
    Trim {
        of: usize,
        to: u64,
    },
    SetShare {
        of: usize,
        bytes: u64,
    },
    SetLimit {
        of: usize,
        bytes: Option<u64>,
    },
    /// Of the pools.
    SetPoolLimit {
        of: usize,
        bytes: u64,
    },
    /// Drops a child, and makes a new one with a limit.
    Replace {
        of: usize,
        limit: Option<u64>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<usize>;
    let bytes = || prop_oneof![2 => 0..5 * KIB, 3 => 0..70 * KIB];
    let bound = || prop_oneof![1 => Just(0), 4 => 0..300 * KIB, 1 => 0..700 * KIB];
    let step = prop_oneof![
        24 => (index(), bytes(), prop::bool::weighted(0.05))
            .prop_map(|(of, bytes, is_refused)| Step::Allocate { of, bytes, is_refused }),
        16 => index().prop_map(Step::Drop),
        1 => (index(), 0..200 * KIB).prop_map(|(of, to)| Step::Trim { of, to }),
        3 => (index(), bound()).prop_map(|(of, bytes)| Step::SetShare { of, bytes }),
        3 => (index(), prop::option::weighted(0.8, bound())).prop_map(|(of, bytes)| Step::SetLimit { of, bytes }),
        1 => (index(), 100 * KIB..700 * KIB).prop_map(|(of, bytes)| Step::SetPoolLimit { of, bytes }),
        2 => (index(), prop::option::weighted(0.8, bound())).prop_map(|(of, limit)| Step::Replace { of, limit }),
    ];
    prop::collection::vec(step, 0..200)
}

/// A pool of the twin.
#[derive(Debug, Default)]
struct OwnPool {
    live: u64,
    /// Classes of idle blocks, oldest release first.
    idle: Vec<u64>,
    /// Classes in the order of their last request.
    requests: Vec<u64>,
}

/// A child of the twin.
#[derive(Debug, Default)]
struct OwnChild {
    live: u64,
    /// Classes of idle blocks, oldest first.
    idle: Vec<u64>,
    limit: Option<u64>,
    share: u64,
    /// Whether it served requests without a limit and a share from idle memory: graphs may use it.
    may_have_graphs: bool,
    /// Number of children that were made before.
    created: usize,
}

impl OwnPool {
    /// Releases idle blocks of the classes that were requested longest ago. Returns the bytes.
    fn evict(&mut self, bytes: u64) -> u64 {
        let mut evicted = 0;
        while evicted < bytes && !self.idle.is_empty() {
            let stalest =
                *self.requests.iter().find(|class| self.idle.contains(class)).expect("requested once");
            self.idle.remove(self.idle.iter().position(|&idle| idle == stalest).expect("it is idle"));
            evicted += stalest;
        }
        evicted
    }

    fn cached(&self) -> u64 {
        self.idle.iter().sum()
    }
}

impl OwnChild {
    fn held(&self) -> u64 {
        self.live + self.idle.iter().sum::<u64>()
    }

    fn unused(&self, share: u64) -> u64 {
        share.saturating_sub(self.held())
    }

    /// Whether its idle memory serves others.
    fn is_tenant(&self) -> bool {
        self.limit.is_some() || self.share > 0
    }

    /// Releases the oldest idle blocks until the limit has room for `class`, if it can.
    fn make_room(&mut self, class: u64) -> bool {
        let Some(limit) = self.limit else { return true };
        if self.live + class > limit || self.may_have_graphs && self.held() + class > limit {
            return false;
        }
        while self.held() + class > limit {
            self.idle.remove(0);
        }
        true
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Served,
    /// By the limit of the child.
    OfChild,
    /// By the limit of the pool.
    OfPool,
    OfDevice,
}

struct Twin {
    limit: u64,
    max_cached: u64,
    pools: Vec<OwnPool>,
    children: Vec<OwnChild>,
}

impl Twin {
    fn cached(&self) -> u64 {
        self.pools.iter().map(OwnPool::cached).sum()
    }

    fn unused(&self) -> u64 {
        self.children.iter().map(|child| child.unused(child.share)).sum()
    }

    /// All memory of the device.
    fn held(&self) -> u64 {
        let live: u64 = self.pools.iter().map(|pool| pool.live).sum();
        live + self.cached() + self.children.iter().map(OwnChild::held).sum::<u64>()
    }

    /// The child and its pool, or the pool.
    fn of(&self, of: usize) -> (Option<usize>, usize) {
        let (pools, children) = (self.pools.len(), self.children.len());
        match of % (pools + children) {
            at if at < children => (Some(at), at % pools),
            at => (None, at - children),
        }
    }

    /// Releases idle memory until the limit has room for `class` bytes beyond the share of `child`, if it can: of
    /// children what idle memory of pools does not cover, except of the one whose share is `raised`; then of other pools
    /// what this one's does not.
    fn make_room(&mut self, at: usize, class: u64, child: Option<usize>, raised: Option<usize>) -> bool {
        let over = |twin: &Self| {
            let own = child.map_or(0, |at| twin.children[at].unused(twin.children[at].share));
            (twin.held() + twin.unused() + class.saturating_sub(own)).saturating_sub(twin.limit)
        };
        if over(self) > self.cached() {
            self.evict_children(at, over(self) - self.cached(), (child, raised));
        }
        if over(self) > self.cached() {
            return false;
        }
        let lacking = over(self).saturating_sub(self.pools[at].cached());
        self.evict_others(at, lacking);
        let over = over(self);
        self.pools[at].evict(over);
        true
    }

    /// Releases idle memory of children beyond their shares, or all of the one that requests, if that is enough: those
    /// of this pool first, the oldest first.
    fn evict_children(
        &mut self,
        at: usize,
        mut bytes: u64,
        (requesting, raised): (Option<usize>, Option<usize>),
    ) {
        let count = self.pools.len();
        let mut order: Vec<usize> = (0..self.children.len()).filter(|at| Some(*at) != raised).collect();
        order.sort_by_key(|&child| (child % count != at, child % count, self.children[child].created));
        let evictable = |child: &OwnChild, is_requesting: bool| match child.is_tenant() {
            _ if child.may_have_graphs => 0,
            false => 0,
            true if is_requesting => child.held() - child.live,
            true => (child.held() - child.live).min(child.held().saturating_sub(child.share)),
        };
        let all = order.iter().map(|&at| evictable(&self.children[at], requesting == Some(at)));
        if all.sum::<u64>() < bytes {
            return;
        }
        for at in order {
            let child = &mut self.children[at];
            let (most, before) = (bytes.min(evictable(child, requesting == Some(at))), child.held());
            while before - child.held() < most {
                child.idle.remove(0);
            }
            bytes = bytes.saturating_sub(before - child.held());
        }
    }

    fn evict_others(&mut self, at: usize, mut bytes: u64) -> u64 {
        for (other, pool) in self.pools.iter_mut().enumerate() {
            if other != at {
                bytes = bytes.saturating_sub(pool.evict(bytes));
            }
        }
        bytes
    }

    fn allocate(&mut self, of: usize, class: u64, is_refused: bool) -> Outcome {
        let (child, at) = self.of(of);
        if let Some(child) = child.map(|at| &mut self.children[at]) {
            if let Some(index) = child.idle.iter().rposition(|&idle| idle == class) {
                child.live += child.idle.remove(index);
                child.may_have_graphs |= !child.is_tenant();
                return Outcome::Served;
            }
            if !child.make_room(class) {
                return Outcome::OfChild;
            }
        }
        let pool = &mut self.pools[at];
        pool.requests.retain(|&other| other != class);
        pool.requests.push(class);
        if let Some(index) = pool.idle.iter().rposition(|&idle| idle == class) {
            pool.idle.remove(index);
        } else {
            if !self.make_room(at, class, child, None) {
                return Outcome::OfPool;
            }
            if is_refused {
                self.pools.iter_mut().for_each(|pool| _ = pool.evict(u64::MAX));
                return Outcome::OfDevice;
            }
        }
        match child {
            Some(at) => self.children[at].live += class,
            None => self.pools[at].live += class,
        }
        Outcome::Served
    }

    fn release(&mut self, at: usize, class: u64) {
        if self.cached() + class <= self.max_cached {
            self.pools[at].idle.push(class);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pools_children_and_twin_agree(
        max_cached in prop_oneof![Just(0), 0..200 * KIB, Just(u64::MAX)],
        limit in 64 * KIB..600 * KIB,
        count in 1..4usize,
        steps in steps(),
    ) {
        let device = device();
        let stream = device.create_stream().expect("a stream");
        let builder = || {
            let builder = Pool::builder(&device).size_classes(SizeClasses::Fixed).magazine_bytes(0);
            builder.max_buffers_per_bucket(None)
        };
        let mut pools = vec![builder().max_cached_bytes(max_cached).limit(limit).build().expect("a pool")];
        (1..count).for_each(|at| pools.push(builder().within(&pools[at / 2]).build().expect("a pool")));
        let new_child = |at: usize| pools[at % count].child("child");
        let mut children: Vec<Child<Device>> = (0..2).map(new_child).collect();
        let mut twin = Twin {
            limit,
            max_cached,
            pools: (0..count).map(|_| OwnPool::default()).collect(),
            children: (0..2).map(|created| OwnChild { created, ..OwnChild::default() }).collect(),
        };
        // With the child and the pool that each returns to.
        let mut live: Vec<(Option<usize>, usize, Buffer<Device>)> = Vec::new();
        let (mut highest, mut made) = (limit, 2);
        for step in steps {
            match step {
                Step::Allocate { of, bytes, is_refused } => {
                    let (child, at) = twin.of(of);
                    let class = pools[at].class_of(bytes).expect("the device allocates any");
                    let is_within_share = child.is_some_and(|at| {
                        let child = &twin.children[at];
                        child.held() + class <= child.share
                    });
                    if is_refused {
                        device.inner().faults().fail_all(Call::Allocate, BackendError::out_of_memory(1, None));
                    }
                    let got = match child {
                        Some(at) => children[at].allocate(bytes, &stream),
                        None => pools[at].allocate(bytes, &stream),
                    };
                    device.inner().faults().clear();
                    let expected = twin.allocate(of, class, is_refused);
                    let error = got.as_ref().err().map(|error| error.out_of_memory().expect("a lack of memory"));
                    let outcome = match error.map(|error| (error.owner, &error.shortage)) {
                        None => Outcome::Served,
                        Some((Owner::Child, Shortage::Limit(_))) => Outcome::OfChild,
                        Some((Owner::Pool, Shortage::Limit(_))) => Outcome::OfPool,
                        Some(_) => Outcome::OfDevice,
                    };
                    prop_assert_eq!(&outcome, &expected, "{:?}", got);
                    prop_assert!(!is_within_share || outcome != Outcome::OfPool, "{got:?}");
                    if let (Outcome::OfChild, Some(error)) = (&outcome, error) {
                        let own = &twin.children[child.expect("a child's limit")];
                        prop_assert_eq!(&error.shortage, &Shortage::Limit(own.limit.expect("a limit")));
                        prop_assert_eq!((error.live_bytes, error.held_bytes), (own.live, own.held()));
                    }
                    if let (Outcome::OfPool, Some(error)) = (&outcome, error) {
                        let own = child.map_or(0, |at| twin.children[at].unused(twin.children[at].share));
                        prop_assert_eq!(error.unused_share_bytes, twin.unused() - own);
                    }
                    live.extend(got.ok().map(|buffer| (child, at, buffer)));
                }
                Step::Drop(which) if !live.is_empty() => {
                    let (child, at, buffer) = live.swap_remove(which % live.len());
                    let class = buffer.capacity();
                    match child {
                        Some(at) => {
                            twin.children[at].live -= class;
                            twin.children[at].idle.push(class);
                        }
                        None => {
                            twin.pools[at].live -= class;
                            twin.release(at, class);
                        }
                    }
                    drop(buffer);
                }
                Step::Trim { of, to } => {
                    let at = of % count;
                    pools[at].trim_to(to).expect("a trim");
                    let surplus = twin.pools[at].cached().saturating_sub(to);
                    twin.pools[at].evict(surplus);
                }
                Step::SetShare { of, bytes } => {
                    let at = of % children.len();
                    let (own, pool) = (&twin.children[at], at % count);
                    let set = children[at].set_share(bytes);
                    if own.limit.is_some_and(|limit| bytes > limit) {
                        prop_assert!(matches!(set, Err(Error::Configuration(_))), "{set:?}");
                    } else {
                        let more = own.unused(bytes).saturating_sub(own.unused(own.share));
                        // A lowered limit may have less room than for what is there.
                        let is_over = bytes > own.share && twin.held() + twin.unused() > twin.limit;
                        let more = more.max(u64::from(is_over));
                        let is_set = more == 0 || twin.make_room(pool, more, None, Some(at));
                        prop_assert_eq!(set.is_ok(), is_set, "{:?}", set);
                        prop_assert!(set.err().is_none_or(|error| error.is_out_of_memory()));
                        if is_set {
                            twin.children[at].share = bytes;
                        }
                    }
                }
                Step::SetLimit { of, bytes } => {
                    let at = of % children.len();
                    let own = &mut twin.children[at];
                    let set = children[at].set_limit(bytes);
                    let is_set = bytes.is_none_or(|bytes| bytes >= own.share);
                    prop_assert_eq!(set.is_ok(), is_set, "{:?}", set);
                    if is_set {
                        own.limit = bytes;
                        let is_over = |own: &OwnChild| bytes.is_some_and(|bytes| own.held() > bytes);
                        while is_over(own) && !own.idle.is_empty() && !own.may_have_graphs {
                            own.idle.remove(0);
                        }
                    }
                }
                Step::SetPoolLimit { of, bytes } => {
                    let at = of % count;
                    let needed = twin.held() + twin.unused();
                    let rest = twin.evict_others(at, needed.saturating_sub(bytes));
                    twin.pools[at].evict(rest);
                    let has_shares = twin.children.iter().any(|child| child.share > 0);
                    let is_set = !has_shares || twin.held() + twin.unused() <= bytes;
                    let set = pools[at].set_limit(bytes);
                    prop_assert_eq!(set.is_ok(), is_set, "{:?}", set);
                    if is_set {
                        (twin.limit, highest) = (bytes, highest.max(bytes));
                    }
                }
                Step::Replace { of, limit } => {
                    let at = of % children.len();
                    children[at] = new_child(at);
                    children[at].set_limit(limit).expect("no share");
                    made += 1;
                    let new = OwnChild { limit, created: made, ..OwnChild::default() };
                    let dropped = std::mem::replace(&mut twin.children[at], new);
                    twin.pools[at % count].live += dropped.live;
                    live.iter_mut().filter(|(child, ..)| *child == Some(at)).for_each(|(child, ..)| *child = None);
                    for class in dropped.idle {
                        twin.release(at % count, class);
                    }
                }
                Step::Drop(_) => {}
            }
            for (child, own) in children.iter().zip(&twin.children) {
                prop_assert_eq!((child.live_bytes(), child.idle_bytes()), (own.live, own.held() - own.live));
                prop_assert_eq!((child.limit(), child.share()), (own.limit, own.share));
            }
            for (at, (pool, own)) in pools.iter().zip(&twin.pools).enumerate() {
                let stats = pool.stats();
                let of_children = twin.children.iter().enumerate().filter(|(child, _)| child % count == at);
                let of_children: u64 = of_children.map(|(_, child)| child.held()).sum();
                prop_assert_eq!((stats.live_bytes, stats.idle_bytes), (own.live + of_children, own.cached()));
            }
            prop_assert_eq!(device.taken(), twin.held());
        }
        prop_assert!(device.peak() <= highest);
        drop((children, live));
        pools.iter().for_each(|pool| _ = pool.trim().expect("a trim"));
        prop_assert_eq!(device.taken(), 0);
    }
}
