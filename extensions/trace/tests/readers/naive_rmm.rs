//! RMM's logs, read naively.

use super::{Ledger, Row};

const DAY: u64 = 86_400_000_000;

pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Row>> {
    // A thread may have any name.
    let text = String::from_utf8_lossy(bytes);
    let mut ledger = Ledger::default();
    let (mut midnights, mut last, mut first) = (0, 0, None);
    let lines = text.strip_suffix('\n').map(|text| text.split('\n').collect::<Vec<_>>());
    for (place, line) in lines.unwrap_or_default().into_iter().enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if place == 0 && line == "Thread,Time,Action,Pointer,Size,Stream" {
            continue;
        }
        let fields: Vec<&str> = line.split(',').collect();
        let [_, time, action, pointer, size, stream] = fields[..] else { return None };
        let mut at = microseconds(time)?;
        if time.matches(':').count() > 1 {
            if at > last + DAY / 2 && midnights > 0 {
                at += (midnights - 1) * DAY;
            } else {
                midnights += u64::from(at + DAY / 2 < last);
                last = at;
                at += midnights * DAY;
            }
        }
        let (pointer, size, stream) = (number(pointer)?, size.parse().ok()?, number(stream)?);
        if action == "allocate failure" || pointer == 0 && size == 0 {
            continue;
        }
        let t_us = at.saturating_sub(*first.get_or_insert(at));
        match action {
            "allocate" => ledger.allocate(pointer, size, stream, t_us)?,
            "free" | "deallocate" => ledger.free(pointer, size, stream, t_us),
            _ => return None,
        }
    }
    Some(ledger.into_rows())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        _ if text == "(nil)" => Some(0),
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn microseconds(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let (seconds, fraction) = match parts[..] {
        [hours, minutes, seconds, fraction] => {
            let part = |text: &str| text.parse::<u64>().ok();
            (part(hours)? * 3600 + part(minutes)? * 60 + part(seconds)?, fraction)
        }
        [seconds, fraction] => (seconds.parse().ok()?, fraction),
        [seconds] => (seconds.parse().ok()?, "0"),
        _ => return None,
    };
    Some(seconds * 1_000_000 + format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?)
}
