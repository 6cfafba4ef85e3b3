//! Brokers of the C ABI: batches that are run in chunks on the host device.

mod calls;

use calls::{ok, pool};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use vrampool_c::boundary::{Bytes, BytesOut, Numbers, Out, Text};
use vrampool_c::*;

/// Rows of the output, before the axis of runs: so that rows of a chunk are strided.
const TIMES: u64 = 3;
const INPUT: i32 = 0;
const OUTPUT: i32 = 1;
const SCRATCH: i32 = 3;

fn fails(status: Status, expected: Status, text: &str) {
    assert_eq!(status, expected, "{}", last_error_text());
    assert!(last_error_text().contains(text), "{}", last_error_text());
}

/// A batch of logistic maps: a rate for each run, a table that is not cut, and `TIMES` states of each run.
struct Batch {
    pool: u64,
    broker: u64,
    client: u64,
    rates: u64,
    table: u64,
    states: u64,
    scratch: u64,
    runs: u64,
}

fn queue(client: u64, role: i32, label: &CStr, shape: &[u64], axis: i32) -> u64 {
    let (mut array, numbers) = (0, Numbers::of(shape));
    ok(vrampool_client_queue(
        client,
        role,
        label.into(),
        numbers,
        shape.len(),
        4,
        axis,
        Out::from(&mut array),
    ));
    array
}

impl Batch {
    fn new(options: &CStr, runs: u64) -> Self {
        let (pool, mut broker, mut client) = (pool(c"device=host; host_capacity=8MiB"), 0, 0);
        ok(vrampool_broker_create(pool, options.into(), Out::from(&mut broker)));
        let (group, share) = (Text::null(), c"100%".into());
        ok(vrampool_broker_register(broker, c"logistic".into(), group, share, Out::from(&mut client)));
        let rates = queue(client, INPUT, c"rates", &[runs], 0);
        let table = queue(client, INPUT, c"table", &[2], -1);
        let states = queue(client, OUTPUT, c"states", &[TIMES, runs], 1);
        let scratch = queue(client, SCRATCH, c"scratch", &[runs], 0);
        let batch = Self { pool, broker, client, rates, table, states, scratch, runs };
        let rates: Vec<u8> = (0..runs).flat_map(|run| batch.rate(run).to_ne_bytes()).collect();
        ok(vrampool_array_write(batch.rates, 0, Bytes::of(&rates), rates.len()));
        let table = [0.25_f32.to_ne_bytes(), 1.0_f32.to_ne_bytes()].concat();
        ok(vrampool_array_write(batch.table, 0, Bytes::of(&table), table.len()));
        batch
    }

    fn rate(&self, run: u64) -> f32 {
        2.0 + run as f32 / self.runs as f32
    }

    fn commit(&self, streams: u64, chunk_runs: u64) -> BrokerPlan {
        let mut plan = BrokerPlan { struct_size: size_of::<BrokerPlan>(), ..BrokerPlan::default() };
        ok(vrampool_broker_commit(self.broker, Text::null(), streams, chunk_runs, Out::from(&mut plan)));
        plan
    }

    fn run(&self, seen: &Seen) -> RunReport {
        let mut report = RunReport { struct_size: size_of::<RunReport>(), ..RunReport::default() };
        let user = ptr::from_ref(seen).cast_mut().cast();
        let (group, progress) = (Text::null(), Some(progress as ProgressCallback));
        ok(vrampool_broker_run(self.broker, group, Some(work), progress, user, Out::from(&mut report)));
        report
    }

    fn seen(&self) -> Seen {
        let &Self { pool, rates, table, states, scratch, .. } = self;
        Seen {
            pool,
            arrays: [rates, table, states, scratch],
            chunks: Mutex::default(),
            progress: Mutex::default(),
        }
    }

    fn check(&self) {
        let count = (TIMES * self.runs * 4) as usize;
        let mut bytes = vec![0; count];
        ok(vrampool_array_read(self.states, 0, BytesOut::of(&mut bytes), count));
        let at = |index: u64| {
            let bytes = &bytes[index as usize * 4..][..4];
            f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        for run in 0..self.runs {
            let mut state = 0.25_f32;
            for time in 0..TIMES {
                state = self.rate(run) * state * (1.0 - state);
                assert_eq!(at(time * self.runs + run), state, "run {run} at {time}");
            }
        }
    }

    fn end(self) {
        ok(vrampool_broker_destroy(self.broker));
        fails(vrampool_client_destroy(self.client), Status::INVALID_HANDLE, "no client");
        for array in [self.rates, self.table, self.states, self.scratch] {
            ok(vrampool_array_free(array));
            fails(vrampool_array_free(array), Status::INVALID_HANDLE, "no array");
        }
        ok(vrampool_destroy(self.pool));
    }
}

/// What the callbacks of a run see.
struct Seen {
    pool: u64,
    arrays: [u64; 4],
    /// First run and number of runs, by chunk.
    chunks: Mutex<BTreeMap<u64, (u64, u64)>>,
    progress: Mutex<Vec<(u64, u64, u64)>>,
}

fn floats<'a>(address: u64, bytes: u64) -> &'a mut [f32] {
    // SAFETY: a part of an array of this chunk on the host device, whose stream was waited for.
    unsafe { std::slice::from_raw_parts_mut(address as *mut f32, bytes as usize / 4) }
}

extern "C" fn work(user: *mut c_void, chunk: *const Chunk) -> Status {
    // SAFETY: the test's `Seen`.
    let seen = unsafe { &*user.cast::<Seen>() };
    // SAFETY: the chunk that the library passes.
    let chunk = unsafe { &*chunk };
    assert_eq!(chunk.struct_size, size_of::<Chunk>());
    ok(vrampool_stream_synchronize(seen.pool, chunk.stream));
    let of = |array: u64| {
        // SAFETY: so many of each.
        let (numbers, addresses, sizes) = unsafe {
            let count = chunk.arrays as usize;
            let of = |start: *const u64| std::slice::from_raw_parts(start, count);
            (of(chunk.array), of(chunk.address), of(chunk.bytes))
        };
        let at = numbers.iter().position(|&number| number == array).expect("each array of the plan");
        floats(addresses[at], sizes[at])
    };
    let [rates, table, states, scratch] = seen.arrays.map(of);
    let runs = chunk.runs as usize;
    assert_eq!(
        [rates.len(), table.len(), states.len(), scratch.len()],
        [runs, 2, TIMES as usize * runs, runs]
    );
    scratch.fill(table[0]);
    for time in 0..TIMES as usize {
        for run in 0..runs {
            scratch[run] = rates[run] * scratch[run] * (table[1] - scratch[run]);
            states[time * runs + run] = scratch[run];
        }
    }
    seen.chunks.lock().expect("no panic").insert(chunk.index, (chunk.first_run, chunk.runs));
    Status::OK
}

extern "C" fn progress(user: *mut c_void, chunks: u64, done: u64, runs: u64) {
    // SAFETY: the test's `Seen`.
    let seen = unsafe { &*user.cast::<Seen>() };
    seen.progress.lock().expect("no panic").push((chunks, done, runs));
}

#[test]
fn a_batch_in_chunks_has_the_results_of_one_in_one_piece() {
    let small = c"budget=64KiB; pinned_max=0; staging_block=64KiB; staging=64KiB";
    for (options, streams, chunk_runs) in [
        (c"", 1, 0),
        (c"", 2, 700),
        (small, 1, 0),
        (small, 3, 0),
        (c"spill_threshold=1", 2, 999),
        (c"reserve=1KiB; name=pinned", 1, 10_000),
    ] {
        let batch = Batch::new(options, 10_000);
        let plan = batch.commit(streams, chunk_runs);
        assert_eq!(
            (plan.struct_size, plan.runs, plan.streams),
            (size_of::<BrokerPlan>(), 10_000, streams.min(plan.chunks))
        );
        assert_eq!(plan.chunks, 10_000_u64.div_ceil(plan.chunk_runs));
        assert!(plan.chunks > 1 || chunk_runs == 0 && options == c"" || chunk_runs == 10_000);
        // Twice, the second one with what the first one left.
        for _ in 0..2 {
            let seen = batch.seen();
            let report = batch.run(&seen);
            assert_eq!((report.chunks, report.runs, report.streams), (plan.chunks, 10_000, plan.streams));
            assert_eq!(report.copied_bytes, 4 * (10_000 + TIMES * 10_000) + 8);
            batch.check();
            let mut next = 0;
            for (index, (chunk, (first, runs))) in seen.chunks.lock().expect("no panic").iter().enumerate() {
                assert_eq!((*chunk, *first), (index as u64, next));
                next += runs;
            }
            assert_eq!(next, 10_000);
            let mut progress = seen.progress.into_inner().expect("no panic");
            progress.sort_unstable();
            assert_eq!(
                (progress.len() as u64, progress.last()),
                (plan.chunks, Some(&(plan.chunks, 10_000, 10_000)))
            );
        }
        batch.end();
    }
}

extern "C" fn refuse(_: *mut c_void, chunk: *const Chunk) -> Status {
    // SAFETY: the chunk that the library passes.
    if unsafe { &*chunk }.index == 1 { Status::CAPTURE } else { Status::OK }
}

/// Says that a chunk is there, and waits until it may go on.
extern "C" fn meet(user: *mut c_void, _: *const Chunk) -> Status {
    // SAFETY: the channels of the test.
    let (here, on) = unsafe { &*user.cast::<(Sender<()>, Mutex<Receiver<()>>)>() };
    here.send(()).expect("the test waits");
    // The test sends, or fails.
    let _ = on.lock().expect("no panic").recv();
    Status::OK
}

#[test]
fn a_run_keeps_its_arrays_and_survives_the_broker() {
    let batch = Batch::new(c"", 100);
    batch.commit(1, 0);
    let ((here, met), (go, on)) = (channel::<()>(), channel::<()>());
    let meeting = (here, Mutex::new(on));
    std::thread::scope(|scope| {
        // Ends with this closure, also if that panics: the run goes on then.
        let go = go;
        let user = ptr::from_ref(&meeting) as usize;
        let broker = batch.broker;
        let run = scope.spawn(move || {
            vrampool_broker_run(broker, Text::null(), Some(meet), None, user as *mut c_void, Out::null())
        });
        met.recv().expect("a chunk");
        let mut byte = [0];
        let mut place = ptr::null_mut();
        let data = vrampool_array_data(batch.states, Out::from(&mut place), Out::null());
        fails(data, Status::BUSY, "a run uses");
        fails(vrampool_array_read(batch.states, 0, BytesOut::of(&mut byte), 1), Status::BUSY, "a run uses");
        fails(vrampool_array_write(batch.rates, 0, Bytes::of(&byte), 1), Status::BUSY, "a run uses");
        let mut plan = BrokerPlan { struct_size: size_of::<BrokerPlan>(), ..BrokerPlan::default() };
        let again = vrampool_broker_commit(broker, Text::null(), 2, 0, Out::from(&mut plan));
        fails(again, Status::BUSY, "running");
        let again = vrampool_broker_run(broker, Text::null(), Some(work), None, ptr::null_mut(), Out::null());
        fails(again, Status::BUSY, "running");
        ok(vrampool_broker_destroy(broker));
        ok(vrampool_array_free(batch.states));
        go.send(()).expect("the run waits");
        ok(run.join().expect("no panic"));
    });
}

#[test]
fn wrong_calls_are_answered() {
    use Status as S;
    let batch = Batch::new(c"", 100);
    let &Batch { pool, broker, client, rates, scratch, .. } = &batch;
    let (mut number, null, group) = (7, ptr::null_mut(), Text::null());
    fails(vrampool_broker_create(pool, Text::null(), Out::null()), S::INVALID_ARGUMENT, "broker");
    fails(vrampool_broker_create(0, Text::null(), Out::from(&mut number)), S::INVALID_HANDLE, "pool 0");
    for (options, text) in [
        (c"moon=1", "use one of name"),
        (c"budget=much", "512MiB"),
        (c"staging=1MiB", "together with staging_block"),
        (c"spill_threshold=0", "spill_threshold"),
        (c"spill_directory=/nowhere", "spill_directory"),
    ] {
        fails(vrampool_broker_create(pool, options.into(), Out::from(&mut number)), S::CONFIGURATION, text);
    }
    let one = Text::from(c"one");
    fails(
        vrampool_broker_register(0, one, group, group, Out::from(&mut number)),
        S::INVALID_HANDLE,
        "no broker 0",
    );
    fails(
        vrampool_broker_register(broker, group, group, group, Out::from(&mut number)),
        S::INVALID_ARGUMENT,
        "name",
    );
    for (share, status, text) in [
        (c"300%", S::INVALID_ARGUMENT, "between 0 and 1"),
        (c"NaN%", S::INVALID_ARGUMENT, "between 0 and 1"),
        (c"moon", S::CONFIGURATION, "512MiB"),
        (c"moon%", S::CONFIGURATION, "25%"),
    ] {
        let client = Out::from(&mut number);
        fails(vrampool_broker_register(broker, one, group, share.into(), client), status, text);
    }
    let queue = |client, role, label, shape, dimensions, axis| {
        let mut array = 7;
        let status =
            vrampool_client_queue(client, role, label, shape, dimensions, 4, axis, Out::from(&mut array));
        assert_eq!(array, 7);
        status
    };
    let shape = Numbers::of(&[100, 2]);
    fails(queue(0, INPUT, one, shape, 2, 0), S::INVALID_HANDLE, "no client");
    fails(queue(client, 9, one, shape, 2, 0), S::INVALID_ARGUMENT, "role");
    fails(queue(client, INPUT, group, shape, 2, 0), S::INVALID_ARGUMENT, "label");
    fails(queue(client, INPUT, one, shape, 33, 0), S::INVALID_ARGUMENT, "at most 32");
    fails(queue(client, INPUT, one, shape, usize::MAX, 0), S::INVALID_ARGUMENT, "at most 32");
    fails(queue(client, INPUT, one, shape, 2, 2), S::INVALID_ARGUMENT, "one of 2 dimensions");
    fails(queue(client, INPUT, one, shape, 2, -2), S::INVALID_ARGUMENT, "one of 2 dimensions");
    fails(queue(client, INPUT, one, Numbers::of(&[0, 1]), 2, 0), S::INVALID_ARGUMENT, "no elements");
    fails(queue(client, INPUT, one, Numbers::of(&[u64::MAX, 9]), 2, 0), S::INVALID_ARGUMENT, "2^64");
    fails(queue(client, INPUT, one, Numbers::of(&[1 << 60]), 1, 0), S::INVALID_ARGUMENT, "file");
    let mut plan = BrokerPlan { struct_size: 39, ..BrokerPlan::default() };
    let short = vrampool_broker_commit(broker, c"other".into(), 0, 0, Out::from(&mut plan));
    fails(short, S::INVALID_ARGUMENT, "struct_size");
    fails(vrampool_broker_commit(broker, group, 0, 0, Out::null()), S::INVALID_ARGUMENT, "plan");
    plan.struct_size = size_of::<BrokerPlan>();
    let none = vrampool_broker_commit(broker, c"other".into(), 0, 0, Out::from(&mut plan));
    fails(none, S::INVALID_ARGUMENT, "nothing is queued");
    let many = vrampool_broker_commit(broker, group, 5000, 0, Out::from(&mut plan));
    fails(many, S::CONFIGURATION, "streams");
    fails(vrampool_broker_run(broker, group, None, None, null, Out::null()), S::INVALID_ARGUMENT, "on_chunk");
    fails(vrampool_broker_run(0, group, Some(work), None, null, Out::null()), S::INVALID_HANDLE, "broker");
    let other = c"other".into();
    let none = vrampool_broker_run(broker, other, Some(work), None, null, Out::null());
    fails(none, S::INVALID_ARGUMENT, "nothing is queued");
    batch.commit(1, 30);
    let stopped = vrampool_broker_run(broker, group, Some(refuse), None, null, Out::null());
    fails(stopped, S::CAPTURE, "CAPTURE for chunk 1");
    batch.run(&batch.seen());
    batch.check();
    let data = |array| vrampool_array_data(array, Out::from(&mut ptr::null_mut()), Out::null());
    fails(data(scratch), S::UNSUPPORTED, "scratch");
    fails(data(0), S::INVALID_HANDLE, "no array 0");
    fails(vrampool_array_data(rates, Out::null(), Out::null()), S::INVALID_ARGUMENT, "address");
    let mut bytes = [0; 8];
    fails(vrampool_array_read(rates, 393, BytesOut::of(&mut bytes), 8), S::INVALID_ARGUMENT, "range");
    fails(vrampool_array_read(rates, u64::MAX, BytesOut::of(&mut bytes), 8), S::INVALID_ARGUMENT, "range");
    fails(vrampool_array_write(rates, 393, Bytes::of(&bytes), 8), S::INVALID_ARGUMENT, "range");
    ok(vrampool_array_free(rates));
    let lacks = vrampool_broker_run(broker, group, Some(work), None, null, Out::null());
    fails(lacks, S::INVALID_ARGUMENT, "`rates`: it has no data");
    // A file has no address.
    let spilled = Batch::new(c"spill_threshold=1", 100);
    fails(data(spilled.states), S::UNSUPPORTED, "vrampool_array_read");
    spilled.end();
    // A batch that does not fit, however it is cut.
    let mut small = 0;
    ok(vrampool_broker_create(pool, c"budget=1KiB".into(), Out::from(&mut small)));
    ok(vrampool_broker_register(small, one, group, group, Out::from(&mut number)));
    let (shape, mut array) = (Numbers::of(&[1000]), 0);
    ok(vrampool_client_queue(number, SCRATCH, one, shape, 1, 4, -1, Out::from(&mut array)));
    let none = vrampool_broker_commit(small, group, 0, 0, Out::from(&mut plan));
    fails(none, S::OUT_OF_MEMORY, "unchunkable");
    ok(vrampool_broker_destroy(small));
    // Nor beyond the limit of the pool.
    let limited = calls::pool(c"device=host; host_capacity=8MiB; source=direct; limit=1KiB");
    ok(vrampool_broker_create(limited, Text::null(), Out::from(&mut small)));
    ok(vrampool_broker_register(small, one, group, group, Out::from(&mut number)));
    ok(vrampool_client_queue(number, SCRATCH, one, shape, 1, 4, -1, Out::from(&mut array)));
    fails(vrampool_broker_commit(small, group, 0, 0, Out::from(&mut plan)), S::OUT_OF_MEMORY, "unchunkable");
    ok(vrampool_broker_destroy(small));
    ok(vrampool_destroy(limited));
    fails(vrampool_broker_get_stats_json(0, Out::from(&mut null.cast())), S::INVALID_HANDLE, "no broker 0");
    fails(vrampool_broker_get_stats_json(broker, Out::null()), S::INVALID_ARGUMENT, "json");
}

fn json(ask: impl FnOnce(Out<'_, *mut c_char>) -> Status) -> serde_json::Value {
    let mut text = ptr::null_mut();
    ok(ask(Out::from(&mut text)));
    // SAFETY: the call returned a text.
    let json = unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").parse().expect("JSON");
    ok(vrampool_string_free(text));
    json
}

#[test]
fn a_broker_is_in_the_statistics_of_its_pool_and_within_its_limit() {
    let of_pool = |pool| json(|text| vrampool_get_stats_json(pool, text));
    for source in ["direct", "virtual"] {
        let options =
            format!("device=host; host_capacity=16MiB; limit=4MiB; size_classes=exact; source={source}");
        let options = std::ffi::CString::new(options).expect("no NUL");
        let (pool, mut broker, mut client, mut block) = (pool(&options), 0, 0, ptr::null_mut());
        ok(vrampool_allocate(pool, 2 << 20, ptr::null_mut(), Out::from(&mut block)));
        ok(vrampool_broker_create(pool, c"name=mine".into(), Out::from(&mut broker)));
        let none = Text::null();
        ok(vrampool_broker_register(broker, c"one".into(), none, none, Out::from(&mut client)));
        queue(client, SCRATCH, c"x", &[4 << 20], 0);
        let mut plan = BrokerPlan { struct_size: size_of::<BrokerPlan>(), ..BrokerPlan::default() };
        ok(vrampool_broker_commit(broker, none, 0, 0, Out::from(&mut plan)));
        let stats = json(|text| vrampool_broker_get_stats_json(broker, text));
        assert_eq!(
            (&stats["broker_held_bytes"], &stats["broker_clients"]),
            (&(2 << 20).into(), &1.into()),
            "{stats}"
        );
        assert_eq!(stats["by_client"][0]["name"], "one", "{stats}");
        assert_eq!(stats["by_client"][0]["broker_client_held_bytes"], stats["pool"]["live_bytes"], "{stats}");
        assert_eq!(of_pool(pool)["live_bytes"], 4 << 20, "{source}");
        ok(vrampool_broker_destroy(broker));
        assert_eq!(of_pool(pool)["live_bytes"], 2 << 20, "{source}");
        ok(vrampool_free(pool, block, ptr::null_mut()));
        ok(vrampool_destroy(pool));
    }
}

/// Made before or after the endpoint is started, a broker is served, and its memory as a child of its pool.
#[test]
#[cfg(feature = "prometheus")]
fn brokers_are_in_the_metrics() {
    use std::io::{Read, Write};
    let before = Batch::new(c"name=early", 100);
    let mut address = ptr::null_mut();
    ok(vrampool_start_metrics_at(c"127.0.0.1:0".into(), Out::from(&mut address)));
    // SAFETY: the call returned a text.
    let served = unsafe { CStr::from_ptr(address) }.to_str().expect("an address");
    let after = Batch::new(c"name=second", 100);
    let mut stream = std::net::TcpStream::connect(served).expect("it is served");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: vrampool\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    for name in ["early", "second"] {
        for label in ["broker", "child"] {
            assert!(text.contains(&format!("{label}=\"{name}\"")), "{name} is missing: {text}");
        }
    }
    ok(vrampool_stop_metrics());
    [before, after].into_iter().for_each(Batch::end);
}
