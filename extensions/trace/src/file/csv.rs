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
    let mut fields = Fields { rest: Some(line) };
    let op = match fields.next("op")? {
        b"a" => Op::Allocate,
        b"f" => Op::Free,
        other => return Err(("op", unknown_op(other))),
    };
    let event = TraceEvent {
        op,
        id: fields.number("id")?,
        size: fields.number("size")?,
        stream: fields.number("stream")?,
        t_us: fields.number("t_us")?,
        origin: 0,
    };
    match (fields.rest, event.op) {
        (None, _) => Ok(event),
        (Some(_), Op::Allocate) if origins > 0 => {
            let number = fields.number("origin")?;
            let origin = u32::try_from(number).ok().filter(|origin| *origin <= origins);
            let unknown = || {
                TraceFault::invalid(format!(
                    "no line `o,POOL,SITE` above is number {number}; define the origin first, or omit the sixth field"
                ))
            };
            let origin = origin.ok_or_else(|| ("origin", unknown()))?;
            if fields.rest.is_none() {
                Ok(TraceEvent { origin, ..event })
            } else {
                Err(("origin", TraceFault::Extra))
            }
        }
        _ => Err(("t_us", TraceFault::Extra)),
    }
}

/// Reads the last line: how many events there are, their checksum, and the allocations that a recording dropped.
pub(crate) fn end(line: &[u8]) -> Result<[u64; 3], Wrong> {
    let mut fields = Fields { rest: Some(line) };
    fields.next("op")?;
    let end = [fields.number("id")?, fields.number("size")?, fields.number("stream")?];
    // Twice, because the checksum does not cover it.
    match (fields.number("t_us")?, fields.rest) {
        (dropped, None) if dropped == end[2] => Ok(end),
        _ => Err(("t_us", TraceFault::Extra)),
    }
}

struct Fields<'a> {
    /// What is behind the last comma; `None` when there was none.
    rest: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn next(&mut self, name: &'static str) -> Result<&'a [u8], Wrong> {
        let rest = self.rest.take().ok_or((name, TraceFault::Missing))?;
        let Some(comma) = rest.iter().position(|&byte| byte == b',') else {
            return Ok(rest);
        };
        self.rest = Some(&rest[comma + 1..]);
        Ok(&rest[..comma])
    }

    fn number(&mut self, name: &'static str) -> Result<u64, Wrong> {
        let text = self.next(name)?;
        number(text).map_err(|fault| (name, fault))
    }
}

/// Digits alone: no sign, no space, no separator.
fn number(text: &[u8]) -> Result<u64, TraceFault> {
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let what = match text {
        [b'-', digits @ ..] if is_digits(digits) => "negative",
        digits if is_digits(digits) => match digits.iter().try_fold(0, add) {
            Some(number) => return Ok(number),
            None => "too large",
        },
        _ => "not a number",
    };
    let (found, max) = (shown(text), u64::MAX);
    Err(TraceFault::invalid(format!("`{found}` is {what}; write a whole number from 0 to {max}")))
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
