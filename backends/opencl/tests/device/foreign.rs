//! Other people's contexts, queues and kernels: counted right, and known again.

use crate::{BYTES, all_devices, fill, memory, read};
use opencl3::command_queue::{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::device::Device;
use std::time::{Duration, Instant};
use vrampool_opencl::{Backend, BackendError, OpenClDevice, OpenClStream, Stream};
use vrampool_test_support::BackendExt;

fn wrap(device: &OpenClDevice, queue: &CommandQueue) -> Result<OpenClStream, BackendError> {
    // SAFETY: the queue exists.
    unsafe { device.wrap_queue(queue.get()) }
}

fn context_of(device: &OpenClDevice) -> (Context, OpenClDevice) {
    let theirs = Context::from_device(&Device::new(device.device())).expect("a context");
    // SAFETY: the context exists, and so does the device.
    let ours = unsafe { OpenClDevice::from_context(theirs.get(), device.device()) }.expect("a device");
    (theirs, ours)
}

#[test]
fn a_context_of_the_programs_is_kept_counted_and_known_again() {
    for device in all_devices() {
        let (theirs, ours) = context_of(&device);
        assert_ne!(ours.id(), device.id(), "another context is another device to a pool");
        assert_eq!(ours.listed(), device.listed());
        // SAFETY: the context exists, and so does the device.
        let again = unsafe { OpenClDevice::from_context(theirs.get(), device.device()) }.expect("a device");
        assert_eq!(again.id(), ours.id());
        let counted = theirs.reference_count().expect("a count");
        drop(again);
        assert_eq!(theirs.reference_count().expect("a count"), counted, "one handle holds as much as two");
        drop(theirs);
        let stream = ours.create_stream().expect("the context outlives its owner");
        let memory = memory(&ours);
        fill(&ours, &stream, &memory, 7);
        assert_eq!(read(&ours, &stream, &memory), vec![7; BYTES as usize]);
    }
}

#[test]
fn objects_of_a_context_are_released() {
    for device in all_devices() {
        let theirs = Context::from_device(&Device::new(device.device())).expect("a context");
        let before = theirs.reference_count().expect("a count");
        // SAFETY: the context exists, and so does the device.
        let ours = unsafe { OpenClDevice::from_context(theirs.get(), device.device()) }.expect("a device");
        let stream = ours.stream();
        let memory = memory(&ours);
        fill(&ours, &stream, &memory, 7);
        ours.synchronize(&stream).expect("a wait");
        let event = ours.record(&stream).expect("an event");
        ours.synchronize(&stream).expect("a wait");
        drop((stream, memory, event, ours));
        // Another test that opens a device looks at all that are open, and may hold this one for a moment. NVIDIA's
        // driver also takes some of its own references back later, from its threads.
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_back = loop {
            let is_back = theirs.reference_count().expect("a count") == before;
            if is_back || Instant::now() > deadline {
                break is_back;
            }
            std::thread::yield_now();
        };
        assert!(is_back, "{} counts, {before} before", theirs.reference_count().expect("a count"));
    }
}

fn queue_of(context: &Context, properties: u64) -> CommandQueue {
    #[allow(deprecated, reason = "its successor is of OpenCL 2.0")]
    CommandQueue::create_default(context, properties).expect("a queue")
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, BackendError>) {
    assert!(matches!(answer, Err(BackendError::InvalidArgument { .. })), "{answer:?}");
}

#[test]
fn a_queue_has_one_id_however_often_it_is_wrapped() {
    for device in all_devices() {
        let (theirs, ours) = context_of(&device);
        let queue = queue_of(&theirs, 0);
        let stream = wrap(&ours, &queue).expect("a stream");
        assert_eq!(wrap(&ours, &queue).expect("a stream").id(), stream.id());
        let own = ours.stream();
        assert_ne!(own.id(), stream.id());
        let memory = memory(&ours);
        let before = queue.reference_count().expect("a count");
        drop(stream);
        assert_eq!(queue.reference_count().expect("a count"), before - 1);
        let stream = wrap(&ours, &queue).expect("a stream");
        drop(queue);
        fill(&ours, &stream, &memory, 3);
        assert_eq!(read(&ours, &stream, &memory)[0], 3, "the queue outlives its owner");
    }
}

#[test]
fn a_queue_that_runs_work_out_of_order_is_refused() {
    for device in all_devices() {
        let (theirs, ours) = context_of(&device);
        assert_refused(wrap(&ours, &queue_of(&theirs, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)));
    }
}

#[test]
fn objects_of_another_context_are_refused() {
    for device in all_devices() {
        let (theirs, ours) = context_of(&device);
        assert_refused(wrap(&device, &queue_of(&theirs, 0)));
        let (stream, other) = (ours.stream(), device.stream());
        let memory = memory(&device);
        assert_refused(device.wait(&other, &ours.record(&stream).expect("an event")));
        assert_refused(device.record(&stream));
        assert_refused(ours.fill(&stream, vrampool_opencl::RegionMut::whole(&memory, &stream), 1));
        assert_refused(ours.read_mapped(&memory, 0, &mut [0]));
    }
}

#[test]
fn an_opened_device_is_the_same_to_all() {
    for device in all_devices() {
        let again = OpenClDevice::open(device.listed().ordinal).expect("a device");
        assert_eq!((again.id(), again.context()), (device.id(), device.context()));
        // SAFETY: both are the device's own.
        let by_hand = unsafe { OpenClDevice::from_context(device.context(), device.device()) };
        assert_eq!(by_hand.expect("a device").id(), device.id());
        let own = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        assert_ne!(own.id(), device.id());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let same = OpenClDevice::open(device.listed().ordinal).expect("a device");
                    assert_eq!(same.id(), device.id());
                });
            }
        });
    }
}
