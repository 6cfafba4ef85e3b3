//! RMM's log (`logging_resource_adaptor`): `Thread,Time,Action,Pointer,Size,Stream`.

use super::addresses::Addresses;
use super::budget::Budget;
use crate::error::TraceFault;
use crate::error::bounds::RMM_HEADER;
use crate::error::place::Place;
use crate::error::warning::Contradictions;
use crate::file::csv::{Wrong, shown};
use crate::file::event::{Op, TraceEvent};
use crate::file::lines::Lines;
use crate::file::reader::{Trace, field};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Microseconds of a day, after which times of day begin anew.
const DAY: u64 = 24 * 3600 * 1_000_000;

/// The most threads whose times are compared with each other's.
const MAX_THREADS: usize = 1024;

/// Reads all lines. `place` is the one being read.
pub(super) fn read(
    mut lines: Lines<'_>,
    max_events: u32,
    contradictions: Contradictions,
    place: &mut Place,
) -> Result<Trace, TraceFault> {
    let mut addresses = Addresses::new(place, Budget::new(u64::MAX), contradictions, max_events);
    let (mut clock, mut threads) = (Clock::default(), HashMap::new());
    for number in 1.. {
        addresses.place.line = Some(number);
        let Some(text) = lines.next()? else { break };
        if number == 1 && text == RMM_HEADER.as_bytes() {
            continue;
        }
        let (thread, time, event) = entry(text).map_err(|wrong| field(addresses.place, wrong))?;
        let time = clock.read(time);
        let Some(event) = event else { continue };
        // The time of one thread does not go back. Those of different threads are written a little out of order.
        if threads.len() < MAX_THREADS || threads.contains_key(&thread) {
            let last = threads.insert(thread, time).unwrap_or(0);
            addresses.contradictions.note_time(last.saturating_sub(time), addresses.place)?;
        }
        if event.op == Op::Allocate {
            addresses.place.field = addresses.is_live(event.id).then_some("Pointer");
        }
        addresses.enter(TraceEvent { t_us: clock.since_first(time), ..event })?;
    }
    *addresses.place = Place::default();
    addresses.into_trace(Vec::new())
}

/// Reads a line: a hash of its thread's name, the time, and the event without that, whose id is its address. A failure,
/// and the end of an allocation of no bytes, which has no address, are no event.
fn entry(line: &[u8]) -> Result<(u64, Time, Option<TraceEvent>), Wrong> {
    let fields: Vec<&[u8]> = line.splitn(7, |&byte| byte == b',').collect();
    let [thread, time, action, pointer, size, stream] = fields[..] else {
        return Err(unexpected("Thread", "a line of the six fields of RMM's log", line));
    };
    let op = match action {
        b"allocate" => Some(Op::Allocate),
        b"free" | b"deallocate" => Some(Op::Free),
        b"allocate failure" => None,
        other => return Err(unexpected("Action", "`allocate`, `free` or `allocate failure`", other)),
    };
    let (time, id) = (Time::new(time)?, address_of(pointer, "Pointer")?);
    let (size, stream) = (number(size, 10, "Size")?, address_of(stream, "Stream")?);
    // Nothing is at address 0, and it may be the answer to any number of requests of no bytes.
    let op = op.filter(|_| id > 0 || size > 0);
    let event = op.map(|op| TraceEvent { op, id, size, stream, t_us: 0, origin: 0 });
    Ok((BuildHasherDefault::<DefaultHasher>::new().hash_one(thread), time, event))
}

/// Hexadecimal behind `0x`, decimal, or what C's `%p` may write of null.
fn address_of(text: &[u8], field: &'static str) -> Result<u64, Wrong> {
    match text {
        b"(nil)" => Ok(0),
        [b'0', b'x' | b'X', digits @ ..] => number(digits, 16, field),
        digits => number(digits, 10, field),
    }
}

fn number(digits: &[u8], radix: u32, field: &'static str) -> Result<u64, Wrong> {
    // `from_str_radix` takes a sign.
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with(['+', '-']));
    text.and_then(|text| u64::from_str_radix(text, radix).ok())
        .ok_or_else(|| unexpected(field, "a whole number of 64 bits", digits))
}

fn unexpected(field: &'static str, expected: &str, found: &[u8]) -> Wrong {
    let found = shown(found);
    let text = format!("`{found}` is not {expected}; write the fields of an RMM log, `{RMM_HEADER}`");
    (field, TraceFault::invalid(text))
}

/// Microseconds.
#[derive(Clone, Copy)]
enum Time {
    OfDay(u64),
    /// Since whenever.
    Since(u64),
}

impl Time {
    /// `HH:MM:SS.ffffff`, the last point a colon in old logs, or seconds.
    fn new(text: &[u8]) -> Result<Self, Wrong> {
        let wrong = || unexpected("Time", "a time as 12:34:56.123456, or seconds", text);
        let is_point = |byte: &u8| matches!(byte, b':' | b'.');
        let parts: Vec<&[u8]> = text.splitn(5, is_point).collect();
        let points: Vec<u8> = text.iter().copied().filter(|byte| is_point(byte)).take(4).collect();
        let whole = |digits: &[u8]| number(digits, 10, "Time").map_err(|_| wrong());
        let micros = |digits: &[u8]| {
            let six: Vec<u8> = digits.iter().copied().chain(*b"000000").take(6).collect();
            // All of it is to be digits, whatever is taken of it.
            whole(digits)?;
            whole(&six)
        };
        let seconds = |seconds: u64, micros: u64| {
            seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros)).ok_or_else(wrong)
        };
        match (&parts[..], &points[..]) {
            (&[hours, minutes, rest, fraction], [b':', b':', _]) => {
                let [hours, minutes, rest] = [whole(hours)?, whole(minutes)?, whole(rest)?];
                if hours > 23 || minutes > 59 || rest > 60 {
                    return Err(wrong());
                }
                Ok(Self::OfDay(seconds(3600 * hours + 60 * minutes + rest, micros(fraction)?)?))
            }
            (&[since, fraction], b".") => Ok(Self::Since(seconds(whole(since)?, micros(fraction)?)?)),
            (&[since], b"") => Ok(Self::Since(seconds(whole(since)?, 0)?)),
            _ => Err(wrong()),
        }
    }
}

/// Times of day as microseconds that go on behind midnight. Threads write them a little out of order.
#[derive(Default)]
struct Clock {
    began: Option<u64>,
    midnights: u64,
    last: u64,
}

impl Clock {
    /// Microseconds since the first event.
    fn since_first(&mut self, time: u64) -> u64 {
        time.saturating_sub(*self.began.get_or_insert(time))
    }

    fn read(&mut self, time: Time) -> u64 {
        let time = match time {
            Time::Since(time) => return time,
            Time::OfDay(time) => time,
        };
        // Half a day back is midnight. Half a day ahead is a line from before midnight, by a thread
        // that writes it after another one.
        let is_before = time > self.last.saturating_add(DAY / 2) && self.midnights > 0;
        if !is_before {
            self.midnights += u64::from(time + DAY / 2 < self.last);
            self.last = time;
        }
        time.saturating_add((self.midnights - u64::from(is_before)).saturating_mul(DAY))
    }
}
