//! Pools and streams: made, destroyed, asked for figures, and put to sleep.

use super::callbacks::copied;
use super::{Caller, OPTIONS, free_text, keep, some, take};
use std::ffi::{c_int, c_void};
use std::ptr;
use vrampool_c::boundary::{Out, Text, Texts};
use vrampool_c::*;

impl Caller<'_> {
    pub(super) fn pool(&mut self) -> Status {
        match self.choices.u8(..8) {
            0..2 => {
                let (mut pool, options) = (0, OPTIONS[self.choices.usize(..OPTIONS.len())]);
                let status = vrampool_create(options.into(), Out::from(&mut pool));
                if status == Status::OK {
                    keep(&self.shared.pools, pool);
                }
                status
            }
            2 => match take(&mut self.choices, &self.shared.pools) {
                Some(pool) => vrampool_destroy(pool),
                None => vrampool_destroy(77),
            },
            3 => vrampool_create(Text::null(), Out::null()),
            4 => {
                let pool = self.a_pool();
                vrampool_trim(pool, self.choices.u64(..10) << 16, Out::null())
            }
            5 => vrampool_decay(self.a_pool(), Out::null()),
            6 => vrampool_set_limit(
                some(&mut self.choices, &self.shared.pools, [0, 1]),
                [0, 1 << 20, 1 << 24, u64::MAX][self.choices.usize(..4)],
            ),
            _ => vrampool_reset_peaks(self.a_pool()),
        }
    }

    pub(super) fn stream(&mut self) -> Status {
        let pool = self.a_pool();
        match self.choices.u8(..8) {
            0..2 => {
                let mut stream = ptr::null_mut();
                let status = vrampool_stream_create(pool, Out::from(&mut stream));
                if status == Status::OK {
                    keep(&self.shared.streams, (pool, stream as usize));
                }
                status
            }
            2 => match take(&mut self.choices, &self.shared.streams) {
                Some((pool, stream)) => vrampool_stream_destroy(pool, stream as *mut c_void),
                None => Status::OK,
            },
            3 => {
                let stream = self.a_stream();
                vrampool_stream_retire(pool, stream)
            }
            4 => vrampool_stream_create(pool, Out::null()),
            _ => {
                let stream = self.a_stream();
                vrampool_stream_synchronize(pool, stream)
            }
        }
    }

    pub(super) fn figures(&mut self) -> Status {
        let pool = self.a_pool();
        let (mut one, mut other, mut text) = (0, 0, ptr::null_mut());
        let (mut name, mut device) = (ptr::null(), -1);
        match self.choices.u8(..9) {
            0 => vrampool_get_limit(pool, Out::from(&mut one)),
            1 => vrampool_memory_info(pool, Out::from(&mut one), Out::from(&mut other)),
            2 => vrampool_pool_backend(pool, Out::from(&mut name)),
            3 => vrampool_get_stats(pool, Out::null()),
            4 | 5 => {
                let mut stats = Stats { struct_size: self.choices.usize(..1000), ..Stats::default() };
                vrampool_get_stats(pool, Out::from(&mut stats))
            }
            6 => vrampool_pool_device(pool, Out::from(&mut device)),
            kind => {
                let ask = if kind == 7 { vrampool_get_stats_json } else { vrampool_snapshot };
                let status = ask(pool, Out::from(&mut text));
                if status == Status::OK {
                    free_text(text);
                }
                status
            }
        }
    }

    /// Of pools whose blocks are not read.
    pub(super) fn sleep(&mut self) -> Status {
        let pool = some(&mut self.choices, &self.shared.pools, [0, 5]);
        let tags = [Text::from(c"weights"), Text::from(c"default"), Text::from(c""), Text::null()];
        let count = self.choices.usize(..3);
        let some_tags = Texts::of(&tags[self.choices.usize(..2)..]);
        let mut report = SleepReport::default();
        match self.choices.u8(..9) {
            0 => {
                let status = vrampool_tag_begin(pool, tags[self.choices.usize(..4)]);
                if status == Status::OK {
                    self.scopes.push(pool);
                }
                status
            }
            1 if self.is_nested => Status::OK,
            1 => {
                let status = vrampool_tag_end(pool);
                if status == Status::OK
                    && let Some(innermost) = self.scopes.iter().rposition(|&scope| scope == pool)
                {
                    self.scopes.remove(innermost);
                }
                status
            }
            2 => vrampool_sleep(pool, some_tags, count, Some(copied), self.user(), Out::from(&mut report)),
            3 => {
                let keeps = c_int::from(self.choices.bool());
                vrampool_sleep_tags(pool, some_tags, count, keeps, Some(copied), self.user(), Out::null())
            }
            4 => vrampool_wake(pool, some_tags, count, Some(copied), self.user(), Out::from(&mut report)),
            5 => vrampool_wake(pool, Texts::null(), 0, None, ptr::null_mut(), Out::null()),
            6 => vrampool_sleep(pool, Texts::null(), usize::MAX, None, ptr::null_mut(), Out::null()),
            7 => vrampool_tag_create(pool, tags[self.choices.usize(..4)]),
            _ => vrampool_is_asleep(pool, tags[self.choices.usize(..4)], Out::from(&mut 0)),
        }
    }
}
