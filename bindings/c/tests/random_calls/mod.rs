//! Calls of every function of the library, right and wrong, by threads at once, in an order that random numbers
//! or a fuzzer's bytes choose.

mod choices;

pub(crate) use choices::Choices;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use vrampool_c::boundary::{Bytes, Given, Out, Place, Text, Texts};
use vrampool_c::*;

/// Pools of these are made and destroyed at random.
const OPTIONS: [&CStr; 8] = [
    c"device=host; host_capacity=8MiB; source=direct",
    c"device=host; host_capacity=32MiB; source=virtual; limit=16MiB",
    c"device=host; host_capacity=8MiB; source=arena; limit=4MiB",
    c"device=host; host_capacity=1MiB; source=direct; max_cached=0; magazine_bytes=0",
    c"device=host; host_capacity=64KiB",
    c"device=host; limit=20EiB",
    c"limit",
    c"size_classes=geometric:0",
];

/// What pools whose blocks are checked are made of: nobody destroys them, and nothing in them sleeps.
const CALM: [&CStr; 2] = [
    c"device=host; host_capacity=256MiB; source=direct; name=calm",
    c"device=host; host_capacity=256MiB; source=virtual; limit=128MiB; name=calm too",
];

/// One thread for each of `choices` calls until these are over, in a process that has called nothing yet. No
/// crash, no fault of the library's own, no block in two hands, and nothing is left in the end. Returns how many
/// calls were refused.
pub(crate) fn sequence(choices: Vec<Choices<'_>>) -> u64 {
    // Devices are looked for where none is named, which takes a while.
    assert_eq!(vrampool_torch_configure(c"device=host; host_capacity=32MiB".into()), Status::OK);
    let folder = std::env::temp_dir().join(format!("vrampool-calls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for files");
    let shared = Shared { calm: CALM.map(create), folder, ..Shared::default() };
    let run = |choices| {
        let mut caller = Caller { shared: &shared, choices, own: Vec::new(), scopes: Vec::new() };
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
    segments: Mutex<Vec<usize>>,
    /// Blocks of PyTorch's, with their bytes and streams.
    torch: Mutex<Vec<(usize, usize)>>,
    failed: AtomicU64,
}

struct Caller<'a> {
    shared: &'a Shared,
    choices: Choices<'a>,
    /// Blocks that no other thread knows, and what their bytes are.
    own: Vec<Own>,
    /// Pools of which this thread has a scope open.
    scopes: Vec<u64>,
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
fn give_back(text: *mut c_char) {
    assert_eq!(vrampool_string_free(text), Status::OK);
}

extern "C" fn look(user: *mut c_void, level: c_int, target: *const c_char, text: *const c_char) {
    assert!(user.is_null() && (1..=5).contains(&level) && !target.is_null() && !text.is_null());
}

impl Caller<'_> {
    fn call(&mut self) {
        let status = match self.choices.u8(..100) {
            0..30 => self.own_block(),
            30..55 => self.shared_block(),
            55..65 => self.pool(),
            65..75 => self.stream(),
            75..82 => self.figures(),
            82..88 => self.sleep(),
            88..93 => self.recording(),
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

    /// Writes to a block of its own, and finds that there later.
    fn own_block(&mut self) -> Status {
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

    fn free_own(&mut self, own: &Own) -> Status {
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

    fn shared_block(&mut self) -> Status {
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
            11 => self.place(pool, stream),
            12 => vrampool_free_at(Place::null(), Given::null()),
            _ => {
                let struct_size = self.choices.usize(..2 * size_of::<Block>());
                let mut found = Block { struct_size, ..Block::default() };
                vrampool_block_at(block, Out::from(&mut found))
            }
        }
    }

    /// A block of whatever pool that is freed by its place, by two threads at once: one of them does it.
    fn place(&mut self, pool: u64, stream: *mut c_void) -> Status {
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

    fn pool(&mut self) -> Status {
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

    fn stream(&mut self) -> Status {
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

    fn figures(&mut self) -> Status {
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
                    give_back(text);
                }
                status
            }
        }
    }

    /// Of pools whose blocks nobody looks into.
    fn sleep(&mut self) -> Status {
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
            1 => {
                let status = vrampool_tag_end(pool);
                if status == Status::OK
                    && let Some(innermost) = self.scopes.iter().rposition(|&scope| scope == pool)
                {
                    self.scopes.remove(innermost);
                }
                status
            }
            2 => vrampool_sleep(pool, some_tags, count, Out::from(&mut report)),
            3 => vrampool_sleep_tags(pool, some_tags, count, c_int::from(self.choices.bool()), Out::null()),
            4 => vrampool_wake(pool, some_tags, count, Out::from(&mut report)),
            5 => vrampool_wake(pool, Texts::null(), 0, Out::null()),
            6 => vrampool_sleep(pool, Texts::null(), usize::MAX, Out::null()),
            7 => vrampool_tag_create(pool, tags[self.choices.usize(..4)]),
            _ => vrampool_is_asleep(pool, tags[self.choices.usize(..4)], Out::from(&mut 0)),
        }
    }

    fn recording(&mut self) -> Status {
        let (pool, known) = (self.a_pool(), some(&mut self.choices, &self.shared.traces, [0, 9]));
        let (mut trace, mut dropped, mut text) = (0, 0, ptr::null_mut());
        match self.choices.u8(..14) {
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
                    give_back(text);
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
            give_back(not_kept);
        }
        status
    }

    /// A path, and mostly not that of a folder that is not there.
    fn a_file(&mut self) -> CString {
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

    /// Those answer to nobody: what they could not do is the last error.
    fn torch(&mut self) -> Status {
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
            _ => match self.choices.u8(..4) {
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

    fn segment(&mut self) -> Status {
        vrampool_clear_error();
        match self.choices.u8(..4) {
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
            _ => {
                let segment = some(&mut self.choices, &self.shared.segments, [0, 8]);
                return vrampool_segment_create_and_map(0, self.choices.u64(..9), segment as u64, 1);
            }
        }
        vrampool_last_error_code()
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
            4 => vrampool_segment_callbacks(None, None, ptr::null_mut()),
            5 => match self.choices.bool() {
                true => vrampool_start_metrics(c"no address".into()),
                false => vrampool_start_metrics(c"127.0.0.1:0".into()),
            },
            6 => match self.choices.bool() {
                true => vrampool_start_metrics_at(c"127.0.0.1:x".into(), Out::null()),
                false => {
                    let status = vrampool_start_metrics_at(c"127.0.0.1:0".into(), Out::from(&mut text));
                    if status == Status::OK {
                        give_back(text);
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
            9 => vrampool_set_log_callback(Some(look), self.choices.i32(-1..7), ptr::null_mut()),
            10 => vrampool_set_log_callback(None, self.choices.i32(..), ptr::null_mut()),
            11 => {
                let status = vrampool_devices(Out::from(&mut text));
                give_back(text);
                status
            }
            12 => vrampool_devices(Out::null()),
            _ => {
                let status = vrampool_torch_pools(Out::from(&mut text));
                give_back(text);
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
    /// Gives everything back. Nothing is live then.
    fn finish(self) -> u64 {
        assert_eq!(vrampool_stop_metrics(), Status::OK);
        assert_eq!(vrampool_set_log_callback(None, 0, ptr::null_mut()), Status::OK);
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
        for pool in self.calm {
            let _ = vrampool_record_stop(pool, Out::null(), Out::null());
            assert_eq!(vrampool_trim(pool, 0, Out::null()), Status::OK);
            let mut stats = Stats { struct_size: size_of::<Stats>(), ..Stats::default() };
            assert_eq!(vrampool_get_stats(pool, Out::from(&mut stats)), Status::OK);
            assert_eq!((stats.live_buffers, stats.bytes_live, stats.bytes_held), (0, 0, 0), "{stats:?}");
            let (mut free, mut total) = (0, 0);
            assert_eq!(vrampool_memory_info(pool, Out::from(&mut free), Out::from(&mut total)), Status::OK);
            assert_eq!(free, total);
            assert_eq!(vrampool_destroy(pool), Status::OK);
        }
        assert_eq!(vrampool_torch_shutdown(), Status::OK);
        self.failed.into_inner()
    }
}
