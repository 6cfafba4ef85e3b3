//! PyTorch's functions.

use super::callbacks::copied;
use super::{Caller, keep, some, take};
use std::ffi::{c_int, c_void};
use std::ptr;
use vrampool_c::boundary::{Numbers, Out, Text};
use vrampool_c::*;

impl Caller<'_> {
    /// These return nothing: a failure is the last error.
    pub(super) fn torch(&mut self) -> Status {
        vrampool_clear_error();
        let (device, stream) = (self.choices.i32(-1..3), ptr::null_mut());
        let id = MempoolId { first: 0, second: self.choices.u64(..3) };
        match self.choices.u8(..13) {
            0 => return vrampool_torch_configure(c"device=host; host_capacity=32MiB".into()),
            1..6 => {
                let bytes = self.choices.usize(..1 << 20);
                // Without PyTorch in the process neither throws.
                let allocate: extern "C-unwind" fn(_, _, _) -> _ =
                    if self.choices.bool() { vrampool_torch_alloc } else { vrampool_torch_alloc_or_null };
                let address: *mut c_void = allocate(bytes, 0, stream);
                if !address.is_null() {
                    keep(&self.shared.torch, (address as usize, bytes));
                }
            }
            6..8 => {
                if let Some((address, bytes)) = take(&mut self.choices, &self.shared.torch) {
                    vrampool_torch_free(address as *mut c_void, bytes, 0, stream);
                }
            }
            8 => {
                let (address, _) = some(&mut self.choices, &self.shared.torch, [(0, 0), (3, 3)]);
                let stream = self.a_stream();
                vrampool_torch_record_stream(address as *mut c_void, stream);
            }
            9 => vrampool_torch_begin_allocate_to_pool(0, id, CppFunction::null()),
            10 => vrampool_torch_end_allocate_to_pool(0, id),
            11 => vrampool_torch_release_pool(0, id),
            _ => match self.choices.u8(..9) {
                4 => return vrampool_torch_pool_create(device, id),
                5 => return vrampool_torch_pool_uses(device, id, Out::null()),
                6 => return vrampool_torch_pool_use_on_oom(device, id, 1),
                7 => {
                    let one = [self.choices.u64(..)];
                    let one = Numbers::of(&one);
                    return vrampool_torch_pool_restore(0, id, one, one, one, self.choices.usize(..2));
                }
                8 => {
                    return vrampool_torch_visit(
                        device,
                        c_int::from(self.choices.bool()),
                        None,
                        ptr::null_mut(),
                    );
                }
                0 => vrampool_torch_reset(),
                1 => vrampool_torch_memory_fraction(
                    [-1.0, 0.5, 1.0, f64::NAN][self.choices.usize(..4)],
                    device,
                ),
                2 => {
                    let mut bytes = 0;
                    vrampool_torch_base_alloc(self.choices.usize(..) as *mut c_void, Out::from(&mut bytes));
                }
                _ => return vrampool_torch_pool(device, Out::null()),
            },
        }
        vrampool_last_error_code()
    }

    pub(super) fn segment(&mut self) -> Status {
        vrampool_clear_error();
        let numbers = [1, self.choices.u64(..40), self.choices.u64(..40)];
        let count = [self.choices.usize(..4), usize::MAX][usize::from(self.choices.u8(..20) == 0)];
        let handles = [Numbers::of(&numbers), Numbers::of(&[])][usize::from(count > 3)];
        match self.choices.u8(..10) {
            0 => {
                let bytes = [1, 4 << 20, usize::MAX][self.choices.usize(..3)];
                let segment = vrampool_segment_alloc(bytes, 0, ptr::null_mut());
                if !segment.is_null() {
                    keep(&self.shared.segments, segment as usize);
                }
            }
            1 => {
                if let Some(segment) = take(&mut self.choices, &self.shared.segments) {
                    vrampool_segment_free(segment as *mut c_void, 1, 0, ptr::null_mut());
                }
            }
            2 => {
                let segment = some(&mut self.choices, &self.shared.segments, [0, 8]);
                return vrampool_segment_unmap_and_release(0, self.choices.u64(..9), segment as u64, 1);
            }
            3 => return vrampool_segment_tag(numbers[1], [Text::from(c"weights"), Text::null()][count & 1]),
            4 => return vrampool_segments_save(handles, count, Some(copied), self.user()),
            5 => return vrampool_segments_restore(handles, count, Some(copied), self.user()),
            6 => return vrampool_segments_forget(handles, count, c_int::from(self.choices.bool())),
            7 => {
                let (mut address, mut bytes) = (ptr::null_mut(), 0);
                return vrampool_segment_saved(numbers[1], Out::from(&mut address), Out::from(&mut bytes));
            }
            8 => return vrampool_segment_is_asleep(numbers[1], Out::from(&mut 0)),
            _ => {
                let segment = some(&mut self.choices, &self.shared.segments, [0, 8]);
                return vrampool_segment_create_and_map(0, self.choices.u64(..9), segment as u64, 1);
            }
        }
        vrampool_last_error_code()
    }
}
