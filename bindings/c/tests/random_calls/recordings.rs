//! Recordings, and traces as files.

use super::{Caller, free_text, keep, some};
use std::ffi::CString;
use std::ptr;
use vrampool_c::boundary::{Out, Text};
use vrampool_c::*;

impl Caller<'_> {
    pub(super) fn recording(&mut self) -> Status {
        let (pool, known) = (self.a_pool(), some(&mut self.choices, &self.shared.traces, [0, 9]));
        let (mut trace, mut dropped, mut text) = (0, 0, ptr::null_mut());
        match self.choices.u8(..15) {
            0..2 => vrampool_record_start(pool, [0, 10, 1000, 1 << 40][self.choices.usize(..4)]),
            2..5 => {
                let ask = if self.choices.bool() { vrampool_record_look } else { vrampool_record_stop };
                let status = ask(pool, Out::from(&mut trace), Out::from(&mut dropped));
                if status == Status::OK {
                    keep(&self.shared.traces, trace);
                }
                status
            }
            5 => vrampool_trace_free(known),
            6 => {
                let status = vrampool_trace_show(known, Out::from(&mut text));
                if status == Status::OK {
                    free_text(text);
                }
                status
            }
            7 => vrampool_trace_save(known, c"/nonexistent/x.csv".into(), Text::null()),
            8..10 => {
                let path = self.a_file();
                vrampool_trace_save(known, path.as_c_str().into(), self.a_format())
            }
            10..12 => {
                let (path, format) = (self.a_file(), self.a_format());
                let status = vrampool_trace_load(path.as_c_str().into(), format, 0, Out::from(&mut trace));
                if status == Status::OK {
                    keep(&self.shared.traces, trace);
                }
                status
            }
            12 => self.convert(),
            13 => {
                let path = self.a_file();
                let picture = [Text::null(), c"addresses".into(), c"moon".into()][self.choices.usize(..3)];
                vrampool_trace_plot(known, pool, path.as_c_str().into(), picture)
            }
            _ => vrampool_trace_load(
                c"/proc/self/maps".into(),
                [Text::null(), c"csv".into(), c"moon".into()][self.choices.usize(..3)],
                self.choices.i32(-2..3),
                Out::from(&mut trace),
            ),
        }
    }

    fn convert(&mut self) -> Status {
        let (source, target) = (self.a_file(), self.a_file());
        let (from, to, device) = (self.a_format(), self.a_format(), self.choices.i32(-1..2));
        let (mut trace, mut not_kept) = (0, ptr::null_mut());
        let is_wanted = self.choices.bool();
        let trace_to = if is_wanted { Out::from(&mut trace) } else { Out::null() };
        let (source, target) = (source.as_c_str().into(), target.as_c_str().into());
        let status =
            vrampool_trace_convert(source, from, device, target, to, trace_to, Out::from(&mut not_kept));
        if status == Status::OK {
            if is_wanted {
                keep(&self.shared.traces, trace);
            }
            free_text(not_kept);
        }
        status
    }

    /// A path, and mostly not that of a folder that is not there.
    pub(super) fn a_file(&mut self) -> CString {
        let names = ["a.csv", "b.csv.gz", "c.pickle", "d.csv", "e.pickle.gz", "none/x.csv", "no ending"];
        let path = self.shared.folder.join(names[self.choices.usize(..names.len())]);
        CString::new(path.into_os_string().into_encoded_bytes()).expect("no 0")
    }

    fn a_format(&mut self) -> Text<'static> {
        match self.choices.u8(..8) {
            0 => c"csv".into(),
            1 => c"rmm".into(),
            2 => c"pytorch".into(),
            3 => c"moon".into(),
            _ => Text::null(),
        }
    }
}
