//! A stager: netcl's acceptance case a13, a lost device, and the environment.

use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError, Buffer, Error, Event, Pool};
use vrampool_broker::{Broker, BrokerError, Stager, Upload};
use vrampool_test_support::close_gate;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

type Stream = <HostDevice as Backend>::Stream;

fn device() -> (HostDevice, Stream) {
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

/// The device's memory of so many bytes, and uploads to its beginning.
struct Target(Buffer<HostDevice>, Stream);

impl Target {
    fn new(device: &HostDevice, stream: &Stream, bytes: u64) -> Self {
        let pool = Pool::builder(device).build().expect("a pool");
        Self(pool.allocate(bytes, stream).expect("memory"), stream.clone())
    }

    fn upload(
        &mut self,
        stager: &Stager<HostDevice>,
        bytes: &[u8],
    ) -> Result<Upload<<HostDevice as Backend>::Event>, Error> {
        let region = self.0.on_mut(&self.1).expect("a region").slice(..bytes.len() as u64);
        stager.upload(bytes, region.expect("inside"), &self.1)
    }
}

#[test]
fn a13_the_stager_never_waits_and_reuses_a_slot_only_after_its_event() {
    let (device, stream) = device();
    let stager = Stager::with_max_bytes(&device, 2 * MIB);
    let batch = vec![1u8; 100 * KIB as usize];
    let mut target = Target::new(&device, &stream, 100 * KIB);
    let open = close_gate(&stream);
    let mut staged = Vec::new();
    for expect_staged in [true, true, false] {
        match target.upload(&stager, &batch).expect("queued") {
            Upload::Staged(event) if expect_staged => staged.push(event),
            Upload::Pageable if !expect_staged => {}
            other => panic!("with {} slots busy: {other:?}", staged.len()),
        }
    }
    assert_eq!(stager.pinned_bytes(), 2 * MIB, "slots of at least 1 MiB, within the cap");
    assert_eq!(stager.trim(), 0, "busy slots stay");
    drop(open);
    device.synchronize(&stream).expect("no fault");
    assert!(staged.iter().all(|event| event.is_complete().expect("no fault")));
    assert!(matches!(target.upload(&stager, &batch), Ok(Upload::Staged(_))));
    assert_eq!(stager.pinned_bytes(), 2 * MIB, "a slot was used again");
    device.synchronize(&stream).expect("no fault");
    assert_eq!(stager.trim(), 2 * MIB);
    assert!(matches!(target.upload(&stager, &batch[..1000]), Ok(Upload::Pageable)));
}

#[test]
fn a13_idle_slots_of_other_sizes_make_room() {
    let (device, stream) = device();
    let stager = Stager::with_max_bytes(&device, 4 * MIB);
    let batch = vec![1u8; 4 * MIB as usize];
    let mut target = Target::new(&device, &stream, 4 * MIB);
    assert!(matches!(target.upload(&stager, &batch), Ok(Upload::Staged(_))));
    device.synchronize(&stream).expect("no fault");
    assert!(matches!(target.upload(&stager, &batch[..MIB as usize]), Ok(Upload::Staged(_))));
    assert_eq!(stager.pinned_bytes(), MIB);
}

#[test]
fn a13_a_failed_step_of_staging_loses_nothing() {
    let (device, stream) = device();
    let stager = Stager::with_max_bytes(&device, 2 * MIB);
    let batch = vec![5u8; 100 * KIB as usize];
    let mut target = Target::new(&device, &stream, 100 * KIB);
    for call in [Call::Allocate, Call::Mapped, Call::Copy, Call::Record] {
        device.faults().fail_nth(call, 1);
        assert!(target.upload(&stager, &batch).is_err(), "{call:?}");
        assert_eq!(stager.pinned_bytes(), 0, "{call:?}");
    }
    device.faults().fail_nth_with(Call::Allocate, 1, BackendError::out_of_memory(MIB, None));
    assert!(matches!(target.upload(&stager, &batch), Ok(Upload::Pageable)), "no pinned memory is no error");
    let mut bytes = vec![0; batch.len()];
    target.0.read(&mut bytes, &stream).expect("done");
    assert_eq!(bytes, batch);
}

#[test]
fn an_upload_to_a_lost_device_is_an_error_and_keeps_no_slot() {
    let (device, stream) = device();
    let stager = Stager::with_max_bytes(&device, 4 * MIB);
    let mut target = Target::new(&device, &stream, 128 * KIB);
    device.faults().lose_device();
    let error = target.upload(&stager, &[0; 128 * KIB as usize]).expect_err("a copy must be queued");
    assert!(error.is_device_lost() && !error.is_out_of_memory(), "{error:?}");
    assert_eq!(stager.pinned_bytes(), 0);
}

/// Both names set the limit of a stager and of a broker, ours first. Runs again in processes with the variables.
#[test]
fn the_environment_limits_pinned_bytes() {
    const NAMES: [&str; 2] = ["VRAMPOOL_PINNED_STAGING_MB", "NETCL_PINNED_STAGING_MB"];
    const EXPECTED: &str = "VRAMPOOL_TEST_EXPECTED";
    let this = "the_environment_limits_pinned_bytes";
    if let Ok(expected) = std::env::var(EXPECTED) {
        let (device, stream) = device();
        let stager = Stager::from_environment(&device);
        let broker = Broker::builder(&Pool::new(&device).expect("a pool")).build();
        if expected == "error" {
            assert!(matches!(stager, Err(Error::Environment(_))), "{stager:?}");
            assert!(matches!(broker, Err(BrokerError::Memory(Error::Environment(_)))), "{broker:?}");
            return;
        }
        assert!(broker.is_ok(), "{broker:?}");
        let stager = stager.expect("a limit");
        let mut target = Target::new(&device, &stream, MIB);
        let _open = close_gate(&stream);
        (0..5).for_each(|_| drop(target.upload(&stager, &[0; MIB as usize]).expect("queued")));
        assert_eq!(stager.pinned_bytes().to_string(), expected);
        return;
    }
    for (values, expected) in [
        ([None, None], "5242880"),
        ([Some("2"), None], "2097152"),
        ([None, Some("1.5")], "1048576"),
        ([Some("3"), Some("1")], "3145728"),
        ([Some("0"), None], "0"),
        ([Some("lots"), None], "error"),
        ([None, Some("-1")], "error"),
    ] {
        let mut command = std::process::Command::new(std::env::current_exe().expect("its own path"));
        command.args(["--exact", this, "--nocapture"]).env(EXPECTED, expected);
        for (name, value) in NAMES.iter().zip(values) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{values:?}: {text}");
    }
}
