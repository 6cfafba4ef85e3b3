use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vrampool_backend::{DeviceId, StreamId};

#[derive(Debug, Clone)]
struct Named(StreamId);

impl Stream for Named {
    fn id(&self) -> StreamId {
        self.0
    }

    fn device(&self) -> DeviceId {
        DeviceId::new("test", 0)
    }
}

/// Counts its handles.
#[derive(Debug, Clone)]
struct Counted(StreamId, Arc<()>);

impl Counted {
    fn new() -> Self {
        Self(StreamId::next(), Arc::new(()))
    }
}

impl Stream for Counted {
    fn id(&self) -> StreamId {
        self.0
    }

    fn device(&self) -> DeviceId {
        DeviceId::new("test", 0)
    }
}

const END: u64 = 64;

/// The uses by some streams, of which the last one wrote.
fn uses_by<S: Stream>(streams: impl IntoIterator<Item = S>) -> Uses<S> {
    let mut streams: Vec<S> = streams.into_iter().collect();
    let uses = Uses::new(streams.pop().expect("a writer"));
    streams.iter().for_each(|reader| uses.recorded_on(reader));
    uses
}

/// The users of a byte, each with the tick of its free; `None` for a live byte, which is never queried.
type Byte = Option<BTreeMap<usize, u64>>;

proptest! {
    /// The naive twin keeps the users of each byte, and the waits. One long function, because each step changes
    /// both.
    #[test]
    fn it_is_a_set_of_streams_for_each_byte(
        steps in prop::collection::vec((0..6, 0..END, 0..END, prop::collection::btree_set(0..4usize, 0..3)), 0..60),
    ) {
        let names: Vec<Named> = (0..4).map(|_| Named(StreamId::next())).collect();
        let mut uses = UseMap::new();
        let mut twin: Vec<Byte> = vec![Some(BTreeMap::new()); END as usize];
        let (mut waits, mut now) = (BTreeMap::new(), 1);
        // The tick up to which each stream is complete.
        let mut done = BTreeMap::new();
        for (step, one, two, streams) in steps {
            let range = one.min(two)..one.max(two);
            let bytes = range.start as usize..range.end as usize;
            let ids = |taken: Streams<Named>| taken.iter().map(Named::id).collect::<BTreeSet<StreamId>>();
            let users = |twin: &[Byte]| {
                let bytes: Option<Vec<_>> = twin.iter().map(Option::as_ref).collect();
                bytes.map(|bytes| bytes.into_iter().flatten().map(|(&user, &tick)| (user, tick)).collect::<BTreeSet<_>>())
            };
            let freed: Byte = Some(streams.iter().map(|&user| (user, now)).collect());
            match (step, users(&twin[bytes.clone()]), streams.first()) {
                (0, _, Some(&one)) if streams.len() == 1 => {
                    let is_of = uses.is_of(&range, &names[one]);
                    let is_down = twin[bytes.clone()].iter().all(|byte| byte.is_none() || *byte == freed);
                    prop_assert!(!is_of || is_down, "of this stream, and of this tick");
                    let is_known = twin[bytes.clone()].iter().all(|byte| *byte == freed);
                    prop_assert!(is_of || !is_known || range.is_empty(), "found where it is");
                    if !is_of {
                        uses.put(range, &Uses::new(names[one].clone()));
                    }
                    twin[bytes].fill(freed);
                }
                (0 | 1, ..) => {
                    if streams.is_empty() {
                        let _ = uses.take(range);
                    } else {
                        uses.put(range, &uses_by(streams.iter().map(|&n| names[n].clone())));
                    }
                    twin[bytes].fill(freed);
                }
                (2, Some(users), _) => {
                    let is_done = |user, tick| done.get(&user).is_some_and(|&done| done >= tick);
                    let open = users.iter().filter(|&&(user, tick)| !is_done(user, tick));
                    let expected: BTreeSet<_> = open.map(|&(user, _)| names[user].id()).collect();
                    prop_assert_eq!(ids(uses.users_in([range.clone()], |_, _| true)), expected.clone());
                    prop_assert_eq!(ids(uses.take(range)), expected);
                    twin[bytes].fill(Some(BTreeMap::new()));
                }
                (3, Some(users), Some(&to)) => {
                    let is_open = |&&(user, tick): &&(usize, u64)| {
                        let is_before = |waited: Option<&u64>| waited.is_none_or(|&waited| waited < tick);
                        user != to && is_before(waits.get(&(user, to))) && is_before(done.get(&user))
                    };
                    // The last of several ticks of one stream is kept.
                    let open: BTreeMap<_, _> =
                        users.iter().filter(is_open).map(|&(user, tick)| (names[user].id(), tick)).collect();
                    let reach = uses.ticks.reach(names[to].id());
                    let parts: Vec<_> = uses.parts(&range).collect();
                    let is_open = parts.iter().any(|part| part.has(|user, tick| !reach.covers(user, tick)));
                    prop_assert_eq!(is_open, !open.is_empty());
                    prop_assert!(parts.iter().all(|part| part.start < range.end && range.start < part.end));
                    prop_assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start));
                    let is_own = uses.needs_no_wait(&range, &names[to]);
                    prop_assert_eq!(is_own, open.is_empty());
                    if one < two {
                        let awaited = uses.awaited_for(&range, &names[to]).unwrap_or_default();
                        let awaited: BTreeMap<_, _> =
                            awaited.into_iter().map(|(user, tick)| (user.id(), tick)).collect();
                        prop_assert_eq!(awaited, open);
                    }
                    if one < two || is_own {
                        twin[bytes].fill(None);
                    }
                }
                (4, ..) if streams.len() == 2 => {
                    let (from, to) = (*streams.first().unwrap(), *streams.last().unwrap());
                    let (from, to) = if one < two { (from, to) } else { (to, from) };
                    let tick = uses.ticks.begin();
                    uses.ticks.waited(names[from].id(), names[to].id(), tick);
                    waits.insert((from, to), now);
                    now += 1;
                }
                (5, ..) if streams.len() == 1 => {
                    let user = *streams.first().unwrap();
                    let tick = uses.ticks.begin();
                    prop_assert_eq!(tick, now);
                    uses.ticks.done(names[user].id(), tick);
                    done.insert(user, now);
                    now += 1;
                }
                _ => {}
            }
            let parts: Vec<_> = uses.parts.iter().map(|part| (part.start, part.end)).collect();
            prop_assert!(parts.iter().all(|&(start, end)| start < end && end <= END));
            prop_assert!(parts.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }

    /// A free of a stream's own part may renew more of that part, and never less.
    #[test]
    fn an_own_part_is_freed_with_the_last_of_its_bytes(
        steps in prop::collection::vec((0..5, 0..END, 0..END, prop::collection::btree_set(0..3usize, 1..3)), 0..60),
    ) {
        let names: Vec<Named> = (0..3).map(|_| Named(StreamId::next())).collect();
        let mut uses = UseMap::new();
        let mut twin: Vec<BTreeMap<StreamId, u64>> = vec![BTreeMap::new(); END as usize];
        let mut now = 1;
        for (step, one, two, streams) in steps {
            let range = one.min(two)..one.max(two) + 1;
            let bytes = range.start as usize..range.end.min(END) as usize;
            let range = range.start..bytes.end as u64;
            let streams: Streams<Named> = streams.iter().map(|&user| names[user].clone()).collect();
            match step {
                0 => {
                    twin[bytes].fill(streams.iter().map(|user| (user.id(), now)).collect());
                    uses.put(range, &uses_by(streams));
                }
                1 | 2 => {
                    uses.put_own(range, &streams[0]);
                    twin[bytes].fill([(streams[0].id(), now)].into());
                }
                3 => {
                    let _ = uses.take(range);
                    twin[bytes].fill(BTreeMap::new());
                }
                _ => {
                    let _ = uses.ticks.begin();
                    now += 1;
                }
            }
            let is_of = uses.is_of(&(one..one + 1), &names[0]);
            prop_assert!(!is_of || twin[one as usize].keys().eq([&names[0].id()]), "what is known");
            for (byte, expected) in (0..).zip(&twin) {
                let part = uses.parts.at(byte).filter(|part| byte < part.end);
                let users: BTreeSet<_> = part.iter().flat_map(|part| part.users.iter().copied()).collect();
                prop_assert!(users.iter().eq(expected.keys()));
                prop_assert!(part.is_none_or(|part| expected.values().all(|&tick| tick <= part.tick && part.tick <= now)));
            }
        }
    }

    /// A stream's part need not be recorded again, except in another tick.
    #[test]
    fn a_free_in_another_era_is_recorded_anew(tick in 0..3u64) {
        let stream = Named(StreamId::next());
        let mut uses = UseMap::new();
        uses.put(0..END, &Uses::new(stream.clone()));
        prop_assert!(uses.is_of(&(8..16), &stream));
        (0..tick).for_each(|_| _ = uses.ticks.begin());
        prop_assert_eq!(uses.is_of(&(8..16), &stream), tick == 0);
        prop_assert!(uses.awaited_for(&(8..16), &stream).is_none());
    }

}

/// No call drops the last handle of a stream: handles of streams that no part has are returned, in bounded number.
/// Adjacent parts of the same streams and tick are one part, also across chunks.
#[test]
fn last_handles_are_returned_and_parts_that_are_alike_are_one() {
    let put = (0..END, 1..END / 4, prop::collection::btree_set(0..4usize, 1..4), prop::bool::weighted(0.4));
    proptest!(|(steps in prop::collection::vec(put, 0..100))| {
        let mut uses = UseMap::<Counted>::new();
        let mut streams: Vec<Counted> = (0..4).map(|_| Counted::new()).collect();
        let mut all: Vec<_> = streams.iter().map(|stream| Arc::downgrade(&stream.1)).collect();
        for (start, bytes, users, is_new) in steps {
            if is_new {
                let _ = uses.ticks.begin();
                // From now on only the map has the previous stream.
                streams[users.len()] = Counted::new();
                all.push(Arc::downgrade(&streams[users.len()].1));
            }
            let users: Streams<Counted> = users.into_iter().map(|user| streams[user].clone()).collect();
            let count = || all.iter().filter(|stream| stream.strong_count() > 0).count();
            let before = count();
            uses.put(start..(start + bytes).min(END), &uses_by(users));
            prop_assert_eq!(count(), before, "the last one is returned");
            drop(uses.take_dropped());
            let named: BTreeSet<_> = uses.parts.iter().flat_map(|part| part.users.iter().copied()).collect();
            prop_assert!(named.iter().all(|id| uses.streams.iter().any(|stream| stream.id() == *id)));
            prop_assert!(count() <= 2 * END as usize + MOST_STREAMS + streams.len());
            let parts: Vec<_> = uses.parts.iter().collect();
            let are_separate = |two: &[&Part]| two[0].end < two[1].start || !two[0].is_alike(two[1]);
            prop_assert!(parts.windows(2).all(are_separate), "{parts:?}");
        }
    });
}

/// Where streams come and go, handles are kept in proportion to the streams that parts name.
#[test]
fn handles_of_streams_that_came_and_went_are_bounded() {
    let mut uses = UseMap::<Counted>::new();
    let mut all = Vec::new();
    for _ in 0..1000 {
        let stream = Counted::new();
        all.push(Arc::downgrade(&stream.1));
        uses.put(0..END, &Uses::new(stream));
        drop(uses.take_dropped());
        assert!(all.iter().filter(|stream| stream.strong_count() > 0).count() <= MOST_STREAMS + 3);
    }
}

/// A stream that is made a user of free bytes waits for all earlier ones, also once there are many streams, and its
/// requests wait until it does.
#[test]
fn a_user_of_free_bytes_is_behind_all_others() {
    let (mut uses, mut all) = (UseMap::<Counted>::new(), Vec::new());
    for round in 0..40 {
        let [user, added, third] = [(); 3].map(|()| Counted::new());
        let _ = uses.ticks.begin();
        uses.put(8..16, &Uses::new(user.clone()));
        let mut before = AwaitedUsers::new();
        for _ in 0..2 {
            uses.add_user(0..END, &added, &mut before);
            drop(uses.take_dropped());
        }
        assert!(before.iter().any(|(of, _)| of.id() == user.id()), "{round}");
        // The wait may fail.
        let awaited = |uses: &mut UseMap<Counted>, stream: &Counted| {
            let awaited = uses.awaited_for(&(8..16), stream).unwrap_or_default();
            awaited.iter().map(|(of, _)| of.id()).collect::<BTreeSet<_>>()
        };
        assert!(awaited(&mut uses, &added).contains(&user.id()), "{round}");
        assert!([user.id(), added.id()].iter().all(|id| awaited(&mut uses, &third).contains(id)), "{round}");
        let part = uses.parts.at(8).expect("a part");
        assert!(part.users.iter().collect::<BTreeSet<_>>().len() == part.users.len(), "{part:?}");
        all.push(user);
    }
}

#[test]
fn completed_streams_are_remembered_longer_than_waits_between_streams() {
    let [done, other] = [(); 2].map(|()| StreamId::next());
    let mut uses = UseMap::<Named>::new();
    uses.ticks.done(done, 7);
    for tick in 0..1000 {
        uses.ticks.waited(StreamId::next(), other, tick);
    }
    assert!(uses.ticks.are_done(done, 7) && !uses.ticks.are_done(done, 8));
}
