//! The detector reports each misuse that README.md lists, and nothing where the same is done well.

use crate::simulated::Simulated;
use std::cell::RefCell;
use vrampool::backend::AllocationRequest;
use vrampool::backend::VirtualMemory;
use vrampool::cuda::cudarc::driver::{result, sys};
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream};
use vrampool::{Backend, Memory, Placement, RegionMut};
use vrampool_test_support::test_again;

/// The case and the way that a process of these tests does; [`reports`] starts it.
const CASE: &str = "VRAMPOOL_TEST_CASE";
const BYTES: u64 = 64 << 10;

struct Case {
    name: &'static str,
    /// The text of a report.
    report: &'static str,
    /// Does it, well or not.
    run: fn(&CudaDevice, bool),
}

const CASES: [Case; 8] = [
    Case { name: "race", report: "race: cuMemsetD8Async", run: race },
    Case { name: "graph", report: "race: cuMemsetD8Async", run: race_through_a_graph },
    Case { name: "programs", report: "race: cuMemsetD8Async", run: race_of_programs },
    Case { name: "freed", report: "is freed while cuMemsetD8Async", run: freed },
    Case { name: "unmapped", report: "is unmapped while cuMemsetD8Async", run: unmapped },
    Case { name: "handle", report: "was destroyed, and its handle is used", run: destroyed_handle },
    Case { name: "overlap", report: "overlaps itself", run: overlapping_copy },
    Case { name: "thread", report: "while a thread's variables are destroyed", run: call_at_a_threads_end },
];

fn streams(device: &CudaDevice) -> [CudaStream; 2] {
    [(); 2].map(|()| device.create_stream().expect("a stream"))
}

fn memory(device: &CudaDevice) -> CudaMemory {
    device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory")
}

fn fill(device: &CudaDevice, stream: &CudaStream, memory: &CudaMemory) {
    device.fill(stream, RegionMut::whole(memory, stream), 1).expect("queued");
}

/// Orders what comes on `second` behind what is on `first`.
fn order(device: &CudaDevice, [first, second]: [&CudaStream; 2]) {
    let event = device.record(first).expect("an event");
    device.wait(second, &event).expect("queued");
}

fn race(device: &CudaDevice, well: bool) {
    let ([one, two], memory) = (streams(device), memory(device));
    fill(device, &one, &memory);
    if well {
        order(device, [&one, &two]);
    }
    fill(device, &two, &memory);
    device.synchronize_all().expect("no fault");
}

fn race_through_a_graph(device: &CudaDevice, well: bool) {
    let ([one, two], memory) = (streams(device), memory(device));
    one.cudarc().begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).expect("a capture");
    fill(device, &one, &memory);
    let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = one.cudarc().end_capture(flags).expect("a graph").expect("it has a node");
    // Ordered by the host.
    graph.launch().expect("queued");
    device.synchronize(&one).expect("no fault");
    fill(device, &two, &memory);
    if well {
        order(device, [&two, &one]);
    }
    graph.launch().expect("queued");
    device.synchronize_all().expect("no fault");
}

/// Launches of one program run one after the other, on any stream; those of two do not.
fn race_of_programs(device: &CudaDevice, well: bool) {
    let ([one, two], memory) = (streams(device), memory(device));
    let program = || {
        let (mut graph, mut program) = (std::ptr::null_mut(), std::ptr::null_mut());
        one.cudarc()
            .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)
            .expect("a capture");
        fill(device, &one, &memory);
        // SAFETY: the stream is this device's and captures; the call writes one handle.
        let ended = unsafe { sys::cuStreamEndCapture(one.cudarc().cu_stream(), &raw mut graph) };
        ended.result().expect("a graph");
        // SAFETY: the graph was captured above; the call writes one handle.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut program, graph, 0) };
        made.result().expect("a program");
        // SAFETY: the graph is this function's alone, and the program does not need it.
        unsafe { sys::cuGraphDestroy(graph) }.result().expect("its own");
        program
    };
    let first = program();
    let second = if well { first } else { program() };
    for (program, stream) in [(first, &one), (second, &two), (first, &one)] {
        // SAFETY: the program was instantiated above and is never destroyed while it runs.
        unsafe { sys::cuGraphLaunch(program, stream.cudarc().cu_stream()) }.result().expect("queued");
    }
    device.synchronize_all().expect("no fault");
    for program in if well { vec![first] } else { vec![first, second] } {
        // SAFETY: it is this function's alone, and nothing is pending.
        unsafe { sys::cuGraphExecDestroy(program) }.result().expect("its own");
    }
}

/// Memory of a pool, for whose work the driver does not wait.
fn freed(device: &CudaDevice, well: bool) {
    let [one, _] = streams(device);
    let (raw, bytes) = (one.cudarc().cu_stream(), BYTES as usize);
    // SAFETY: the context is current, and the stream alive.
    let pointer = unsafe { result::malloc_async(raw, bytes) }.expect("memory");
    // SAFETY: as above; the memory is there until it is freed below.
    unsafe { result::memset_d8_async(pointer, 1, bytes, raw) }.expect("queued");
    if well {
        device.synchronize(&one).expect("no fault");
    }
    // SAFETY: it was allocated above, and nothing names it later.
    unsafe { result::free_sync(pointer) }.expect("freed");
    let _ = device.synchronize(&one);
}

fn unmapped(device: &CudaDevice, well: bool) {
    let [one, _] = streams(device);
    let page = device.granularity(Placement::Device.into()).expect("virtual memory");
    let range = device.reserve(page).expect("addresses");
    device.create_and_map(&range, 0, &AllocationRequest::new(page, Placement::Device)).expect("mapped");
    fill(device, &one, &range);
    if well {
        device.synchronize(&one).expect("no fault");
    }
    device.unmap(&range, 0, page).expect("unmapped");
    let _ = device.synchronize(&one);
}

fn destroyed_handle(device: &CudaDevice, well: bool) {
    let [one, _] = streams(device);
    let raw = one.cudarc().cu_stream();
    let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).expect("an event");
    // SAFETY: the context is current; both are alive.
    unsafe { result::event::record(event, raw) }.expect("recorded");
    // SAFETY: as above; the driver destroys it when its work is done.
    unsafe { result::event::destroy(event) }.expect("destroyed");
    if !well {
        // SAFETY: none, for a driver. The simulated one knows that the handle is of nothing, and says so.
        unsafe { result::event::record(event, raw) }.expect_err("it is destroyed");
    }
}

fn overlapping_copy(device: &CudaDevice, well: bool) {
    let ([one, _], memory) = (streams(device), memory(device));
    let (from, half) = (memory.address().expect("an address"), BYTES / 2);
    let to = from + if well { half } else { half - 1 };
    // SAFETY: the context is current, the stream and the memory are alive, and both ranges inside.
    unsafe { result::memcpy_dtod_async(to, from, half as usize, one.cudarc().cu_stream()) }.expect("queued");
    device.synchronize(&one).expect("no fault");
}

/// Calls the driver when it is dropped.
struct CallsOnDrop(CudaDevice);

impl Drop for CallsOnDrop {
    fn drop(&mut self) {
        let _ = self.0.memory_info();
    }
}

thread_local! {
    static AT_THREAD_END: RefCell<Option<CallsOnDrop>> = const { RefCell::new(None) };
}

fn call_at_a_threads_end(device: &CudaDevice, well: bool) {
    let device = device.clone();
    let worker = std::thread::spawn(move || {
        // Before the thread's first call of the driver: so it is destroyed after what the driver has of it.
        AT_THREAD_END.set(Some(CallsOnDrop(device.clone())));
        device.memory_info().expect("figures");
        if well {
            drop(AT_THREAD_END.take());
        }
    });
    worker.join().expect("no panic");
}

#[test]
fn each_misuse_is_reported_and_its_good_twin_is_not() {
    let Some(simulated) = Simulated::open() else { return };
    drop(simulated);
    for Case { name, report, .. } in CASES {
        let (count, text) = reports(name, "well");
        assert_eq!(count, 0, "{name}: {text}");
        let (count, text) = reports(name, "badly");
        assert!(count > 0 && text.contains(report), "{name}: {text}");
    }
}

/// The processes that the test above starts.
#[test]
fn misuse() {
    let Ok(case) = std::env::var(CASE) else { return };
    let Some(Simulated { simulator, device, _alone }) = Simulated::open() else { return };
    device.context().bind_to_thread().expect("a context");
    let (name, way) = case.split_once(' ').expect("two words");
    let case = CASES.iter().find(|case| case.name == name).expect("a case");
    (case.run)(&device, way == "well");
    let (count, first) = simulator.reports();
    println!("\nreports {count} {first}");
}

/// The number of reports of a process that did `case` in this way, and the first one.
fn reports(case: &str, way: &str) -> (u64, String) {
    let simulator = std::env::var("VRAMPOOL_SIMULATOR").unwrap_or_default();
    let output = test_again("detector::misuse")
        .env(CASE, format!("{case} {way}"))
        .env("VRAMPOOL_SIMULATOR", format!("{simulator},strict=0,leaks=0"))
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("reports "));
    let (count, first) = line.and_then(|line| line.split_once(' ')).unwrap_or_else(|| panic!("{output:?}"));
    (count.parse().expect("a number"), first.to_owned())
}
