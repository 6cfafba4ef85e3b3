//! Requests and frees that were served under a limit are served under it again, any number of times, from any state in
//! which nothing is live.
//!
//! Of sources where the place of a block does not decide: the device, its driver's pool, and an arena whose blocks may
//! be moved; and of virtual memory of which all was released. Other virtual memory may refuse a later pass under a
//! limit that is just enough for one, because it finds other blocks: of one stream, that takes a little more.
//!
//! Each random sequence gets the smallest limit that serves it once from a new pool, found by bisection. One pool then
//! serves it ten times under that limit, also after another sequence, after a trim, and after a restart of the peaks.

use fastrand::Rng;
use vrampool::host::{Backend, HostDevice, HostStream};
use vrampool::{Buffer, Pool, SizeClasses, Source};
use vrampool_test_support as _;

/// Passes of a sequence at its smallest limit.
const PASSES: u32 = 10;

/// Streams of a device, on which no work runs. Of virtual memory one is used: with several, what is known of their work
/// decides where a block is.
const STREAMS: usize = 3;

/// Pages above the smallest limit with which virtual memory serves all passes, if they are more than 2 % of it.
const SPARE: u64 = 3;

/// Number of random sequences for each source: 1,000 by `VRAMPOOL_TEST_SEQUENCES`.
fn sequences() -> u64 {
    let count = std::env::var("VRAMPOOL_TEST_SEQUENCES").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(12)
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Allocate { bytes: u64, stream: usize },
    // Frees one of the live buffers, after it was used on another stream if one is set.
    Free { which: usize, user: Option<usize> },
}

/// Draws the sizes of a sequence, in units of a quarter of a page.
fn sizes(random: &mut Rng, page: u64) -> impl Fn(&mut Rng) -> u64 + use<> {
    let kind = random.u8(..4);
    let few: Vec<u64> = (0..random.usize(2..9)).map(|_| random.u64(1..24 * page)).collect();
    move |random| match kind {
        0 => few[random.usize(..few.len())],
        // They never repeat.
        1 => random.u64(1..30 * page),
        // Powers of two, and up to a tenth more.
        2 => (page << random.u32(..6)) / 4 * random.u64(100..=110) / 100,
        // Small ones beside large ones.
        _ if random.u8(..10) < 7 => random.u64(1..page / 2),
        _ => random.u64(4 * page..40 * page),
    }
}

fn sequence(random: &mut Rng, page: u64) -> Vec<Step> {
    let draw = sizes(random, page);
    let streams = if random.bool() { 1 } else { STREAMS };
    // Newest first, oldest first, or any.
    let order = random.u8(..3);
    let (steps, most) = (random.usize(20..240), random.usize(4..40));
    let (mut live, mut steps_of) = (0, Vec::new());
    for _ in 0..steps {
        if live > 0 && (live >= most || random.f32() < 0.45) {
            let which = match order {
                0 => live - 1 - random.usize(..live.min(2)),
                1 => random.usize(..live.min(3)),
                _ => random.usize(..live),
            };
            live -= 1;
            let user = (streams > 1 && random.u8(..8) == 0).then(|| random.usize(..streams));
            steps_of.push(Step::Free { which, user });
        } else {
            live += 1;
            steps_of.push(Step::Allocate { bytes: draw(random), stream: random.usize(..streams) });
        }
    }
    steps_of
}

/// Serves a sequence, and frees what is left. Returns the number of the refused step, if any.
fn pass(pool: &Pool<HostDevice>, streams: &[HostStream], steps: &[Step]) -> Result<(), usize> {
    let mut live: Vec<Buffer<HostDevice>> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Allocate { bytes, stream } => {
                match pool.allocate(bytes, &streams[stream % streams.len()]) {
                    Ok(buffer) => live.push(buffer),
                    Err(error) if error.is_out_of_memory() => return Err(number),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Free { which, user } => {
                let buffer = live.remove(which);
                if let Some(user) = user {
                    buffer.record_stream(&streams[user % streams.len()]).expect("a stream of the device");
                }
            }
        }
    }
    Ok(())
}

/// A source, and a device with memory of its granularity.
struct Scene {
    device: HostDevice,
    streams: Vec<HostStream>,
    page: u64,
    source: Source,
    classes: SizeClasses,
}

impl Scene {
    fn new(source: Source, classes: SizeClasses) -> Self {
        // A pool over virtual memory keeps classes up to a quarter of a GPU's page.
        let (page, streams) = if source == Source::Virtual { (2 << 20, 1) } else { (1 << 16, STREAMS) };
        let device = HostDevice::builder().memory_limit(1 << 40).granularity(page).build();
        let streams = (0..streams).map(|_| device.create_stream().expect("a stream")).collect();
        Self { device, streams, page, source, classes }
    }

    fn pool(&self, limit: u64) -> Pool<HostDevice> {
        let pool = Pool::builder(&self.device).source(self.source).size_classes(self.classes.clone());
        pool.limit(limit).build().expect("a pool")
    }

    fn serves(&self, limit: u64, steps: &[Step]) -> bool {
        pass(&self.pool(limit), &self.streams, steps).is_ok()
    }

    /// The smallest limit that serves a sequence once: a page less does not. Whole pages in a range of pages.
    fn smallest_limit(&self, steps: &[Step]) -> u64 {
        let unit = self.page / 16;
        let (mut too_little, mut enough) = (0, 64);
        while !self.serves(enough * unit, steps) {
            (too_little, enough) = (enough, enough * 2);
        }
        while enough - too_little > 1 {
            let middle = too_little.midpoint(enough);
            match self.serves(middle * unit, steps) {
                true => enough = middle,
                false => too_little = middle,
            }
        }
        enough * unit
    }

    /// Describes the first refusal of ten passes at the smallest limit, or little above it, if any.
    fn refusal(&self, seed: u64) -> Option<String> {
        let mut random = Rng::with_seed(seed);
        let steps = sequence(&mut random, self.page);
        let other = sequence(&mut random, self.page);
        let least = self.smallest_limit(&steps);
        let limit = match self.source {
            Source::Virtual => least + (least / 50).max(SPARE * self.page),
            _ => least,
        };
        let pool = self.pool(limit);
        for number in 0..PASSES {
            match number {
                // It may be refused, and leaves what it leaves.
                4 | 5 => _ = pass(&pool, &self.streams, &other),
                7 => _ = pool.trim().expect("no fault"),
                8 => pool.reset_peaks(),
                _ => {}
            }
            if let Err(step) = pass(&pool, &self.streams, &steps) {
                let (of, pages) = (steps.len(), limit / self.page);
                return Some(format!("seed {seed}: pass {number}, step {step} of {of}, {pages} pages"));
            }
        }
        None
    }

    fn check(&self) {
        let refusals: Vec<_> = (0..sequences()).filter_map(|seed| self.refusal(seed)).collect();
        assert!(refusals.is_empty(), "{} of {}: {refusals:#?}", refusals.len(), sequences());
    }
}

/// Checks a source with classes that do not borrow, and with those that do, in magazines and past them.
fn check(source: Source) {
    for classes in [SizeClasses::Fixed, SizeClasses::Geometric { per_doubling: 8, from: 1 << 12 }] {
        Scene::new(source, classes).check();
    }
}

#[test]
fn by_a_direct_source() {
    check(Source::Direct);
}

#[test]
fn by_a_drivers_pool() {
    check(Source::Driver);
}

#[test]
fn by_an_arena_of_fixed_size() {
    check(Source::Arena);
}

#[test]
fn by_virtual_memory() {
    check(Source::Virtual);
}

/// At the very limit.
#[test]
fn by_virtual_memory_of_which_all_was_released() {
    for classes in [SizeClasses::Fixed, SizeClasses::Geometric { per_doubling: 8, from: 1 << 12 }] {
        let scene = Scene::new(Source::Virtual, classes);
        for seed in 0..sequences() {
            let mut random = Rng::with_seed(seed);
            let [steps, other] = [(); 2].map(|()| sequence(&mut random, scene.page));
            let pool = scene.pool(scene.smallest_limit(&steps));
            for number in 0..PASSES {
                assert_eq!(pass(&pool, &scene.streams, &steps), Ok(()), "seed {seed}: pass {number}");
                // It may be refused.
                let _ = pass(&pool, &scene.streams, &other);
                pool.trim().expect("no fault");
            }
        }
    }
}

/// A small request gets idle memory of other small ones before it divides the memory of large ones.
#[test]
fn by_virtual_memory_without_a_small_block_among_large_ones() {
    const KIB: u64 = 1 << 10;
    let scene = Scene::new(Source::Virtual, SizeClasses::Multiple(64 * KIB));
    let (stream, pool) = (&scene.streams[0], scene.pool(3 * scene.page));
    let allocate = |kib: u64| pool.allocate(kib * KIB, stream).expect("served before");
    for _ in 0..PASSES {
        let _kept = allocate(64);
        let small = allocate(512);
        let _large = allocate(4096);
        drop(small);
        // They leave the page of small requests full of idle memory.
        drop([128; 15].map(allocate));
    }
}

/// The smaller sizes come first in the second round, and find blocks of the larger ones alone.
#[test]
fn a_round_in_another_order() {
    const MIB: u64 = 1 << 20;
    let scene = Scene::new(Source::Direct, SizeClasses::GEOMETRIC);
    let stream = &scene.streams[0];
    for (limit, expected) in [(Some(288), 0), (Some(300), 3), (None, 8)] {
        let pool = Pool::builder(&scene.device).size_classes(SizeClasses::GEOMETRIC);
        let pool = pool.limit(limit.map(|limit| limit * MIB)).build().expect("a pool");
        let allocate = |sizes: &[u64]| -> Vec<_> {
            let all = sizes.iter().flat_map(|size| [size * MIB; 8]);
            all.map(|size| pool.allocate(size, stream).expect("served before")).collect()
        };
        drop(allocate(&[20, 16]));
        for _ in 0..2 {
            pool.trim().expect("no fault");
            drop(allocate(&[20]));
            let round = allocate(&[16, 20]);
            let borrowed = round[..8].iter().filter(|buffer| buffer.capacity() == 20 * MIB).count();
            assert_eq!(borrowed, expected, "{limit:?} MiB");
        }
    }
}
