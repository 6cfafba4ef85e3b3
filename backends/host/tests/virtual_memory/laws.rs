//! Random sequences of calls, faults among them, against a twin that is a table of pages.

use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::AllocationRequest;
use vrampool_host::{
    Backend, BackendError, Call, HostDevice, HostMemory, HostStream, Physical, Placement, Region, RegionMut,
    VirtualMemory,
};
use vrampool_test_support::BackendExt;

/// Small, so that bytes are cheap to compare.
pub(crate) const PAGE: u64 = 4096;
/// Pages of a reservation.
const PAGES: u64 = 5;
/// Pages the device has.
pub(crate) const CAPACITY: u64 = 8;
const FAULTS: [Call; 5] = [Call::Reserve, Call::CreatePhysical, Call::Map, Call::SetAccess, Call::Unmap];

/// Copies that failed, and that were done.
static COPIES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

#[derive(Debug, Clone)]
enum Step {
    Reserve,
    DropReservation(usize),
    Create(u64),
    DropHandle(usize),
    Map(usize, u64, usize),
    SetAccess(usize, Range),
    Unmap(usize, Range),
    Fill(usize, u64, u64, u8),
    Copy((usize, u64), (usize, u64), u64),
    /// The next call of a kind fails.
    Fault(usize),
}

impl Step {
    /// The same with numbers of what is there, where anything is.
    fn within(mut self, reservations: usize, handles: usize) -> Self {
        let (reservations, handles) = (reservations.max(1), handles.max(1));
        match &mut self {
            Self::DropHandle(handle) => *handle %= handles,
            Self::Map(reservation, _, handle) => {
                *reservation %= reservations;
                *handle %= handles;
            }
            Self::SetAccess(reservation, _) | Self::Unmap(reservation, _) | Self::Fill(reservation, ..) => {
                *reservation %= reservations;
            }
            Self::Copy((from, _), (to, _), _) => {
                *from %= reservations;
                *to %= reservations;
            }
            Self::Reserve | Self::DropReservation(_) | Self::Create(_) | Self::Fault(_) => {}
        }
        self
    }
}

/// Pages that are, or are not, those of whole mappings.
#[derive(Debug, Clone, Copy)]
enum Range {
    Any(u64, u64),
    /// The mapping at a page.
    Mapping(u64),
}

fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        1 => (0..PAGES + 1, 0..4_u64).prop_map(|(at, pages)| Range::Any(at, pages)),
        3 => (0..PAGES).prop_map(Range::Mapping),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let one = || 0..4_usize;
    let at = || 0..PAGES + 1;
    let byte = || 0..PAGES * PAGE;
    let bytes = || prop_oneof![0..PAGE / 4, 0..PAGE + PAGE / 2];
    prop_oneof![
        1 => Just(Step::Reserve),
        1 => one().prop_map(Step::DropReservation),
        6 => (0..4_u64).prop_map(Step::Create),
        2 => one().prop_map(Step::DropHandle),
        12 => (one(), at(), one()).prop_map(|(r, at, p)| Step::Map(r, at, p)),
        16 => (one(), range()).prop_map(|(r, range)| Step::SetAccess(r, range)),
        3 => (one(), range()).prop_map(|(r, range)| Step::Unmap(r, range)),
        6 => (one(), byte(), bytes(), any::<u8>()).prop_map(|(r, at, n, v)| Step::Fill(r, at, n, v)),
        16 => ((one(), byte()), (one(), byte()), bytes()).prop_map(|(a, b, n)| Step::Copy(a, b, n)),
        2 => (0..FAULTS.len()).prop_map(Step::Fault),
    ]
}

/// The naive twin: memory is vectors, and a reservation a table of pages.
#[derive(Default)]
struct Twin {
    /// Contents, and the number of handles.
    memory: Vec<(Vec<u8>, u32)>,
    handles: Vec<usize>,
    reservations: Vec<[Option<Page>; PAGES as usize]>,
}

#[derive(Clone, Copy, PartialEq)]
struct Page {
    /// Which mapping, by where it starts.
    mapping: u64,
    memory: usize,
    /// Which page of that memory.
    index: u64,
    accessible: bool,
}

impl Twin {
    fn taken(&self) -> u64 {
        let used = |&(index, (_, handles)): &(usize, &(Vec<u8>, u32))| {
            let mapped = |page: &&Option<Page>| page.is_some_and(|page| page.memory == index);
            *handles > 0 || self.reservations.iter().flatten().find(mapped).is_some()
        };
        self.memory.iter().enumerate().filter(used).map(|(_, (bytes, _))| bytes.len() as u64).sum()
    }

    fn map(&mut self, reservation: usize, at: u64, handle: usize) -> bool {
        let memory = self.handles[handle];
        let pages = self.memory[memory].0.len() as u64 / PAGE;
        let table = &mut self.reservations[reservation];
        if at + pages > PAGES || (at..at + pages).any(|page| table[page as usize].is_some()) {
            return false;
        }
        for index in 0..pages {
            table[(at + index) as usize] = Some(Page { mapping: at, memory, index, accessible: false });
        }
        true
    }

    fn pages(&self, reservation: usize, range: Range) -> (u64, u64) {
        let table = &self.reservations[reservation];
        match range {
            Range::Any(at, pages) => (at, pages),
            Range::Mapping(page) => table[page as usize].map_or((page, 1), |Page { mapping, .. }| {
                let same = |page: &&Option<Page>| page.is_some_and(|page| page.mapping == mapping);
                (mapping, table.iter().filter(same).count() as u64)
            }),
        }
    }

    /// The pages of a range that is made of whole mappings.
    fn whole(&mut self, reservation: usize, at: u64, pages: u64) -> Option<&mut [Option<Page>]> {
        let table = &mut self.reservations[reservation];
        if pages == 0 || at + pages > PAGES {
            return None;
        }
        let inside = |index: u64| (at..at + pages).contains(&index);
        for index in at..at + pages {
            let page = table[index as usize]?;
            let cut = |other: u64| {
                !inside(other) && table[other as usize].is_some_and(|other| other.mapping == page.mapping)
            };
            if (0..PAGES).any(cut) {
                return None;
            }
        }
        Some(&mut table[at as usize..(at + pages) as usize])
    }

    /// Where each byte of a range is. `None` when a part is not there.
    fn bytes(&self, reservation: usize, at: u64, bytes: u64) -> Option<Vec<(usize, usize)>> {
        let place = |byte: u64| {
            let page = self.reservations[reservation][(byte / PAGE) as usize]?;
            let offset = page.index * PAGE + byte % PAGE;
            page.accessible.then_some((page.memory, offset as usize))
        };
        (at..at + bytes).map(place).collect()
    }
}

pub(crate) struct Real {
    pub(crate) device: HostDevice,
    reservations: Vec<HostMemory>,
    handles: Vec<Physical>,
}

impl Real {
    pub(crate) fn new() -> Self {
        let device = HostDevice::builder().granularity(PAGE).memory_limit(CAPACITY * PAGE).build();
        Self { device, reservations: Vec::new(), handles: Vec::new() }
    }

    /// Work on a stream of its own, because a stream's first failure stays.
    pub(crate) fn work(
        &self,
        work: impl FnOnce(&HostStream) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let stream = self.device.stream();
        work(&stream)?;
        self.device.synchronize(&stream)
    }
}

/// One step on both; whether it worked must be the same, and so must be why not.
fn take(step: Step, real: &mut Real, twin: &mut Twin) {
    let device = real.device.clone();
    let refused = |worked: bool, answer: Result<(), BackendError>| match answer {
        Ok(()) => assert!(worked, "not refused"),
        Err(BackendError::InvalidArgument { .. }) => assert!(!worked, "refused"),
        Err(other) => panic!("{other}"),
    };
    let failed = |worked: bool, answer: Result<(), BackendError>| match answer {
        Ok(()) => assert!(worked, "no failure"),
        Err(error) if error.is_stream_failed() && !error.is_device_lost() => assert!(!worked, "a failure"),
        Err(other) => panic!("{other}"),
    };
    let (reservations, handles) = (real.reservations.len(), real.handles.len());
    let step = step.within(reservations, handles);
    match step {
        Step::Reserve => {
            real.reservations.push(device.reserve(PAGES * PAGE).expect("addresses"));
            twin.reservations.push([None; PAGES as usize]);
        }
        Step::DropReservation(which) if which < reservations => {
            drop(real.reservations.remove(which));
            twin.reservations.remove(which);
        }
        Step::Create(pages) => {
            let fits = twin.taken() + pages * PAGE <= CAPACITY * PAGE;
            match device.create_physical(&AllocationRequest::new(pages * PAGE, Placement::Device)) {
                Ok(handle) => {
                    assert!(pages > 0 && fits);
                    real.handles.push(handle);
                    twin.handles.push(twin.memory.len());
                    twin.memory.push((vec![0; (pages * PAGE) as usize], 1));
                }
                Err(BackendError::OutOfMemory { .. }) => assert!(!fits),
                Err(other) => assert!(pages == 0, "{other}"),
            }
        }
        Step::DropHandle(which) if which < handles => {
            drop(real.handles.remove(which));
            let memory = twin.handles.remove(which);
            twin.memory[memory].1 -= 1;
        }
        Step::Map(reservation, at, handle) if reservation < reservations && handle < handles => {
            let answer = device.map(&real.reservations[reservation], at * PAGE, &real.handles[handle]);
            refused(twin.map(reservation, at, handle), answer);
        }
        Step::SetAccess(reservation, range) if reservation < reservations => {
            let (at, pages) = twin.pages(reservation, range);
            let answer = device.set_access(&real.reservations[reservation], at * PAGE, pages * PAGE);
            let whole = twin.whole(reservation, at, pages);
            refused(whole.is_some(), answer);
            whole.into_iter().flatten().flatten().for_each(|page| page.accessible = true);
        }
        Step::Unmap(reservation, range) if reservation < reservations => {
            let (at, pages) = twin.pages(reservation, range);
            let answer = device.unmap(&real.reservations[reservation], at * PAGE, pages * PAGE);
            let whole = twin.whole(reservation, at, pages);
            refused(whole.is_some(), answer);
            whole.into_iter().flatten().for_each(|page| *page = None);
        }
        Step::Fill(reservation, at, bytes, value) if reservation < reservations => {
            let bytes = bytes.min(PAGES * PAGE - at);
            let places = twin
                .bytes(reservation, at, bytes)
                .filter(|places| places.iter().collect::<HashSet<_>>().len() == places.len());
            let memory = &real.reservations[reservation];
            let answer =
                real.work(|stream| device.fill(stream, RegionMut::new(memory, at, bytes, stream)?, value));
            failed(places.is_some(), answer);
            for (memory, offset) in places.into_iter().flatten() {
                twin.memory[memory].0[offset] = value;
            }
        }
        Step::Copy((from, start), (to, end), bytes) if from < reservations && to < reservations => {
            let bytes = bytes.min(PAGES * PAGE - start.max(end));
            let source = twin.bytes(from, start, bytes);
            let destination = twin.bytes(to, end, bytes);
            let both = source.zip(destination).filter(|(source, destination)| {
                let written: HashSet<_> = destination.iter().collect();
                written.len() == destination.len() && source.iter().all(|place| !written.contains(place))
            });
            let [from_memory, to_memory] = [&real.reservations[from], &real.reservations[to]];
            let answer = real.work(|stream| {
                let source = Region::new(from_memory, start, bytes, stream)?;
                device.copy(stream, source, RegionMut::new(to_memory, end, bytes, stream)?)
            });
            if from == to && bytes > 0 && start.abs_diff(end) < bytes {
                return refused(false, answer);
            }
            COPIES[usize::from(both.is_some())].fetch_add(1, Ordering::Relaxed);
            failed(both.is_some(), answer);
            for ((from, start), (to, end)) in both.into_iter().flat_map(|(from, to)| from.into_iter().zip(to))
            {
                twin.memory[to].0[end] = twin.memory[from].0[start];
            }
        }
        Step::Fault(which) if reservations > 0 && handles > 0 => {
            let call = FAULTS[which];
            device.faults().fail_nth(call, 1);
            let (reservation, handle) = (&real.reservations[0], &real.handles[0]);
            let answer = match call {
                Call::Reserve => device.reserve(PAGE).map(drop),
                Call::CreatePhysical => {
                    device.create_physical(&AllocationRequest::new(PAGE, Placement::Device)).map(drop)
                }
                Call::Map => device.map(reservation, 0, handle),
                Call::SetAccess => device.set_access(reservation, 0, PAGE),
                _ => device.unmap(reservation, 0, PAGE),
            };
            assert!(matches!(answer, Err(BackendError::Driver { code: -1, .. })), "{call:?}: {answer:?}");
        }
        // Of what is not there.
        _ => {}
    }
}

/// Every byte that is there is the twin's, and the accounts are.
fn compare(real: &Real, twin: &Twin) {
    let free = real.device.memory_info().expect("no fault").free_bytes;
    assert_eq!(free, CAPACITY * PAGE - twin.taken(), "memory is not counted once");
    for (index, memory) in real.reservations.iter().enumerate() {
        for page in 0..PAGES {
            let mut bytes = vec![0; PAGE as usize];
            let answer = real.work(|stream| {
                real.device.download(stream, Region::new(memory, page * PAGE, PAGE, stream)?, &mut bytes)
            });
            match twin.bytes(index, page * PAGE, PAGE) {
                None => assert!(answer.is_err(), "page {page} is there"),
                Some(places) => {
                    answer.expect("there");
                    let same = |(&byte, &(memory, offset)): (&u8, &(usize, usize))| {
                        byte == twin.memory[memory].0[offset]
                    };
                    assert!(bytes.iter().zip(&places).all(same), "page {page} is not the twin's");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    fn every_sequence_of_calls_is_the_twins(steps in prop::collection::vec(step(), 1..120)) {
        let (mut real, mut twin) = (Real::new(), Twin::default());
        // So that there is something to work on from the beginning.
        let first = [
            Step::Reserve, Step::Reserve, Step::Create(3), Step::Map(0, 1, 0), Step::SetAccess(0, Range::Mapping(1)),
        ];
        for step in first.into_iter().chain(steps) {
            take(step, &mut real, &mut twin);
        }
        compare(&real, &twin);
        let device = real.device.clone();
        prop_assert_eq!(device.races(), 0);
        drop(real);
        prop_assert_eq!(device.memory_info().expect("no fault").free_bytes, CAPACITY * PAGE);
    }
}

#[test]
fn it_is_a_table_of_pages() {
    every_sequence_of_calls_is_the_twins();
    let copies = COPIES.each_ref().map(|copies| copies.load(Ordering::Relaxed));
    eprintln!("copies that failed and that were done: {copies:?}");
    assert!(copies.iter().all(|&copies| copies > 30), "too few to say anything");
}
