//! RMM's log (`logging_resource_adaptor`): `Thread,Time,Action,Pointer,Size,Stream`.

use super::Limits;
use super::addresses::Addresses;
use crate::trace::csv::{Wrong, shown};
use crate::trace::error::Fault;
use crate::trace::event::Event;
use crate::trace::lines::Lines;

/// The first line.
pub(crate) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Microseconds of a day, after which times of day begin anew.
const DAY: u64 = 24 * 3600 * 1_000_000;

/// Reads all lines. `line` is the one being read.
pub(super) fn read(
    lines: &mut Lines<'_>,
    limits: Limits,
    line: &mut u64,
) -> Result<Vec<Event>, (Option<&'static str>, Fault)> {
    let (mut addresses, mut clock) = (Addresses::default(), Clock::default());
    let field = |(field, fault): Wrong| (Some(field), fault);
    loop {
        *line += 1;
        let Some(text) = lines.next().map_err(|fault| (None, fault))? else { break };
        if *line == 1 && text == HEADER.as_bytes() {
            continue;
        }
        let entry = Entry::new(text).map_err(field)?;
        let t_us = clock.read(entry.time);
        match entry.action {
            Action::Free => addresses.free(entry.pointer, entry.size, entry.stream, t_us),
            Action::Allocate => addresses
                .allocate(entry.pointer, entry.size, entry.stream, t_us)
                .map_err(|fault| (Some("Pointer"), fault))?,
            Action::Nothing => {}
        }
        if addresses.count() > u64::from(limits.max_events) {
            return Err((None, Fault::TooManyEvents { max: limits.max_events }));
        }
    }
    Ok(addresses.into_events())
}

struct Entry {
    time: Time,
    action: Action,
    pointer: u64,
    size: u64,
    stream: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Allocate,
    Free,
    /// A failure, or the end of an allocation of no bytes, which has no address.
    Nothing,
}

impl Entry {
    fn new(line: &[u8]) -> Result<Self, Wrong> {
        let fields: Vec<&[u8]> = line.splitn(7, |&byte| byte == b',').collect();
        let [_thread, time, action, pointer, size, stream] = fields[..] else {
            let fault =
                Fault::Unexpected { expected: "a line of the six fields of RMM's log", found: shown(line) };
            return Err(("Thread", fault));
        };
        let action = match action {
            b"allocate" => Action::Allocate,
            b"free" | b"deallocate" => Action::Free,
            b"allocate failure" => Action::Nothing,
            other => {
                let expected = "`allocate`, `free` or `allocate failure`";
                return Err(("Action", Fault::Unexpected { expected, found: shown(other) }));
            }
        };
        let (time, pointer) = (Time::new(time)?, address(pointer, "Pointer")?);
        let (size, stream) = (number(size, 10, "Size")?, address(stream, "Stream")?);
        // Nothing is at address 0, and it may be the answer to any number of requests of no bytes.
        let action = if pointer == 0 && size == 0 { Action::Nothing } else { action };
        Ok(Self { time, action, pointer, size, stream })
    }
}

/// Hexadecimal behind `0x`, decimal, or what C's `%p` may write of null.
fn address(text: &[u8], field: &'static str) -> Result<u64, Wrong> {
    match text {
        b"(nil)" => Ok(0),
        [b'0', b'x' | b'X', digits @ ..] => number(digits, 16, field),
        digits => number(digits, 10, field),
    }
}

fn number(digits: &[u8], radix: u32, field: &'static str) -> Result<u64, Wrong> {
    // `from_str_radix` takes a sign.
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with(['+', '-']));
    text.and_then(|text| u64::from_str_radix(text, radix).ok()).ok_or_else(|| {
        (field, Fault::Unexpected { expected: "a whole number of 64 bits", found: shown(digits) })
    })
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
        let wrong = || {
            let expected = "a time as 12:34:56.123456, or seconds";
            ("Time", Fault::Unexpected { expected, found: shown(text) })
        };
        let parts: Vec<&[u8]> = text.splitn(5, |byte| matches!(byte, b':' | b'.')).collect();
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
        match parts[..] {
            [hours, minutes, rest, fraction] => {
                let [hours, minutes, rest] = [whole(hours)?, whole(minutes)?, whole(rest)?];
                if hours > 23 || minutes > 59 || rest > 60 {
                    return Err(wrong());
                }
                Ok(Self::OfDay(seconds(3600 * hours + 60 * minutes + rest, micros(fraction)?)?))
            }
            [since, fraction] => Ok(Self::Since(seconds(whole(since)?, micros(fraction)?)?)),
            [since] => Ok(Self::Since(seconds(whole(since)?, 0)?)),
            _ => Err(wrong()),
        }
    }
}

/// Times as microseconds since the first. Threads write them a little out of order.
#[derive(Default)]
struct Clock {
    began: Option<u64>,
    midnights: u64,
    last: u64,
}

impl Clock {
    fn read(&mut self, time: Time) -> u64 {
        let time = match time {
            Time::Since(time) => time,
            Time::OfDay(time) => {
                // Half a day back is midnight, and half a day ahead a thread that is late with what was before it.
                let midnights = match time {
                    late if late > self.last.saturating_add(DAY / 2) && self.midnights > 0 => {
                        self.midnights - 1
                    }
                    early => {
                        self.midnights += u64::from(early + DAY / 2 < self.last);
                        self.last = early;
                        self.midnights
                    }
                };
                time.saturating_add(midnights.saturating_mul(DAY))
            }
        };
        time.saturating_sub(*self.began.get_or_insert(time))
    }
}
