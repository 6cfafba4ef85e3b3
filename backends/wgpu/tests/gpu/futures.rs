//! Reading and waiting as futures.

use super::{BYTES, copy, fill, first_device, memory, own_device};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use vrampool_test_support::BackendExt;
use vrampool_wgpu::{Backend, BackendError, Event, Region, TestKernels, WgpuDevice, WgpuMemory, WgpuStream};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end. Nothing but its waker ends the wait.
fn block_on<T>(future: impl Future<Output = T> + Send) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

async fn read(device: &WgpuDevice, stream: &WgpuStream, memory: &WgpuMemory) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    device.read(stream, Region::whole(memory, stream), &mut bytes).await.expect("a read");
    bytes
}

#[test]
fn a_read_is_in_order_on_its_stream() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let (one, two) = (memory(&device), memory(&device));
    block_on(async {
        for value in 1..20 {
            fill(&device, &stream, &one, value);
            copy(&device, &stream, &one, &two);
            assert_eq!(read(&device, &stream, &two).await, [value; BYTES as usize]);
        }
    });
}

#[test]
fn work_is_done_when_finish_is_ready() {
    let Some(device) = first_device() else { return };
    let (stream, kernels) = (device.stream(), TestKernels::load(&device).expect("kernels"));
    let memory = memory(&device);
    block_on(async {
        for _ in 0..10 {
            kernels.occupy(&stream, vrampool_wgpu::RegionMut::whole(&memory, &stream), 2000).expect("work");
            let event = device.record(&stream).expect("an event");
            device.finish(&stream).await.expect("a wait");
            assert_eq!(event.is_complete(), Ok(true));
        }
        // With nothing enqueued.
        device.finish(&stream).await.expect("a wait");
    });
}

#[test]
fn tasks_of_several_threads_wait_at_once() {
    let Some(device) = first_device() else { return };
    thread::scope(|scope| {
        for value in 1..5 {
            let device = &device;
            scope.spawn(move || {
                let (stream, memory) = (device.stream(), memory(device));
                block_on(async {
                    for _ in 0..50 {
                        fill(device, &stream, &memory, value);
                        device.finish(&stream).await.expect("a wait");
                        assert_eq!(read(device, &stream, &memory).await, [value; BYTES as usize]);
                    }
                });
            });
        }
    });
}

#[test]
fn no_future_waits_for_a_lost_device() {
    let Some(device) = own_device(|_| ()) else { return };
    let (stream, memory) = (device.stream(), memory(&device));
    fill(&device, &stream, &memory, 1);
    device.device().destroy();
    let mut bytes = vec![0; BYTES as usize];
    let outcomes: [Result<(), BackendError>; 2] = block_on(async {
        [
            device.finish(&stream).await,
            device.read(&stream, Region::whole(&memory, &stream), &mut bytes).await,
        ]
    });
    for outcome in outcomes {
        assert!(outcome.as_ref().is_err_and(BackendError::is_device_lost), "{outcome:?}");
    }
}

#[test]
fn a_device_is_requested_as_it_is_opened() {
    let Some(device) = first_device() else { return };
    let requested = block_on(WgpuDevice::request(0)).expect("a device");
    assert_eq!(requested.id(), device.id());
    let error = block_on(WgpuDevice::request(usize::MAX)).expect_err("no such device");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "ordinal", .. }), "{error}");
}

#[test]
fn arguments_are_checked_as_in_a_download() {
    let Some(device) = first_device() else { return };
    let (stream, other) = (device.stream(), device.stream());
    let memory = memory(&device);
    block_on(async {
        let error = device.read(&stream, Region::whole(&memory, &stream), &mut [0; 4]).await;
        assert!(matches!(error, Err(BackendError::InvalidArgument { .. })), "{error:?}");
        let mut bytes = vec![0; BYTES as usize];
        let error = device.read(&stream, Region::whole(&memory, &other), &mut bytes).await;
        assert!(matches!(error, Err(BackendError::InvalidArgument { .. })), "{error:?}");
    });
}
