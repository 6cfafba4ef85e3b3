//! Blocks of known and of any pools: allocated, freed and freed wrongly.

use super::{Caller, Own, keep, some, take};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use vrampool_c::boundary::{Given, Out, Place, Text};
use vrampool_c::*;

impl Caller<'_> {
    /// Writes to a block that only this thread uses, and verifies its contents later.
    pub(super) fn own_block(&mut self) -> Status {
        if self.own.len() < 20 && self.choices.bool() {
            let (pool, bytes) = (self.shared.calm[self.choices.usize(..2)], self.choices.usize(1..60_000));
            let mut address = ptr::null_mut();
            let status = vrampool_allocate(pool, bytes as u64, ptr::null_mut(), Out::from(&mut address));
            if status == Status::OK {
                let value = self.choices.u8(..);
                // SAFETY: a block of so many bytes of the host device, which is the host's memory, and this
                // thread's alone.
                unsafe { address.cast::<u8>().write_bytes(value, bytes) };
                self.own.push(Own { pool, address: address as usize, bytes, value });
            }
            return status;
        }
        match self.own.is_empty() {
            true => Status::OK,
            false => {
                let index = self.choices.usize(..self.own.len());
                let own = self.own.swap_remove(index);
                self.free_own(&own)
            }
        }
    }

    pub(super) fn free_own(&mut self, own: &Own) -> Status {
        let &Own { pool, address, bytes, value } = own;
        // SAFETY: it was written when it was allocated, and is not freed yet.
        let found = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
        assert!(
            found.iter().all(|&byte| byte == value),
            "{bytes} bytes at {address:#x} are not {value} any more"
        );
        let freed = vrampool_free_sized(pool, address as *mut c_void, bytes as u64, ptr::null_mut());
        assert_eq!(freed, Status::OK, "{}", last_error_text());
        freed
    }

    pub(super) fn shared_block(&mut self) -> Status {
        let pool = some(&mut self.choices, &self.shared.pools, [1, u64::MAX]);
        let (bytes, stream) = (self.a_size(), self.a_stream());
        let (of, block) = some(&mut self.choices, &self.shared.blocks, [(pool, 0), (pool, 0x1234)]);
        let block = block as *mut c_void;
        match self.choices.u8(..14) {
            0..5 => {
                let mut address = ptr::null_mut();
                let out = Out::from(&mut address);
                let status = match self.choices.u8(..8) {
                    0 => vrampool_allocate_tagged(pool, c"weights".into(), bytes, stream, out),
                    1 => {
                        let tag = [Text::null(), c"".into()][self.choices.usize(..2)];
                        vrampool_allocate_tagged(pool, tag, bytes, stream, out)
                    }
                    _ => vrampool_allocate(pool, bytes, stream, out),
                };
                if status == Status::OK {
                    keep(&self.shared.blocks, (pool, address as usize));
                }
                status
            }
            5 => vrampool_allocate(pool, bytes.min(1000), stream, Out::null()),
            6..8 => {
                let Some((of, taken)) = take(&mut self.choices, &self.shared.blocks) else {
                    return Status::OK;
                };
                let status = vrampool_free(of, taken as *mut c_void, stream);
                if ![Status::OK, Status::INVALID_POINTER].contains(&status) {
                    keep(&self.shared.blocks, (of, taken));
                }
                status
            }
            8 => vrampool_free(of, block, stream),
            9 => vrampool_free_sized(pool, block, bytes, stream),
            10 => vrampool_record_stream(block, stream),
            11 => self.place(stream),
            12 => vrampool_free_at(Place::null(), Given::null()),
            _ => {
                let struct_size = self.choices.usize(..2 * size_of::<Block>());
                let mut found = Block { struct_size, ..Block::default() };
                vrampool_block_at(block, Out::from(&mut found))
            }
        }
    }

    /// A block that is freed by its place, by two threads at once: one of them does it.
    fn place(&mut self, stream: *mut c_void) -> Status {
        // Other threads free blocks of any other pool by addresses from earlier.
        let pool = self.shared.calm[self.choices.usize(..2)];
        let place = AtomicPtr::new(ptr::null_mut());
        let mut address = ptr::null_mut();
        let status = vrampool_allocate(pool, 1000, ptr::null_mut(), Out::from(&mut address));
        if status != Status::OK {
            return status;
        }
        place.store(address, Ordering::Release);
        if self.choices.bool() {
            // A stream that is none leaves it there.
            if vrampool_free_at(Place::from(&place), Given::from(&stream)) != Status::OK {
                assert_eq!(place.load(Ordering::Acquire), address);
            }
            vrampool_drop_at(Place::from(&place));
        } else {
            let free = || vrampool_free_at(Place::from(&place), Given::null());
            let freed = std::thread::scope(|scope| {
                let other = scope.spawn(free);
                [free(), other.join().expect("no panic")]
            });
            assert_eq!(freed.iter().filter(|&&status| status == Status::OK).count(), 1, "{freed:?}");
        }
        assert!(place.load(Ordering::Acquire).is_null());
        vrampool_drop_at(Place::null());
        status
    }
}
