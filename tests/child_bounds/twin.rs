//! Random requests of the pools of a tree, one at a time, against a naive twin: live bytes, and the order of the pools.

use crate::{Device, KIB, device_and_stream};
use proptest::prelude::*;
use std::mem;
use vrampool::host::Call;
use vrampool::{BackendError, Buffer, Error, Pool, Shortage, SizeClasses};

#[derive(Debug, Clone)]
enum Step {
    // `is_refused`: whether the device refuses all memory meanwhile.
    Allocate { of: usize, bytes: u64, is_refused: bool },
    Drop(usize),
    // The stream is captured from now on, or no more.
    Capture(bool),
    // With the pools below it.
    Close(usize),
    Fork,
    Trim { of: usize, to: u64 },
    SetShare { of: usize, bytes: u64 },
    SetLimit { of: usize, bytes: Option<u64> },
    // Drops a pool without children, and makes a new one below another.
    Replace { of: usize, below: usize, limit: Option<u64>, is_private: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<usize>;
    let bytes = || prop_oneof![2 => 0..5 * KIB, 3 => 0..70 * KIB];
    let bound = || prop_oneof![1 => Just(0), 4 => 0..300 * KIB, 1 => 0..700 * KIB];
    let limit = move || prop::option::weighted(0.8, bound());
    let step = prop_oneof![
        24 => (index(), bytes(), prop::bool::weighted(0.05))
            .prop_map(|(of, bytes, is_refused)| Step::Allocate { of, bytes, is_refused }),
        16 => index().prop_map(Step::Drop),
        2 => any::<bool>().prop_map(Step::Capture),
        1 => index().prop_map(Step::Close),
        1 => Just(Step::Fork),
        1 => (index(), 0..200 * KIB).prop_map(|(of, to)| Step::Trim { of, to }),
        3 => (index(), bound()).prop_map(|(of, bytes)| Step::SetShare { of, bytes }),
        3 => (index(), limit()).prop_map(|(of, bytes)| Step::SetLimit { of, bytes }),
        2 => (index(), index(), limit(), prop::bool::weighted(0.1))
            .prop_map(|(of, below, limit, is_private)| Step::Replace { of, below, limit, is_private }),
    ];
    prop::collection::vec(step, 0..200)
}

/// A pool, and what the twin knows of it.
struct Node {
    pool: Pool<Device>,
    parent: Option<usize>,
    live: u64,
    limit: Option<u64>,
    share: u64,
    is_private: bool,
    is_closed: bool,
    /// Class and address of idle blocks of a private pool, the last freed last.
    places: Vec<(u64, u64)>,
}

struct Twin(Vec<Node>);

impl Twin {
    fn idle(&self, at: usize) -> u64 {
        self.0[at].pool.own_stats().idle_bytes
    }

    fn held(&self, at: usize) -> u64 {
        self.0[at].live + self.idle(at)
    }

    fn below(&self, at: usize) -> Vec<usize> {
        (0..self.0.len()).filter(|&node| self.0[node].parent == Some(at)).collect()
    }

    /// The bytes that a node counts at least: with `more` in one pool, and without idle memory that may be released, or
    /// with all of it.
    fn total(&self, at: usize, more: (usize, u64), kept: &dyn Fn(usize) -> bool) -> u64 {
        let idle = if kept(at) || self.0[at].is_private { self.idle(at) } else { 0 };
        let own = self.0[at].live + idle + if more.0 == at { more.1 } else { 0 };
        let private = |child: usize| self.0[child].is_private;
        let counted = |child: usize| {
            let keeps = |node: usize| kept(node) || private(child);
            self.total(child, more, &keeps).max(self.0[child].share)
        };
        own + self.below(at).into_iter().map(counted).sum::<u64>()
    }

    fn up(&self, at: usize) -> Vec<usize> {
        std::iter::successors(Some(at), |&at| self.0[at].parent).collect()
    }

    /// Whether `class` bytes more of a pool fit in all limits above it, if idle memory is released or kept.
    fn fits(&self, at: usize, class: u64, is_kept: bool) -> bool {
        // Private memory serves only the pools below its pool.
        self.up(at).into_iter().all(|node| {
            let up = self.up(at);
            let kept = |of: usize| is_kept || up.contains(&of) && self.0[of].is_private;
            let total = self.total_on(node, (at, class), &kept, &up);
            self.0[node].limit.is_none_or(|limit| total <= limit)
        })
    }

    /// As [`total`](Self::total); a private node on the way does not keep what pools below it have.
    fn total_on(&self, at: usize, more: (usize, u64), kept: &dyn Fn(usize) -> bool, up: &[usize]) -> u64 {
        let idle = if kept(at) { self.idle(at) } else { 0 };
        let own = self.0[at].live + idle + if more.0 == at { more.1 } else { 0 };
        let counted = |child: usize| {
            let total = match up.contains(&child) {
                true => self.total_on(child, more, kept, up),
                false => self.total(child, more, kept),
            };
            total.max(self.0[child].share)
        };
        own + self.below(at).into_iter().map(counted).sum::<u64>()
    }

    fn all_held(&self) -> Vec<u64> {
        (0..self.0.len()).map(|at| self.held(at)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pools_of_a_tree_and_twin_agree(
        max_cached in prop_oneof![Just(0), 0..200 * KIB, Just(u64::MAX)],
        limit in 64 * KIB..600 * KIB,
        count in 1..6usize,
        is_last_private in any::<bool>(),
        steps in steps(),
    ) {
        let (device, stream) = device_and_stream();
        let builder = Pool::builder(&device).size_classes(SizeClasses::Fixed).magazine_bytes(0);
        let builder = builder.max_buffers_per_bucket(None).max_cached_bytes(max_cached).limit(limit);
        let node = |pool, parent, limit, is_private| {
            Node { pool, parent, live: 0, limit, share: 0, is_private, is_closed: false, places: Vec::new() }
        };
        let mut twin = Twin(vec![node(builder.build().expect("a pool"), None, Some(limit), false)]);
        for at in 1..count {
            let (parent, is_private) = ((at - 1) / 2, is_last_private && at == count - 1);
            let pool = twin.0[parent].pool.child("child").private(is_private).build().expect("a pool");
            twin.0.push(node(pool, Some(parent), None, is_private));
        }
        let (mut live, mut is_captured) = (Vec::<(usize, Buffer<Device>)>::new(), false);
        for step in steps {
            let before = twin.all_held();
            match step {
                Step::Allocate { of, bytes, is_refused } => {
                    let at = of % count;
                    let pool = twin.0[at].pool.clone();
                    let class = pool.class_of(bytes).expect("the device allocates any");
                    let has_idle = pool.own_stats().buckets.iter().any(|of| of.class == class && of.idle_buffers > 0);
                    let (fits, fits_beside) = (twin.fits(at, class, false), twin.fits(at, class, true));
                    let is_within_share = twin.total(at, (at, class), &|_| true) <= twin.0[at].share;
                    if is_refused {
                        device.inner().faults().fail_all(Call::Allocate, BackendError::out_of_memory(1, None));
                    }
                    let got = pool.allocate(bytes, &stream);
                    device.inner().faults().clear();
                    if twin.0[at].is_closed {
                        prop_assert!(matches!(got, Err(Error::Closed)), "{got:?}");
                        prop_assert_eq!(twin.all_held(), before, "nothing is released, or taken");
                        continue;
                    }
                    if let Ok(buffer) = &got && has_idle && twin.0[at].is_private {
                        let places = &mut twin.0[at].places;
                        let newest = places.iter().rposition(|&(of, _)| of == class).expect("one is idle");
                        prop_assert_eq!(Some(places.remove(newest).1), buffer.address(), "the last freed");
                    }
                    if is_captured {
                        prop_assert!(match &got {
                            Ok(_) => has_idle,
                            Err(error) => !has_idle && matches!(error, Error::Capture { .. }),
                        }, "{got:?}");
                        if let Ok(buffer) = got {
                            twin.0[at].live += class;
                            live.push((at, buffer));
                        }
                        prop_assert_eq!(twin.all_held(), before, "nothing is released, or taken");
                        continue;
                    }
                    let lack = |error: &Error| error.out_of_memory().expect("a lack of memory").shortage.clone();
                    let shortage = got.as_ref().err().map(lack);
                    match shortage {
                        None => prop_assert!(has_idle || fits && !is_refused, "{got:?}"),
                        Some(Shortage::Limit(limit)) => {
                            prop_assert!(!has_idle && !fits && !is_within_share, "{got:?}");
                            let mut above = twin.up(at).into_iter();
                            prop_assert!(above.any(|node| twin.0[node].limit == Some(limit)), "{got:?}");
                            prop_assert_eq!(twin.all_held(), before.clone(), "nothing is released in vain");
                        }
                        Some(_) => prop_assert!(!has_idle && fits && is_refused, "{got:?}"),
                    }
                    if let Ok(buffer) = got {
                        twin.0[at].live += class;
                        live.push((at, buffer));
                        if has_idle || fits_beside {
                            let mut expected = before.clone();
                            expected[at] += if has_idle { 0 } else { class };
                            prop_assert_eq!(twin.all_held(), expected, "nothing is released without need");
                        }
                    }
                    for other in (0..count).filter(|other| !twin.up(at).contains(other) && !is_refused) {
                        let is_within = twin.below(other).is_empty() && before[other] <= twin.0[other].share;
                        let is_its_own = is_within || twin.0[other].is_private;
                        prop_assert!(!is_its_own || twin.held(other) == before[other], "its share stays");
                    }
                }
                Step::Drop(which) if !live.is_empty() => {
                    let (at, buffer) = live.swap_remove(which % live.len());
                    let (class, place) = (buffer.capacity(), buffer.address().expect("the host has addresses"));
                    drop(buffer);
                    twin.0[at].live -= class;
                    twin.0[at].places.push((class, place));
                    let idle: u64 = (0..count).filter(|&at| !twin.0[at].is_private).map(|at| twin.idle(at)).sum();
                    prop_assert!(idle <= max_cached);
                    prop_assert!(!twin.0[at].is_private || twin.held(at) == before[at], "it keeps all");
                    let keeps = !twin.0[at].is_closed || twin.0[at].is_private || is_captured;
                    prop_assert!(keeps || twin.held(at) == before[at] - class, "a closed pool keeps nothing");
                }
                Step::Trim { of, to } => {
                    let at = of % count;
                    twin.0[at].pool.trim_to(to).expect("a trim");
                    let is_below = |node: usize| twin.up(node).contains(&at) && !twin.0[node].is_private;
                    let below = (0..count).filter(|&node| is_below(node));
                    prop_assert!(below.map(|node| twin.idle(node)).sum::<u64>() <= to);
                }
                Step::SetShare { of, bytes } => {
                    let at = of % count;
                    let set = twin.0[at].pool.set_share(bytes);
                    let own = &twin.0[at];
                    if own.parent.is_none() || own.limit.is_some_and(|limit| bytes > limit) {
                        prop_assert!(matches!(set, Err(Error::Configuration(_))), "{set:?}");
                    } else if own.is_closed && bytes > own.share {
                        prop_assert!(matches!(set, Err(Error::Closed)), "{set:?}");
                    } else {
                        let share = mem::replace(&mut twin.0[at].share, bytes);
                        // Its own idle memory is part of the share.
                        let (up, own) = (twin.up(at), |node: usize| node == at);
                        let fits = up[1..].iter().all(|&node| {
                            let keeps = |of: usize| own(of) || twin.0[of].is_private && up.contains(&of);
                            let total = twin.total_on(node, (at, 0), &keeps, &up);
                            twin.0[node].limit.is_none_or(|limit| total <= limit)
                        });
                        prop_assert_eq!(set.is_ok(), bytes <= share || fits, "{:?}", set);
                        prop_assert!(set.as_ref().err().is_none_or(|error| error.is_out_of_memory()));
                        if set.is_err() {
                            twin.0[at].share = share;
                        }
                    }
                }
                Step::SetLimit { of, bytes } => {
                    let at = of % count;
                    let (limit, own) = (bytes.unwrap_or(u64::MAX), at);
                    let set = twin.0[at].pool.set_limit(bytes);
                    let shares = |node: usize| twin.up(node).contains(&own) && twin.0[node].share > 0;
                    let has_shares = (0..count).any(|node| node != at && shares(node));
                    let least = twin.total(at, (at, 0), &|_| false);
                    let is_set = limit >= twin.0[at].share && (!has_shares || least <= limit);
                    prop_assert_eq!(set.is_ok(), is_set, "{:?}", set);
                    if is_set {
                        twin.0[at].limit = bytes;
                        prop_assert!(twin.total(at, (at, 0), &|_| true) <= limit.max(least));
                    }
                }
                Step::Replace { of, below, limit, is_private } => {
                    let at = of % count;
                    if at == 0 || !twin.below(at).is_empty() || twin.0[at].live > 0 {
                        continue;
                    }
                    let below = below % count;
                    let parent = if below == at || twin.0[below].is_private { 0 } else { below };
                    let child = twin.0[parent].pool.child("child").limit(limit);
                    let child = if is_private { child.private(true) } else { child };
                    let pool = child.build().expect("a pool");
                    let is_closed = twin.0[parent].is_closed;
                    twin.0[at] = Node { is_closed, ..node(pool, Some(parent), limit, is_private) };
                }
                Step::Close(of) => {
                    let at = of % count;
                    twin.0[at].pool.close();
                    let below: Vec<_> = (0..count).filter(|&node| twin.up(node).contains(&at)).collect();
                    for node in below {
                        twin.0[node].is_closed = true;
                        let keeps = twin.0[node].is_private || is_captured;
                        prop_assert!(keeps || twin.idle(node) == 0, "{node} keeps {}", twin.idle(node));
                    }
                }
                Step::Fork => {
                    #[cfg(target_os = "linux")]
                    {
                        let pools: Vec<_> = twin.0.iter().map(|node| &node.pool).collect();
                        let take = || mem::take(&mut live).into_iter().map(|(_, buffer)| buffer).collect();
                        crate::fork(&pools, &stream, take);
                    }
                    prop_assert_eq!(twin.all_held(), before, "a child changes nothing");
                }
                Step::Capture(begins) => {
                    device.capture(&[&stream][..usize::from(begins)]);
                    is_captured = begins;
                }
                Step::Drop(_) => {}
            }
            let mut all = 0;
            for (at, node) in twin.0.iter().enumerate() {
                let (own, sum) = (node.pool.own_stats(), node.pool.stats());
                prop_assert_eq!(node.pool.is_closed(), node.is_closed);
                let now = (own.live_bytes, node.pool.limit(), node.pool.share());
                prop_assert_eq!(now, (node.live, node.limit, node.share));
                let below: Vec<_> = (0..count).filter(|&other| twin.up(other).contains(&at)).collect();
                prop_assert_eq!(sum.live_bytes, below.iter().map(|&at| twin.0[at].live).sum::<u64>());
                prop_assert_eq!(sum.held_bytes, below.iter().map(|&at| twin.held(at)).sum::<u64>());
                all += own.held_bytes;
            }
            prop_assert_eq!(device.taken(), all);
        }
        drop((twin, live));
        prop_assert_eq!((device.taken(), device.forbidden()), (0, 0));
    }
}
