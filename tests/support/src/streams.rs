//! Streams, and work that keeps a stream busy.

use std::sync::mpsc::{Sender, channel};
use vrampool_backend::{Backend, RegionMut};
use vrampool_host::{HostMemory, HostStream};

/// Creates `N` streams.
#[must_use]
pub fn streams<B: Backend, const N: usize>(device: &B) -> [B::Stream; N] {
    std::array::from_fn(|_| device.create_stream().expect("a stream"))
}

/// Keeps all later work on `stream` pending until the returned sender is dropped or sends.
#[must_use]
pub fn close_gate(stream: &HostStream) -> Sender<()> {
    let (open, gate) = channel::<()>();
    let hold = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
        let _ = gate.recv();
    };
    stream.launch([], [], hold).expect("queued");
    open
}

/// Holds memory in a kernel that runs until the returned sender is dropped or sends, and fills the memory then.
#[must_use]
pub fn hold(stream: &HostStream, memory: RegionMut<'_, HostMemory>, value: u8) -> Sender<()> {
    let ((open, gate), (begin, begun)) = (channel::<()>(), channel());
    let kernel = move |[]: [&[u8]; 0], [bytes]: [&mut [u8]; 1]| {
        let _ = begin.send(());
        let _ = gate.recv();
        bytes.fill(value);
    };
    stream.launch([], [memory], kernel).expect("queued");
    begun.recv().expect("it runs");
    open
}
