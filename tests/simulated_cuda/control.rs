//! The simulator's control functions: a held stream is held, and leaks at the end are reported.

use crate::simulated::Simulated;
use std::process::{Output, Stdio};
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Event, Pool};
use vrampool_test_support::test_again;

/// Says to a process of these tests which part to do; [`ended`] starts it.
const PART: &str = "VRAMPOOL_TEST_PART";

fn raw(stream: &CudaStream) -> usize {
    stream.cudarc().cu_stream() as usize
}

#[test]
fn a_held_stream_runs_nothing_until_it_is_released() {
    let Some(Simulated { simulator, device, _alone }) = Simulated::open() else { return };
    let (held, free) = (device.create_stream().expect("a stream"), device.create_stream().expect("a stream"));
    let pool = Pool::builder(&device).build().expect("a pool");
    let mut held_buffer = pool.allocate(4096, &held).expect("memory");
    let mut free_buffer = pool.allocate(4096, &free).expect("memory");
    for round in 1..=100u8 {
        simulator.hold(raw(&held));
        device.fill(&held, held_buffer.on_mut(&held).expect("a region"), round).expect("queued");
        device.fill(&free, free_buffer.on_mut(&free).expect("a region"), round).expect("queued");
        let (held_event, free_event) =
            (device.record(&held).expect("an event"), device.record(&free).expect("an event"));
        device.synchronize(&free).expect("no fault");
        assert!(free_event.is_complete().expect("no fault"), "the other stream goes on");
        assert!(!held_event.is_complete().expect("no fault"), "nothing of a held stream is done");
        simulator.release(raw(&held));
        device.synchronize(&held).expect("no fault");
        assert!(held_event.is_complete().expect("no fault"));
        let mut bytes = [0; 4096];
        held_buffer.read(&mut bytes, &held).expect("no fault");
        assert_eq!(bytes, [round; 4096]);
    }
}

#[test]
fn leaks_at_the_end_of_a_process_are_reported() {
    let Some(simulated) = Simulated::open() else { return };
    drop(simulated);
    let clean = ended("clean");
    assert!(clean.status.success(), "{clean:?}");
    let leaking = ended("leaking");
    let text = String::from_utf8_lossy(&leaking.stderr).into_owned();
    assert!(!leaking.status.success(), "strict mode ends the process: {text}");
    assert!(text.contains("at the process's end there are left"), "{text}");
}

/// The processes that the test above starts.
#[test]
fn end() {
    let Ok(part) = std::env::var(PART) else { return };
    let Some(Simulated { device, .. }) = Simulated::open() else { return };
    let work = |device: &CudaDevice| {
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(device).build().expect("a pool");
        let mut buffer = pool.allocate(1 << 20, &stream).expect("memory");
        device.fill(&stream, buffer.on_mut(&stream).expect("a region"), 1).expect("queued");
        device.synchronize(&stream).expect("no fault");
        buffer
    };
    match part.as_str() {
        "clean" => drop(work(&device)),
        _ => std::mem::forget(work(&device)),
    }
}

/// The end of a process that did this part.
fn ended(part: &str) -> Output {
    let simulator = std::env::var("VRAMPOOL_SIMULATOR").unwrap_or_default();
    test_again("control::end")
        .env(PART, part)
        .env("VRAMPOOL_SIMULATOR", format!("{simulator},strict=1,leaks=1"))
        .stdout(Stdio::null())
        .output()
        .expect("it starts")
}
