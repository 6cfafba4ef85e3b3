//! Brokers: made and destroyed, with clients and arrays, committed and run.

use super::callbacks::{progress, refuse, work};
use super::{Caller, free_text, keep, some, take};
use std::ptr;
use vrampool_c::boundary::{Bytes, BytesOut, Numbers, Out, Text};
use vrampool_c::*;

impl Caller<'_> {
    pub(super) fn broker(&mut self) -> Status {
        let broker = some(&mut self.choices, &self.shared.brokers, [0, u64::MAX]);
        let client = some(&mut self.choices, &self.shared.clients, [0, u64::MAX]);
        let array = some(&mut self.choices, &self.shared.arrays, [0, u64::MAX]);
        let group = [Text::null(), c"default".into(), c"other".into()][self.choices.usize(..3)];
        let (mut made, mut bytes) = (0, [0; 64]);
        match self.choices.u8(..24) {
            0..3 => {
                let options = [
                    Text::null(),
                    c"pinned_max=0; budget=64KiB; staging_block=64KiB; staging=64KiB".into(),
                    c"spill_threshold=1; name=spilled".into(),
                    c"staging=1".into(),
                    c"budget=much".into(),
                ];
                let pool = self.a_pool();
                let status =
                    vrampool_broker_create(pool, options[self.choices.usize(..5)], Out::from(&mut made));
                if status == Status::OK {
                    keep(&self.shared.brokers, made);
                }
                status
            }
            3 => vrampool_broker_destroy(take(&mut self.choices, &self.shared.brokers).unwrap_or(7)),
            4..7 => {
                let share = [Text::null(), c"25%".into(), c"1MiB".into(), c"-7%".into(), c"moon".into()];
                let share = share[self.choices.usize(..5)];
                let status =
                    vrampool_broker_register(broker, c"one".into(), group, share, Out::from(&mut made));
                if status == Status::OK {
                    keep(&self.shared.clients, made);
                }
                status
            }
            7 => vrampool_client_destroy(take(&mut self.choices, &self.shared.clients).unwrap_or(7)),
            8..12 => {
                let label = [c"one".into(), c"two".into(), Text::null()][self.choices.usize(..3)];
                let shape = [[100, 4], [1000, 1], [0, 1], [u64::MAX, 2], [100, 1]][self.choices.usize(..5)];
                let (role, element) = (self.choices.i32(-1..5), self.choices.u64(..3) * 4);
                let (dimensions, axis) = (self.choices.usize(..3), self.choices.i32(-2..3));
                let shape = Numbers::of(&shape);
                let made_at = Out::from(&mut made);
                let status =
                    vrampool_client_queue(client, role, label, shape, dimensions, element, axis, made_at);
                if status == Status::OK {
                    keep(&self.shared.arrays, made);
                }
                status
            }
            12 => vrampool_array_free(take(&mut self.choices, &self.shared.arrays).unwrap_or(7)),
            13..15 => {
                let mut plan = BrokerPlan { struct_size: self.choices.usize(..80), ..BrokerPlan::default() };
                let (streams, runs) = (self.choices.u64(..4), self.choices.u64(..60));
                vrampool_broker_commit(broker, group, streams, runs, Out::from(&mut plan))
            }
            15..19 => {
                let on_chunk =
                    [Some(work as ChunkCallback), Some(work), Some(refuse), None][self.choices.usize(..4)];
                let on_progress = self.choices.bool().then_some(progress as ProgressCallback);
                let mut report = RunReport { struct_size: size_of::<RunReport>(), ..RunReport::default() };
                let report = if self.choices.bool() { Out::from(&mut report) } else { Out::null() };
                vrampool_broker_run(broker, group, on_chunk, on_progress, self.user(), report)
            }
            19 => {
                let mut text = ptr::null_mut();
                let status = vrampool_broker_get_stats_json(broker, Out::from(&mut text));
                if status == Status::OK {
                    free_text(text);
                }
                status
            }
            20 => {
                let (mut address, count) = (ptr::null_mut(), Out::from(&mut made));
                vrampool_array_data(array, Out::from(&mut address), count)
            }
            21 => vrampool_array_read(array, self.choices.u64(..1000), BytesOut::of(&mut bytes), 64),
            22 => vrampool_array_write(array, self.choices.u64(..1000), Bytes::of(&bytes), 64),
            _ => vrampool_array_write(array, u64::MAX, Bytes::of(&bytes), 64),
        }
    }
}
