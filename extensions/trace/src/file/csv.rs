//! Parsing one line of a trace.

use super::event::{Op, TraceEvent};
use super::origin::Origin;
use crate::error::TraceFault;

/// The operation of the last line: `end,EVENTS,CHECKSUM,DROPPED,DROPPED`.
pub(crate) const END: &[u8] = b"end,";

/// The operation of a line that names an origin: `o,POOL,SITE`.
pub(crate) const ORIGIN: &[u8] = b"o,";

/// The fault and its field.
pub(crate) type Wrong = (&'static str, TraceFault);

/// Reads the pool and the site of a line that [defines an origin](ORIGIN).
pub(crate) fn origin(line: &[u8]) -> Result<Origin, Wrong> {
    let text = std::str::from_utf8(line.get(ORIGIN.len()..).unwrap_or_default());
    let text = text.map_err(|_| ("op", unknown_op(line)))?;
    let (pool, site) = text.split_once(',').ok_or(("site", TraceFault::Missing))?;
    Ok(Origin::new(pool, site))
}

/// Reads one line that is not the header. So many origins have numbers.
pub(crate) fn event(line: &[u8], origins: u32) -> Result<TraceEvent, Wrong> {
    let mut fields = fields(line);
    let op = match next(&mut fields, "op")? {
        b"a" => Op::Allocate,
        b"f" => Op::Free,
        other => return Err(("op", unknown_op(other))),
    };
    let mut number = |name| number(next(&mut fields, name)?, name);
    let [id, size] = [number("id")?, number("size")?];
    let [stream, t_us] = [number("stream")?, number("t_us")?];
    let event = TraceEvent { op, id, size, stream, t_us, origin: 0 };
    let Some(text) = fields.next() else { return Ok(event) };
    if op == Op::Free || origins == 0 {
        return Err(("t_us", TraceFault::Extra));
    }
    let number = self::number(text, "origin")?;
    let Some(origin) = u32::try_from(number).ok().filter(|origin| *origin <= origins) else {
        return Err((
            "origin",
            TraceFault::invalid(format!(
                "no line `o,POOL,SITE` above is number {number}; define the origin first, or omit the sixth field"
            )),
        ));
    };
    match fields.next() {
        None => Ok(TraceEvent { origin, ..event }),
        Some(_) => Err(("origin", TraceFault::Extra)),
    }
}

/// Reads the last line: how many events there are, their checksum, and the allocations that a recording dropped.
pub(crate) fn end(line: &[u8]) -> Result<[u64; 3], Wrong> {
    let mut fields = fields(line);
    next(&mut fields, "op")?;
    let mut number = |name| number(next(&mut fields, name)?, name);
    let end = [number("id")?, number("size")?, number("stream")?];
    // Twice, because the checksum does not cover it.
    match (number("t_us")?, fields.next()) {
        (dropped, None) if dropped == end[2] => Ok(end),
        _ => Err(("t_us", TraceFault::Extra)),
    }
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',')
}

fn next<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, name: &'static str) -> Result<&'a [u8], Wrong> {
    fields.next().ok_or((name, TraceFault::Missing))
}

/// Digits alone: no sign, no space, no separator.
fn number(text: &[u8], field: &'static str) -> Result<u64, Wrong> {
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let digits = str::from_utf8(text).ok().filter(|_| is_digits(text));
    let what = match (digits.map(str::parse), text) {
        (Some(Ok(number)), _) => return Ok(number),
        (Some(Err(_)), _) => "too large",
        (None, [b'-', digits @ ..]) if is_digits(digits) => "negative",
        _ => "not a number",
    };
    let (found, max) = (shown(text), u64::MAX);
    let text = format!("`{found}` is {what}; write a whole number from 0 to {max}");
    Err((field, TraceFault::invalid(text)))
}

fn unknown_op(found: &[u8]) -> TraceFault {
    let found = shown(found);
    TraceFault::invalid(format!(
        "`{found}` is not an operation; write `a` for an allocation or `f` for a free"
    ))
}

/// For a message: whatever is in a file does nothing to a terminal.
pub(crate) fn shown(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}
