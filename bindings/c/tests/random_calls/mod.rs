//! Calls of every function of the library, right and wrong, by threads at once, in an order that random numbers
//! or a fuzzer's bytes choose.

mod blocks;
mod brokers;
mod callbacks;
mod choices;
mod pools;
mod recordings;
mod torch;

pub(crate) use choices::Choices;

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_c::boundary::{Bytes, Out};
use vrampool_c::*;

/// Pools of these are made and destroyed at random.
const OPTIONS: [&CStr; 8] = [
    c"device=host; host_capacity=8MiB; source=direct",
    c"device=host; host_capacity=32MiB; source=virtual; limit=16MiB",
    c"device=host; host_capacity=8MiB; source=arena; limit=4MiB",
    c"device=host; host_capacity=1MiB; source=direct; max_cached_bytes=0; magazine_bytes=0",
    c"device=host; host_capacity=64KiB",
    c"device=host; limit=20EiB",
    c"limit",
    c"size_classes=geometric:0",
];

/// What pools whose blocks are checked are made of. They are not destroyed, and nothing in them sleeps.
const CALM: [&CStr; 2] = [
    c"device=host; host_capacity=256MiB; source=direct; name=calm",
    c"device=host; host_capacity=256MiB; source=virtual; limit=128MiB; name=calm too",
];

/// One thread for each of `choices` calls until these are over, in a process that has called nothing yet. No
/// crash, no fault of the library's own, no block in two hands, and nothing is left in the end. Returns how many
/// calls were refused, and how many were made by callbacks.
pub(crate) fn sequence(choices: Vec<Choices<'_>>) -> (u64, u64) {
    // Devices are looked for where none is named, which takes a while.
    assert_eq!(vrampool_torch_configure(c"device=host; host_capacity=32MiB".into()), Status::OK);
    let folder = std::env::temp_dir().join(format!("vrampool-calls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for files");
    let shared = Shared { calm: CALM.map(create), folder, ..Shared::default() };
    let run = |choices| {
        let mut caller = Caller::new(&shared, choices, false);
        while !caller.choices.are_over() {
            caller.call();
        }
        caller.finish();
    };
    std::thread::scope(|scope| {
        let run = &run;
        let spawn = |choices| scope.spawn(move || run(choices));
        let threads: Vec<_> = choices.into_iter().map(spawn).collect();
        // A thread that is joined has left what it kept to itself; one whose scope ends may not have yet.
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    shared.finish()
}

fn create(options: &CStr) -> u64 {
    let mut pool = 0;
    assert_eq!(vrampool_create(options.into(), Out::from(&mut pool)), Status::OK, "{}", last_error_text());
    pool
}

/// What all threads use, live or not any more.
#[derive(Default)]
struct Shared {
    calm: [u64; 2],
    /// Where files are that all threads write and read.
    folder: PathBuf,
    pools: Mutex<Vec<u64>>,
    /// Of pools that are destroyed at random, with their addresses, which may be another block's by now: so
    /// they are freed with their pool's name.
    blocks: Mutex<Vec<(u64, usize)>>,
    streams: Mutex<Vec<(u64, usize)>>,
    traces: Mutex<Vec<u64>>,
    brokers: Mutex<Vec<u64>>,
    clients: Mutex<Vec<u64>>,
    arrays: Mutex<Vec<u64>>,
    segments: Mutex<Vec<usize>>,
    /// Blocks of PyTorch's, with their bytes and streams.
    torch: Mutex<Vec<(usize, usize)>>,
    failed: AtomicU64,
    /// Calls of callbacks.
    nested: AtomicU64,
}

struct Caller<'a> {
    shared: &'a Shared,
    choices: Choices<'a>,
    /// Blocks that no other thread knows, and what their bytes are.
    own: Vec<Own>,
    /// Pools of which this thread has a scope open.
    scopes: Vec<u64>,
    /// In a callback, which leaves the scopes of its thread as they are.
    is_nested: bool,
}

struct Own {
    pool: u64,
    address: usize,
    bytes: usize,
    value: u8,
}

/// A list's random member, or a number that never was one.
fn some<T: Copy>(choices: &mut Choices<'_>, list: &Mutex<Vec<T>>, wrong: [T; 2]) -> T {
    let list = list.lock().expect("no panic");
    match choices.u8(..16) {
        0 => wrong[0],
        1 => wrong[1],
        _ if list.is_empty() => wrong[0],
        _ => list[choices.usize(..list.len())],
    }
}

fn keep<T>(list: &Mutex<Vec<T>>, member: T) {
    list.lock().expect("no panic").push(member);
}

fn take<T>(choices: &mut Choices<'_>, list: &Mutex<Vec<T>>) -> Option<T> {
    let mut list = list.lock().expect("no panic");
    (!list.is_empty()).then(|| list.len()).map(|len| list.swap_remove(choices.usize(..len)))
}

/// Text of the library's, which is freed.
fn free_text(text: *mut c_char) {
    assert_eq!(vrampool_string_free(text), Status::OK);
}

impl<'a> Caller<'a> {
    fn new(shared: &'a Shared, choices: Choices<'a>, is_nested: bool) -> Self {
        Self { shared, choices, own: Vec::new(), scopes: Vec::new(), is_nested }
    }

    /// What callbacks get, so that they call again.
    fn user(&self) -> *mut c_void {
        ptr::from_ref(self.shared).cast_mut().cast()
    }

    fn call(&mut self) {
        let status = match self.choices.u8(..100) {
            0..30 => self.own_block(),
            30..55 => self.shared_block(),
            55..65 => self.pool(),
            65..75 => self.stream(),
            75..82 => self.figures(),
            82..88 => self.sleep(),
            88..92 => self.recording(),
            92 => self.broker(),
            93..97 => self.torch(),
            97..99 => self.segment(),
            _ => self.other(),
        };
        assert_ne!(status, Status::INTERNAL, "{}", last_error_text());
        if status != Status::OK {
            self.shared.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn a_pool(&mut self) -> u64 {
        let wild = some(&mut self.choices, &self.shared.pools, [0, u64::MAX]);
        if self.choices.u8(..4) == 0 { self.shared.calm[self.choices.usize(..2)] } else { wild }
    }

    fn a_stream(&mut self) -> *mut c_void {
        // Odd numbers are streams of the library's; some have one that was destroyed, or is another device's.
        let wrong = [(0, 0), (0, 0xdead_beef)];
        some(&mut self.choices, &self.shared.streams, wrong).1 as *mut c_void
    }

    fn a_size(&mut self) -> u64 {
        match self.choices.u8(..20) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 40,
            3..6 => self.choices.u64(1..4 << 20),
            _ => self.choices.u64(1..20_000),
        }
    }

    fn other(&mut self) -> Status {
        let mut text = ptr::null_mut();
        match self.choices.u8(..14) {
            0 => {
                let _ = vrampool_status_name(Status(self.choices.i32(..)));
                // SAFETY: text of this thread's, until it makes another call.
                let error = unsafe { CStr::from_ptr(vrampool_last_error()) };
                assert_eq!(error.is_empty(), vrampool_last_error_code() == Status::OK);
                Status::OK
            }
            1 => vrampool_string_free(ptr::null_mut()),
            2 => vrampool_file_write(c"/nonexistent/x".into(), Bytes::of(&[1]), 1),
            3 => {
                let (path, bytes) = (self.a_file(), vec![b'a'; self.choices.usize(..5000)]);
                vrampool_file_write(path.as_c_str().into(), Bytes::of(&bytes), bytes.len())
            }
            4 => match self.choices.bool() {
                true => vrampool_segment_callbacks(None, None, ptr::null_mut()),
                false => {
                    let on_segment = Some(callbacks::on_segment as SegmentCallback);
                    vrampool_segment_callbacks(on_segment, on_segment, self.user())
                }
            },
            5 => match self.choices.bool() {
                true => vrampool_start_metrics(c"no address".into()),
                false => vrampool_start_metrics(c"127.0.0.1:0".into()),
            },
            6 => match self.choices.bool() {
                true => vrampool_start_metrics_at(c"127.0.0.1:x".into(), Out::null()),
                false => {
                    let status = vrampool_start_metrics_at(c"127.0.0.1:0".into(), Out::from(&mut text));
                    if status == Status::OK {
                        free_text(text);
                    }
                    status
                }
            },
            7 => vrampool_stop_metrics(),
            8 => {
                vrampool_torch_init(self.choices.i32(..));
                let _ = (vrampool_version(), vrampool_abi_version(), vrampool_torch_throws());
                Status::OK
            }
            9 => vrampool_set_log_callback(Some(callbacks::look), self.choices.i32(-1..7), self.user()),
            10 => vrampool_set_log_callback(None, self.choices.i32(..), ptr::null_mut()),
            11 => {
                let status = vrampool_devices(Out::from(&mut text));
                free_text(text);
                status
            }
            12 => vrampool_devices(Out::null()),
            _ => {
                let status = vrampool_torch_pools(Out::from(&mut text));
                free_text(text);
                status
            }
        }
    }

    fn finish(mut self) {
        for own in std::mem::take(&mut self.own) {
            let _ = self.free_own(&own);
        }
        for pool in self.scopes {
            assert_eq!(vrampool_tag_end(pool), Status::OK, "{}", last_error_text());
        }
    }
}

impl Shared {
    /// Frees everything. Nothing is live then.
    fn finish(self) -> (u64, u64) {
        assert_eq!(vrampool_stop_metrics(), Status::OK);
        assert_eq!(vrampool_set_log_callback(None, 0, ptr::null_mut()), Status::OK);
        assert_eq!(vrampool_segment_callbacks(None, None, ptr::null_mut()), Status::OK);
        std::fs::remove_dir_all(&self.folder).expect("files are closed");
        for (pool, address) in self.blocks.into_inner().expect("no panic") {
            // Another thread may have freed it, and it may be another pool's now.
            let freed = vrampool_free(pool, address as *mut c_void, ptr::null_mut());
            let expected = [Status::OK, Status::INVALID_POINTER, Status::MISMATCH];
            assert!(expected.contains(&freed), "{}", last_error_text());
        }
        for (address, bytes) in self.torch.into_inner().expect("no panic") {
            vrampool_torch_free(address as *mut c_void, bytes, 0, ptr::null_mut());
        }
        for segment in self.segments.into_inner().expect("no panic") {
            vrampool_segment_free(segment as *mut c_void, 1, 0, ptr::null_mut());
        }
        for broker in self.brokers.into_inner().expect("no panic") {
            assert_eq!(vrampool_broker_destroy(broker), Status::OK, "{}", last_error_text());
        }
        for array in self.arrays.into_inner().expect("no panic") {
            assert_eq!(vrampool_array_free(array), Status::OK, "{}", last_error_text());
        }
        for pool in self.calm {
            let _ = vrampool_record_stop(pool, Out::null(), Out::null());
            assert_eq!(vrampool_trim(pool, 0, Out::null()), Status::OK);
            let mut stats = Stats { struct_size: size_of::<Stats>(), ..Stats::default() };
            assert_eq!(vrampool_get_stats(pool, Out::from(&mut stats)), Status::OK);
            assert_eq!((stats.live_buffers, stats.live_bytes, stats.held_bytes), (0, 0, 0), "{stats:?}");
            let (mut free, mut total) = (0, 0);
            assert_eq!(vrampool_memory_info(pool, Out::from(&mut free), Out::from(&mut total)), Status::OK);
            assert_eq!(free, total);
            assert_eq!(vrampool_destroy(pool), Status::OK);
        }
        assert_eq!(vrampool_torch_shutdown(), Status::OK);
        (self.failed.into_inner(), self.nested.into_inner())
    }
}
