//! Without a driver or without a device, every way in is a typed error. `CUDA_VISIBLE_DEVICES=` makes any
//! machine one.

use vrampool_cuda::{CudaDevice, list};
use vrampool_test_support::{assert_unavailable, skipped};

#[test]
fn every_way_in_answers_that_there_is_no_device() {
    let devices = list();
    if devices.is_ok() {
        skipped("there is a device here; CUDA_VISIBLE_DEVICES= hides it");
        return;
    }
    let answers = [
        devices.map(|_| ()),
        CudaDevice::open(0).map(|_| ()),
        CudaDevice::open(usize::MAX).map(|_| ()),
        CudaDevice::open_by_name("cuda:0").map(|_| ()),
        CudaDevice::open_by_name("GPU-00000000").map(|_| ()),
        CudaDevice::open_by_name("").map(|_| ()),
    ];
    assert_unavailable("cuda", answers);
}

#[test]
fn asking_again_from_many_threads_gives_the_same_answer() {
    let first = CudaDevice::open(0).map(|device| device.ordinal());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let first = &first;
            scope.spawn(move || {
                assert_eq!(&CudaDevice::open(0).map(|device| device.ordinal()), first);
            });
        }
    });
}
