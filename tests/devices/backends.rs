//! Devices that are opened by name conform to the contract, and refuse objects of other backends.

use crate::there;
use vrampool::any::{self, AnyDevice};
use vrampool::backend::AllocationRequest;
use vrampool::backend::{Capabilities, conformance};
use vrampool::{Backend, BackendError, Error, Placement, Pool};

#[test]
fn every_device_conforms() {
    there::on_each(|there| {
        let report = conformance::check(&there.device).expect("conforms");
        eprintln!("{report}");
        // Skipped checks are those that the device does not support.
        let checks_of = [
            (Capabilities::COPY_WITHIN_MEMORY, 1),
            (Capabilities::HOST_VISIBLE, 1),
            (Capabilities::STREAM_ORDERED, 1),
            (Capabilities::CONCURRENT_STREAMS, 1),
            (Capabilities::VIRTUAL_MEMORY, 4),
            (Capabilities::SHARED_HANDLES, 1),
        ];
        let missing =
            checks_of.iter().filter(|(capability, _)| !there.can(*capability)).map(|(_, checks)| checks);
        let missing: usize = missing.sum();
        assert!(report.skipped.len() <= missing, "{report}");
    });
}

#[test]
fn a_device_that_is_opened_again_is_the_same_and_has_one_pool() {
    there::on_each(|there| {
        let again = any::open(&there.name).expect("it is there");
        assert_eq!(again.id(), there.device.id());
        let (pool, other) =
            (Pool::shared(&again).expect("a pool"), Pool::shared(&there.device).expect("a pool"));
        let [stream] = there.streams();
        drop(pool.allocate(1000, &stream).expect("memory"));
        assert_eq!(other.stats().served.total(), pool.stats().served.total());
        assert!(other.stats().source.allocations > 0, "one pool");
    });
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, BackendError>) {
    assert!(matches!(result, Err(BackendError::InvalidArgument { .. })), "{result:?}");
}

/// `device` refuses every object of `other`.
fn assert_foreign_is_refused(device: &AnyDevice, other: &AnyDevice) {
    conformance::check_foreign(device, other).expect("they are");
    let kind = Placement::Device;
    let (own, foreign) =
        (device.create_stream().expect("a stream"), other.create_stream().expect("a stream"));
    let (memory, mut strange) = (
        device.allocate(&AllocationRequest::new(256, kind)).expect("memory"),
        other.allocate(&AllocationRequest::new(256, kind)).expect("memory"),
    );
    assert_refused(device.allocate_on(&AllocationRequest::new(256, kind), &foreign).map_err(|error| {
        match error {
            // It may say first that it has no such memory at all.
            BackendError::Unsupported { operation, .. } => BackendError::invalid("stream", operation),
            error => error,
        }
    }));
    if device.backend() != other.backend() {
        let event = other.record(&foreign).expect("an event");
        assert_refused(device.wait(&own, &event));
        assert_refused(device.is_capturing(&foreign));
        assert_refused(device.write_mapped(&strange, 0, &[0]));
        assert_refused(device.read_mapped(&strange, 0, &mut [0]));
        assert_refused(device.mapped(&mut strange));
    }
    let pool = Pool::builder(device).build().expect("a pool");
    let refused = pool.allocate(100, &foreign);
    assert!(matches!(refused, Err(Error::WrongDevice { .. })), "{refused:?}");
    // It does not fail, and the memory is released.
    device.free_on(strange, &own);
    device.free_on(memory, &foreign);
    device.synchronize(&own).expect("no fault");
    other.synchronize(&foreign).expect("no fault");
}

#[test]
fn what_belongs_to_another_device_is_refused() {
    let mut devices: Vec<_> = there::devices().into_iter().map(|there| there.device).collect();
    #[cfg(feature = "host")]
    devices.push(vrampool::host::HostDevice::new().into());
    for (nth, device) in devices.iter().enumerate() {
        for (other_nth, other) in devices.iter().enumerate() {
            // Two platforms may list one device twice: compare its number.
            if nth != other_nth && device.id() != other.id() {
                assert_foreign_is_refused(device, other);
            }
        }
    }
}
