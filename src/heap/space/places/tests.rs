use crate::heap::space::block::SpanState;
use crate::heap::space::{Arena, ArenaError, ArenaLayout, Extent, RoomRule, Zone};
use proptest::prelude::*;

const END: u64 = 64;

fn holes(arena: &Arena, bytes: u64) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    arena.holes(bytes, &mut holes);
    holes.iter().map(|room| (room.extent.start, room.extent.bytes)).collect()
}

proptest! {
    /// The naive twin is a byte map. One long function, because each step changes both.
    #[test]
    fn a_place_is_had_exactly_when_all_of_it_is_free(
        steps in prop::collection::vec((0..8, 0..END, 1..END), 1..80),
    ) {
        let mut arena = Arena::new(ArenaLayout::new(END).alignment(1))?;
        let (mut taken, mut blocks) = ([false; END as usize], Vec::new());
        let (mut unlisted, mut peak, mut rooms) = (Vec::<crate::heap::space::BlockId>::new(), 0, Vec::new());
        for (step, one, two) in steps {
            match step {
                0 if !blocks.is_empty() => {
                    let block = blocks.swap_remove(one as usize % blocks.len());
                    let Extent { start: offset, bytes } = arena.extent(block);
                    taken[offset as usize..(offset + bytes) as usize].fill(false);
                    arena.free(block)?;
                }
                1 => {
                    let tail = arena.free_end(Zone::Dynamic);
                    let fits = holes(&arena, two).iter().any(|&(offset, _)| offset != tail);
                    match arena.room_by(two, RoomRule::LowestHole) {
                        Some(room) => {
                            let block = match one % 2 {
                                0 => arena.allocate_in(room, room.extent.start, two)?,
                                _ => arena.allocate_front(room, two),
                            };
                            prop_assert_eq!(arena.extent(block).start, room.extent.start);
                            let Extent { start: offset, bytes } = arena.extent(block);
                            prop_assert!(fits && offset < tail);
                            taken[offset as usize..(offset + bytes) as usize].fill(true);
                            blocks.push(block);
                        }
                        None => prop_assert!(!fits),
                    }
                }
                2 if !unlisted.is_empty() => {
                    let block = unlisted.swap_remove(one as usize % unlisted.len());
                    prop_assert_eq!(arena.free(block), Err(ArenaError::StaleBlock), "it has no owner");
                    if two % 2 == 0 {
                        arena.let_in(block);
                        blocks.push(block);
                    } else {
                        let Extent { start: offset, bytes } = arena.extent(block);
                        taken[offset as usize..(offset + bytes) as usize].fill(false);
                        arena.release(block);
                        prop_assert!(matches!(arena.free(block), Err(ArenaError::StaleBlock)));
                    }
                }
                3 => {
                    let range = one as usize..(one + two).min(END) as usize;
                    let is_free = one + two <= END && !taken[range.clone()].contains(&true);
                    let block = arena.hold_at(one, two);
                    prop_assert_eq!(block.is_ok(), is_free);
                    if is_free {
                        taken[range].fill(true);
                    }
                    unlisted.extend(block);
                }
                4 => {
                    let tail = arena.free_end(Zone::Dynamic);
                    let room = arena.end_room(two);
                    prop_assert_eq!(room.map(|room| room.extent.start), (tail + two <= END).then_some(tail));
                    if let Some(room) = room {
                        let block = arena.allocate_in(room, tail, two)?;
                        taken[tail as usize..(tail + two) as usize].fill(true);
                        blocks.push(block);
                    }
                }
                _ => {
                    let range = one as usize..(one + two).min(END) as usize;
                    let is_free = one + two <= END && !taken[range.clone()].contains(&true);
                    // Arbitrary earlier rooms: most of them no longer exist, or have changed.
                    rooms.extend(arena.fitting_blocks(1, usize::MAX));
                    let room = rooms.get((one + two) as usize * 7 % rooms.len().max(1)).filter(|_| step == 6);
                    let got = match room {
                        Some(&room) => arena.allocate_in(room, one, two),
                        None => arena.allocate_at(one, two),
                    };
                    match got {
                        Ok(block) => {
                            prop_assert!(is_free);
                            prop_assert_eq!(arena.extent(block), Extent { start: one, bytes: two });
                            taken[range].fill(true);
                            blocks.push(block);
                        }
                        Err(ArenaError::NoSpace { .. }) => prop_assert!(!is_free),
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
            }
            let free: Vec<_> = arena
                .blocks()
                .filter(|span| matches!(span.state, SpanState::Free))
                .filter(|span| span.bytes >= 3 || span.offset + span.bytes == END)
                .map(|span| (span.offset, span.bytes))
                .collect();
            prop_assert_eq!(holes(&arena, 3), free);
            let end = (0..END).rev().find(|&at| taken[at as usize]).map_or(0, |at| at + 1);
            prop_assert_eq!(arena.free_end(Zone::Dynamic), end);
            let by_size = |most| -> Vec<_> {
                arena.fitting_blocks(3, most).map(|room| (room.extent.start == end, room.extent.bytes)).collect()
            };
            let all = by_size(usize::MAX);
            prop_assert!(all.is_sorted(), "{all:?}");
            let (few, has_end) = (by_size(2), all.last().is_some_and(|(is_end, _)| *is_end));
            let holes = all.len() - usize::from(has_end);
            prop_assert_eq!(&few[..holes.min(2)], &all[..holes.min(2)]);
            prop_assert_eq!(&few[holes.min(2)..], &all[holes..], "the free end is never left out");
            let held: u64 = unlisted.iter().map(|&block| arena.extent(block).bytes).sum();
            let used = taken.iter().filter(|&&byte| byte).count() as u64 - held;
            prop_assert_eq!((arena.used_in(Zone::Dynamic), arena.held()), (used, held));
            peak = used.max(peak);
            prop_assert_eq!(arena.peak_used(), peak, "an unlisted block never was live");
            let end = blocks.iter().map(|&block| arena.extent(block).end()).max();
            prop_assert_eq!(arena.live_end(), end.unwrap_or(0));
        }
    }
}
