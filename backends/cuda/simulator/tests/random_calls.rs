//! Random calls of several threads, right and wrong: each returns a code of CUDA's header, the simulated
//! driver neither stops nor fails by itself, and all that there was is released in the end.

#[allow(dead_code, reason = "the facts call more functions than this")]
#[path = "facts/driver.rs"]
mod driver;

use driver::{Access, Code, Driver, Location, PhysicalProperties, SUCCESS, UNKNOWN};
use fastrand::Rng;
use std::collections::HashSet;
use std::ptr::null;
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use vrampool_cuda_simulator_control::Simulator;

const THREADS: u64 = 4;
const CALLS: usize = 50_000;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;
/// Bytes of an allocation, at most, and of a page of virtual memory.
const MOST: usize = 2 << 20;
/// After this time the driver counts as blocked for ever.
const LIMIT: Duration = Duration::from_secs(300);

/// Handles that all threads use, live and dead ones.
#[derive(Default)]
struct Handles {
    streams: Mutex<Vec<usize>>,
    events: Mutex<Vec<usize>>,
    graphs: Mutex<Vec<usize>>,
    programs: Mutex<Vec<usize>>,
    pools: Mutex<Vec<usize>>,
}

/// A handle that was made at some time, null, or a number that never was one.
fn some(rng: &mut Rng, handles: &Mutex<Vec<usize>>) -> usize {
    let handles = handles.lock().expect("no panic");
    match rng.u8(..20) {
        0 => 0,
        1 => 0xdead_0000,
        _ if handles.is_empty() => 0,
        _ => handles[rng.usize(..handles.len())],
    }
}

fn keep(handles: &Mutex<Vec<usize>>, code: Code, handle: usize) -> Code {
    if code == SUCCESS {
        handles.lock().expect("no panic").push(handle);
    }
    code
}

/// Memory is the thread's own, so that no other frees what a call is about to touch.
struct Memory {
    blocks: Vec<(u64, usize)>,
    /// Allocations of a pool. `cuMemFree` does not wait for their work, so this test does not use it for them.
    pooled: HashSet<u64>,
    /// Kept to the end: a shared stream may be captured, and the graph launched at any time.
    kept: Vec<(u64, usize)>,
    ranges: Vec<Range>,
}

impl Memory {
    fn new(driver: &Driver) -> Self {
        let mut kept = Vec::new();
        for bytes in [1, 4096, MOST] {
            let mut made = 0;
            assert_eq!(driver.cuMemAlloc_v2(&mut made, bytes), SUCCESS);
            kept.push((made, bytes));
        }
        Self { blocks: Vec::new(), pooled: HashSet::new(), kept, ranges: Vec::new() }
    }
}

struct Range {
    start: u64,
    pages: u64,
    mapped: Vec<u64>,
}

struct Caller<'a> {
    driver: &'a Driver,
    handles: &'a Handles,
    memory: Memory,
    rng: Rng,
}

impl Caller<'_> {
    fn step(&mut self) -> Code {
        match self.rng.u8(..100) {
            0..45 => self.stream_or_event(),
            45..60 => self.capture(),
            60..85 => self.block(),
            _ => self.range(),
        }
    }

    fn stream_or_event(&mut self) -> Code {
        let (driver, rng) = (self.driver, &mut self.rng);
        let (stream, event) = (some(rng, &self.handles.streams), some(rng, &self.handles.events));
        let mut made = 0;
        match rng.u8(..40) {
            0..2 => {
                let code = driver.cuStreamCreate(&mut made, u32::from(rng.u8(..3)));
                keep(&self.handles.streams, code, made)
            }
            2 => driver.cuStreamDestroy_v2(stream),
            3..6 => {
                let code = driver.cuEventCreate(&mut made, u32::from(rng.u8(..4)));
                keep(&self.handles.events, code, made)
            }
            6 => driver.cuEventDestroy_v2(event),
            7..15 => driver.cuEventRecord(event, stream),
            15..22 => driver.cuStreamWaitEvent(stream, event, u32::from(rng.u8(..2))),
            22..26 => driver.cuEventQuery(event),
            26..29 => driver.cuStreamQuery(stream),
            29 => driver.cuStreamSynchronize(stream),
            30 => driver.cuEventSynchronize(event),
            31 => driver.cuCtxSynchronize(),
            32 => driver.cuStreamGetId(stream, &mut 0),
            33 => driver.cuStreamGetCtx(stream, &mut 0),
            34 => driver.cuEventElapsedTime(&mut 0.0, event, some(rng, &self.handles.events)),
            35 => driver.cuStreamGetPriority(stream, &mut 0),
            36 => driver.cuStreamGetFlags(stream, &mut 0),
            37 => driver.cuDevicePrimaryCtxGetState(rng.i32(-1..3), &mut 0, &mut 0),
            38 => driver.cuMemGetInfo_v2(&mut 0, &mut 0),
            _ => driver.cuDeviceCanAccessPeer(&mut 0, rng.i32(-1..3), rng.i32(-1..3)),
        }
    }

    fn capture(&mut self) -> Code {
        let (driver, rng) = (self.driver, &mut self.rng);
        let stream = some(rng, &self.handles.streams);
        let mut made = 0;
        match rng.u8(..16) {
            0..3 => driver.cuStreamBeginCapture_v2(stream, rng.i32(-1..4)),
            3..9 => {
                let code = driver.cuStreamEndCapture(stream, &mut made);
                if made == 0 { code } else { keep(&self.handles.graphs, code, made) }
            }
            9 => driver.cuStreamIsCapturing(stream, &mut 0),
            10 => driver.cuThreadExchangeStreamCaptureMode(&mut rng.i32(-1..4)),
            11..13 => {
                let graph = some(rng, &self.handles.graphs);
                let code = driver.cuGraphInstantiateWithFlags(&mut made, graph, 0);
                keep(&self.handles.programs, code, made)
            }
            13 => driver.cuGraphDestroy(some(rng, &self.handles.graphs)),
            14 => driver.cuGraphExecDestroy(some(rng, &self.handles.programs)),
            _ => driver.cuGraphLaunch(some(rng, &self.handles.programs), stream),
        }
    }

    fn block(&mut self) -> Code {
        let (driver, rng, blocks) = (self.driver, &mut self.rng, &mut self.memory.blocks);
        let (stream, pool) = (some(rng, &self.handles.streams), some(rng, &self.handles.pools));
        // Memory that a capture allocates or frees is its graph's: only streams that are never captured do so
        // here.
        let plain = [0, PER_THREAD][rng.usize(..2)];
        let bytes = rng.usize(..MOST);
        let mut made = 0;
        if blocks.len() < 8 && rng.u8(..3) == 0 {
            let call = rng.u8(..4);
            let code = match call {
                0 => driver.cuMemAllocAsync(&mut made, bytes, plain),
                1 => driver.cuMemAllocFromPoolAsync(&mut made, bytes, pool, plain),
                2 => driver.cuMemAllocManaged(&mut made, bytes, u32::from(rng.u8(..4))),
                _ => driver.cuMemAlloc_v2(&mut made, bytes),
            };
            if code == SUCCESS {
                blocks.push((made, bytes));
                if call < 2 {
                    self.memory.pooled.insert(made);
                }
            }
            return code;
        }
        let (stream, touched) = match rng.bool() {
            true => (stream, &self.memory.kept),
            false => (plain, &*blocks),
        };
        let Some(&(from, room)) = rng.choice(touched) else { return SUCCESS };
        let Some(&(to, wide)) = rng.choice(touched) else { return SUCCESS };
        match rng.u8(..12) {
            0..2 => {
                if blocks.is_empty() {
                    return SUCCESS;
                }
                let index = rng.usize(..blocks.len());
                let (address, _) = blocks[index];
                let code = match self.memory.pooled.contains(&address) || rng.bool() {
                    true => driver.cuMemFreeAsync(address, plain),
                    false => driver.cuMemFree_v2(address),
                };
                if code == SUCCESS {
                    blocks.swap_remove(index);
                    self.memory.pooled.remove(&address);
                }
                code
            }
            2..6 => driver.cuMemsetD8Async(from, rng.u8(..), room.min(bytes), stream),
            6..10 => driver.cuMemcpyAsync(to, from, room.min(wide), stream),
            10 => driver.cuMemGetAddressRange_v2(&mut 0, &mut 0, from.wrapping_add(bytes as u64)),
            _ => driver.cuPointerGetAttribute(&mut 0, rng.i32(..20), from),
        }
    }

    fn range(&mut self) -> Code {
        let (driver, rng, ranges) = (self.driver, &mut self.rng, &mut self.memory.ranges);
        let (page, mut made) = (MOST as u64, 0);
        let on_device = |id| Location { kind: 1, id };
        if ranges.len() < 3 && rng.bool() {
            let pages = rng.u64(..5);
            let code = driver.cuMemAddressReserve(&mut made, (pages * page) as usize, 0, 0, 0);
            if code == SUCCESS {
                ranges.push(Range { start: made, pages, mapped: Vec::new() });
            }
            return code;
        }
        if ranges.is_empty() {
            return SUCCESS;
        }
        let index = rng.usize(..ranges.len());
        let range = &mut ranges[index];
        let at = rng.u64(..range.pages + 1);
        match rng.u8(..8) {
            0..3 => {
                let properties =
                    PhysicalProperties { kind: 1, location: on_device(0), ..PhysicalProperties::default() };
                let code = driver.cuMemCreate(&mut made, page as usize, &properties, 0);
                if code != SUCCESS {
                    return code;
                }
                let code = driver.cuMemMap(range.start + at * page, page as usize, 0, made, 0);
                assert_eq!(driver.cuMemRelease(made), SUCCESS, "it was created");
                if code == SUCCESS {
                    range.mapped.push(at);
                }
                code
            }
            3..5 => {
                let access = Access { location: on_device(rng.i32(..3)), flags: rng.i32(..4) };
                driver.cuMemSetAccess(range.start + at * page, page as usize, &access, 1)
            }
            5 => {
                let code = driver.cuMemUnmap(range.start + at * page, page as usize);
                if code == SUCCESS {
                    range.mapped.retain(|&mapped| mapped != at);
                }
                code
            }
            6 => {
                let code = driver.cuMemAddressFree(range.start, (range.pages * page) as usize);
                if code == SUCCESS {
                    ranges.swap_remove(index);
                }
                code
            }
            _ => driver.cuMemRetainAllocationHandle(&mut made, range.start + range.pages * page),
        }
    }

    /// Releases everything that this thread holds.
    fn finish(self) {
        let Self { driver, memory, .. } = self;
        for (address, _) in memory.blocks.into_iter().chain(memory.kept) {
            assert_eq!(driver.cuMemFree_v2(address), SUCCESS, "{address:#x} is live");
        }
        for range in memory.ranges {
            for page in range.mapped {
                let address = range.start + page * MOST as u64;
                assert_eq!(driver.cuMemUnmap(address, MOST), SUCCESS, "{address:#x} is mapped");
            }
            let bytes = range.pages as usize * MOST;
            assert_eq!(driver.cuMemAddressFree(range.start, bytes), SUCCESS, "{:#x}", range.start);
        }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

fn is_of_the_header(driver: &Driver, code: Code) -> bool {
    let mut name = null();
    driver.cuGetErrorName(code.0, &mut name) == SUCCESS && code != UNKNOWN
}

#[test]
fn random_calls_are_answered_and_leave_nothing() {
    let Some(simulator) = Simulator::or_skip() else { return };
    let driver = Driver::open().expect("it is loaded");
    let seed = std::env::var("VRAMPOOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    assert_eq!(driver.cuInit(0), SUCCESS);
    let mut context = 0;
    assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, 0), SUCCESS);
    // Random calls race, by design.
    let expected = simulator.expect_reports();
    let handles = Handles::default();
    let (done, all) = mpsc::channel();
    assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
    // Before the first capture, which forbids it.
    let memories: Vec<_> = (0..THREADS).map(|_| Memory::new(&driver)).collect();
    let mut callers = std::thread::scope(|scope| {
        for (thread, memory) in (0..THREADS).zip(memories) {
            let (driver, handles, done) = (&driver, &handles, done.clone());
            scope.spawn(move || {
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                let rng = Rng::with_seed(seed * THREADS + thread);
                let mut caller = Caller { driver, handles, memory, rng };
                for call in 0..CALLS {
                    let code = caller.step();
                    assert!(
                        is_of_the_header(driver, code),
                        "call {call} of thread {thread}, seed {seed}: {code}"
                    );
                }
                done.send(caller).expect("the test waits");
            });
        }
        let mut callers = Vec::new();
        while callers.len() < THREADS as usize {
            callers.push(all.recv_timeout(LIMIT).unwrap_or_else(|_| {
                eprintln!("seed {seed}: a thread failed, or has not come to its end within {LIMIT:?}");
                std::process::abort()
            }));
        }
        callers
    });
    // Whatever was captured ends with its stream.
    let streams = std::mem::take(&mut *handles.streams.lock().expect("no panic"));
    for stream in streams {
        driver.cuStreamDestroy_v2(stream);
    }
    assert_eq!(driver.cuCtxSynchronize(), SUCCESS);
    for caller in callers.drain(..) {
        caller.finish();
    }
    type Destroy = fn(&Driver, usize) -> Code;
    let rest: [(_, Destroy); 3] = [
        (&handles.events, Driver::cuEventDestroy_v2),
        (&handles.programs, Driver::cuGraphExecDestroy),
        (&handles.graphs, Driver::cuGraphDestroy),
    ];
    for (handles, destroy) in rest {
        for &handle in &*handles.lock().expect("no panic") {
            destroy(&driver, handle);
        }
    }
    drop(expected);
    let mut address = 0;
    assert_eq!(driver.cuMemAlloc_v2(&mut address, MOST), SUCCESS);
    assert_eq!(driver.cuMemsetD8_v2(address, 7, MOST), SUCCESS);
    assert_eq!(driver.cuCtxSynchronize(), SUCCESS);
    assert_eq!(driver.cuMemFree_v2(address), SUCCESS);
    assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    assert_eq!(simulator.leaks(), Vec::<String>::new());
}
