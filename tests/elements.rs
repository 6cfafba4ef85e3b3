//! Typed elements, copies and fills of buffers: what they write is what is read, and sizes that do not fit are refused.

use vrampool::host::HostDevice;
use vrampool::{Backend, BackendError, Error, Pool};
use vrampool_test_support as _;

fn scene() -> (HostDevice, <HostDevice as Backend>::Stream, Pool<HostDevice>) {
    let device = HostDevice::builder().memory_limit(64 << 20).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::new(&device).expect("a pool");
    (device, stream, pool)
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("refused");
    assert!(matches!(error.backend(), Some(BackendError::InvalidArgument { .. })), "{error:?}");
}

#[test]
fn elements_are_read_as_they_were_written() {
    let (_, stream, pool) = scene();
    let numbers: Vec<f64> = (0..1000).map(f64::from).collect();
    let buffer = pool.upload(&numbers, &stream).expect("memory");
    assert_eq!(buffer.len(), 8000);
    assert_eq!(buffer.read_vec::<f64>(&stream).expect("numbers"), numbers);
    assert_eq!(buffer.read_vec::<[f64; 4]>(&stream).expect("rows").concat(), numbers);
    let none = pool.upload::<u32>(&[], &stream).expect("0 bytes are allowed");
    assert!(none.read_vec::<u32>(&stream).expect("nothing").is_empty());
    assert_eq!(buffer.device().id(), pool.device().id());
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let (_, stream, pool) = scene();
    let mut odd = pool.upload(&[1u8, 2, 3], &stream).expect("memory");
    refused(odd.read_vec::<u16>(&stream));
    refused(odd.read_vec::<[u8; 0]>(&stream));
    assert!(pool.upload(&[[0u8; 0]; 5], &stream).expect("no bytes").is_empty());
    let error = pool.allocate_elements::<u64>(u64::MAX / 2, &stream).expect_err("it overflows");
    assert!(matches!(error, Error::TooLarge { requested_bytes: u64::MAX, .. }), "{error}");
    refused(odd.write_at(&[0, 0], 2, &stream));
    refused(odd.write_at(&[0], u64::MAX, &stream));
    let long = pool.upload(&[0u8; 4], &stream).expect("memory");
    refused(odd.copy_from(&long, &stream));
    assert_eq!(odd.read_vec::<u8>(&stream).expect("as they were"), [1, 2, 3]);
    let (other, other_stream, _) = scene();
    let foreign = Pool::new(&other).expect("a pool").upload(&[9u8], &other_stream).expect("memory");
    assert!(matches!(odd.copy_from(&foreign, &stream), Err(Error::WrongDevice { .. })));
}

#[test]
fn copies_and_fills_are_in_the_order_of_streams() {
    let (device, first, pool) = scene();
    let second = device.create_stream().expect("a stream");
    let mut source = pool.allocate(1 << 20, &first).expect("memory");
    let mut copy = pool.allocate(2 << 20, &second).expect("memory");
    for round in 1..20u8 {
        source.fill(round, &first).expect("a fill");
        copy.fill(0, &second).expect("a fill");
        copy.copy_from(&source, &second).expect("a copy");
        copy.write_at(&[round + 1], 5, &first).expect("it fits");
        let bytes = copy.read_vec::<u8>(&second).expect("bytes");
        assert_eq!((bytes[4], bytes[5], bytes[(1 << 20) - 1], bytes[1 << 20]), (round, round + 1, round, 0));
    }
}
