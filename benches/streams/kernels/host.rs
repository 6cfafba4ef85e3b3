//! Kernels of the host device: closures that sleep, so that a machine with few cores measures the same.

use super::{Input, Kernels, Lane, Output, edges};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;
use vrampool::BackendError;
use vrampool::host::HostDevice;

pub(crate) struct HostKernels {
    device: HostDevice,
    wrong: Arc<AtomicU64>,
}

impl HostKernels {
    pub(crate) fn new(device: &HostDevice) -> Self {
        Self { device: device.clone(), wrong: Arc::default() }
    }
}

impl Kernels<HostDevice> for HostKernels {
    fn launch(
        &self,
        lane: &Lane<HostDevice>,
        length: Duration,
        input: Option<Input<'_, HostDevice>>,
        (output, seed): Output<'_, HostDevice>,
    ) -> Result<(), BackendError> {
        let wrong = Arc::clone(&self.wrong);
        let work = move |read: Option<(&[u8], u64)>, written: &mut [u8]| {
            for (index, byte) in touched(written.len()) {
                written[index] = byte_of(seed, byte);
            }
            sleep(length);
            let count = |bytes: &[u8], seed: u64| {
                touched(bytes.len()).filter(|&(index, byte)| bytes[index] != byte_of(seed, byte)).count()
            };
            let found = count(written, seed) + read.map_or(0, |(bytes, seed)| count(bytes, seed));
            wrong.fetch_add(found as u64, Ordering::Relaxed);
        };
        match input {
            None => lane.stream.launch([], [output], move |[], [written]| work(None, written)),
            Some((read, seed)) => lane
                .stream
                .launch([read], [output], move |[read], [written]| work(Some((read, seed)), written)),
        }
    }

    fn wrong_bytes(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed) + self.device.races()
    }
}

/// The index of each byte that is written and verified, with its number among them.
fn touched(len: usize) -> impl Iterator<Item = (usize, usize)> {
    edges(len as u64).flatten().map(|index| index as usize).enumerate().map(|(number, index)| (index, number))
}

fn byte_of(seed: u64, number: usize) -> u8 {
    let mixed = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (mixed as u8).wrapping_add(number as u8)
}
