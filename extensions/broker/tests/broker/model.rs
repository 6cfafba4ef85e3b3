//! Random sequences of calls against an exact model: chunks are as long as they can be, a refusal means that not even one
//! run fits, and every byte of the device is accounted for. Bytes choose the calls, so that a fuzzer may, too.
//!
//! `VRAMPOOL_MODEL_OPERATIONS` sets the number of calls of the test.

use std::collections::BTreeMap;
use vrampool::host::HostDevice;
use vrampool::{Backend, Error, Pool, Source};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Client, ClientHandle, Share};

/// The device's bytes.
const DEVICE: u64 = 256 << 10;
const GROUPS: [&str; 3] = ["one", "two", "three"];
const LABELS: [&str; 4] = ["a", "b", "c", "d"];
/// Arrays are multiples of this many bytes.
const CLASS: u64 = 512;

/// Reads choices from bytes.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    /// A number below `end`; `None` after the last byte.
    fn below(&mut self, end: u64) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some(u64::from(u16::from_le_bytes(*bytes)) % end)
    }
}

/// An array as it was queued: bytes of a run, and whether it may be cut.
#[derive(Debug, Clone, Copy)]
struct Array {
    run_bytes: u64,
    is_cut: bool,
}

struct Member {
    group: usize,
    client: ClientHandle<HostDevice>,
    share: Share,
    queued: BTreeMap<&'static str, Array>,
    committed: BTreeMap<&'static str, Array>,
}

impl Member {
    /// What its next commit plans: queued requests replace committed ones.
    fn wanted(&self) -> impl Iterator<Item = Array> + '_ {
        let kept = self.committed.iter().filter(|(label, _)| !self.queued.contains_key(**label));
        kept.chain(&self.queued).map(|(_, array)| *array)
    }
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    streams: u64,
    most_runs: u64,
}

struct Model {
    device: HostDevice,
    broker: Broker<HostDevice>,
    members: Vec<Member>,
    settings: [Settings; 3],
    /// Of each group, fixed: all its arrays have so many.
    runs: [u64; 3],
}

/// Bytes that arrays hold for `slots` chunks of `len` runs, each rounded up.
fn held(arrays: &[Array], runs: u64, len: u64, slots: u64) -> u64 {
    let round = |bytes: u64| bytes.next_multiple_of(CLASS);
    let bytes = |array: &Array| match array.is_cut {
        true => round(array.run_bytes * len) * slots,
        // Scratch memory: a copy for each stream.
        false => round(array.run_bytes * runs) * slots,
    };
    arrays.iter().map(bytes).sum()
}

impl Model {
    fn new(choices: &mut Choices<'_>) -> Option<Self> {
        let device = HostDevice::builder().memory_limit(DEVICE).build();
        let cached = [u64::MAX, 0][choices.below(2)? as usize];
        let is_virtual = choices.below(2)? == 1 && device.virtual_memory().is_some();
        let source = if is_virtual { Source::Virtual } else { Source::Direct };
        let pool = Pool::builder(&device).source(source).max_cached_bytes(cached).build().expect("a pool");
        let broker = Broker::builder(&pool).build().expect("a broker");
        let runs = [choices.below(2000)? + 2, choices.below(60)? + 2, choices.below(7)? + 2];
        let settings = [Settings { streams: 1, most_runs: u64::MAX }; 3];
        Some(Self { device, broker, members: Vec::new(), settings, runs })
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let (call, group) = (choices.below(20)?, choices.below(3)? as usize);
        match call {
            0..2 if self.members.len() < 6 => self.register(group, choices)?,
            2 if !self.members.is_empty() => {
                let index = choices.below(self.members.len() as u64)? as usize;
                let member = self.members.swap_remove(index);
                drop(member);
                self.forget_empty();
            }
            3..9 if !self.members.is_empty() => self.queue(choices)?,
            9 if !self.members.is_empty() => {
                let index = choices.below(self.members.len() as u64)? as usize;
                let label = LABELS[choices.below(4)? as usize];
                let member = &mut self.members[index];
                let was_there =
                    member.queued.remove(label).is_some() | member.committed.remove(label).is_some();
                assert_eq!(member.client.forget(label).expect("registered"), was_there);
            }
            10 if self.has(group) => {
                self.settings[group].streams = choices.below(5)? + 1;
                let streams = self.settings[group].streams as usize;
                self.broker.set_streams(GROUPS[group], streams).expect("idle");
            }
            11 if self.has(group) => {
                self.settings[group].most_runs = choices.below(self.runs[group] * 2)? + 1;
                self.broker.set_chunk_runs(GROUPS[group], self.settings[group].most_runs).expect("idle");
            }
            12 if !self.members.is_empty() => {
                let index = choices.below(self.members.len() as u64)? as usize;
                let share = share(choices)?;
                // A share that does not go with the others changes nothing.
                if self.members[index].client.set_share(share).is_ok() {
                    self.members[index].share = share;
                }
            }
            13 => {
                self.broker.evict_all().expect("no callback");
                assert_eq!(self.broker.stats().held_bytes, 0);
                assert_eq!(self.free(), DEVICE);
            }
            _ => self.commit(group, choices.below(2)? == 0),
        }
        self.check();
        Some(())
    }

    fn has(&self, group: usize) -> bool {
        self.members.iter().any(|member| member.group == group)
    }

    /// Settings of a group end with its last client.
    fn forget_empty(&mut self) {
        for group in 0..3 {
            if !self.has(group) {
                self.settings[group] = Settings { streams: 1, most_runs: u64::MAX };
            }
        }
    }

    fn register(&mut self, group: usize, choices: &mut Choices<'_>) -> Option<()> {
        let share = share(choices)?;
        let client = Client::new("a").group(GROUPS[group]).share(share);
        if let Ok(client) = self.broker.register(client) {
            let (queued, committed) = Default::default();
            self.members.push(Member { group, client, share, queued, committed });
        }
        Some(())
    }

    fn queue(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let index = choices.below(self.members.len() as u64)? as usize;
        let label = LABELS[choices.below(4)? as usize];
        let array = Array { run_bytes: choices.below(3000)? + 1, is_cut: choices.below(5)? > 0 };
        let member = &mut self.members[index];
        let request =
            ArrayRequest::scratch(label, [self.runs[member.group], array.run_bytes], 1).chunk_axis(0);
        let request = if array.is_cut { request } else { request.chunk_axis(None) };
        member.client.queue(request).expect("queued");
        member.queued.insert(label, array);
        Some(())
    }

    fn commit(&mut self, group: usize, runs_it: bool) {
        let members = || self.members.iter().filter(move |member| member.group == group);
        let arrays: Vec<_> = members().flat_map(Member::wanted).collect();
        // Without new requests a commit may return the plan that there is, whatever others released since.
        let is_new = members().any(|member| !member.queued.is_empty());
        let outcome = self.broker.commit(GROUPS[group]);
        let plan = match outcome {
            Err(BrokerError::NothingQueued { .. }) => return assert!(arrays.is_empty()),
            outcome => outcome,
        };
        let Settings { streams, most_runs } = self.settings[group];
        // Without an array that may be cut there is one run.
        let whole = |array: &Array| Array { run_bytes: array.run_bytes * self.runs[group], ..*array };
        let (runs, arrays) = match arrays.iter().any(|array| array.is_cut) {
            true => (self.runs[group], arrays),
            false => (1, arrays.iter().map(whole).collect()),
        };
        let own: u64 = members().map(|member| member.client.stats().held_bytes).sum();
        let all = self.broker.stats().held_bytes;
        let cap: u64 = members().map(|member| member.client.stats().cap_bytes).sum();
        let is_automatic = |member: &Member| matches!(member.share, Share::Auto | Share::Fixed(0.0));
        let cap = if self.members.iter().all(is_automatic) { u64::MAX } else { cap };
        match plan {
            Ok(plan) => {
                let (len, slots) = (plan.partition().chunk_len(), plan.streams() as u64);
                assert_eq!(plan.partition().runs(), runs);
                assert_eq!(own, held(&arrays, runs, len, slots), "{arrays:?}: {len} runs on {slots}");
                assert!(own <= cap && len <= most_runs && slots <= streams);
                // What it could have had at the end of the commit.
                let room = (DEVICE - (all - own)).min(cap);
                let is_longest = !is_new
                    || len == runs.min(most_runs)
                    || held(&arrays, runs, len + 1, slots) > room
                    || runs.div_ceil(len + 1) < slots
                    // By CuBIE's rule chunks are cut for all streams, though there may be fewer chunks.
                    || slots == runs.div_ceil(len) && slots < streams;
                assert!(is_longest, "{arrays:?}: {len} of {runs} runs on {slots}, and {room} bytes");
                if runs_it {
                    let report = plan.run(|chunk, _| {
                        assert!(!chunk.range().is_empty());
                        Ok(())
                    });
                    let report = report.expect("a run");
                    assert_eq!((report.runs, report.chunks, report.shrinks), (runs, runs.div_ceil(len), 0));
                    assert_eq!((report.copied_bytes, self.broker.stats().staging_bytes), (0, 0));
                }
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                let least = held(&arrays, runs, 1, 1);
                assert!(
                    least > cap.min(DEVICE),
                    "{error}: {least} of {cap}, {arrays:?}, {runs} runs, {streams} streams"
                );
                assert_eq!(own, 0, "a refused commit holds nothing");
                return;
            }
        }
        for member in self.members.iter_mut().filter(|member| member.group == group) {
            member.committed.append(&mut member.queued);
        }
    }

    fn free(&self) -> u64 {
        self.device.memory_info().expect("figures").free_bytes
    }

    /// Every byte of the device is held by a client, idle, or free.
    fn check(&self) {
        let (stats, pool) = (self.broker.stats(), self.broker.pool().stats());
        let held: u64 = self.members.iter().map(|member| member.client.stats().held_bytes).sum();
        assert_eq!((stats.held_bytes, stats.clients), (held, self.members.len()));
        assert_eq!((pool.live_bytes, self.free()), (held, DEVICE - held - pool.idle_bytes));
    }
}

fn share(choices: &mut Choices<'_>) -> Option<Share> {
    Some(match choices.below(3)? {
        0 => Share::Auto,
        1 => Share::Fixed(choices.below(100)? as f64 / 100.0),
        _ => Share::Bytes(choices.below(60_000)? * 4 + 1),
    })
}

/// Makes the calls that the bytes choose. Returns their number.
pub(crate) fn check(bytes: &[u8]) -> Result<u64, Error> {
    let mut choices = Choices(bytes);
    let Some(mut model) = Model::new(&mut choices) else { return Ok(0) };
    let mut calls = 0;
    while model.step(&mut choices).is_some() {
        calls += 1;
    }
    let device = model.device.clone();
    drop(model);
    assert_eq!(device.memory_info()?.free_bytes, DEVICE, "all goes back");
    Ok(calls)
}

#[cfg(test)]
#[test]
fn random_calls_do_what_an_exact_model_does() {
    let operations =
        std::env::var("VRAMPOOL_MODEL_OPERATIONS").map_or(5000, |text| text.parse().expect("a number"));
    let (mut calls, mut seed) = (0, 0);
    while calls < operations {
        let mut rng = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(2000).collect();
        calls += std::panic::catch_unwind(|| check(&bytes).expect("figures"))
            .unwrap_or_else(|_| panic!("the calls of seed {seed}"));
        seed += 1;
    }
}
