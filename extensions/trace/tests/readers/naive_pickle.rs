//! PyTorch's snapshots, read naively: everything is kept, and looked up by comparing text.

use super::{Ledger, Row};
use std::collections::BTreeMap;

/// Lists and dictionaries are numbers of nodes, so that nothing that a pickle ties in circles is dropped
/// recursively.
#[derive(Clone, PartialEq)]
enum Value {
    Number(i128),
    Text(Vec<u8>),
    List(usize),
    Dictionary(usize),
    Other,
}

use Value::{Dictionary, List, Number, Other, Text};

struct Reader<'a> {
    bytes: &'a [u8],
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: BTreeMap<u64, Value>,
    /// Of a dictionary keys and values in turn.
    nodes: Vec<Vec<Value>>,
}

pub(crate) fn read(bytes: &[u8], device: Option<usize>) -> Option<Vec<Row>> {
    let mut reader = Reader { bytes, stack: vec![], marks: vec![], memo: BTreeMap::new(), nodes: vec![] };
    while reader.step()? {}
    let root = reader.stack.pop()?;
    if !reader.bytes.is_empty() {
        return None;
    }
    reader.snapshot(&root, device)
}

impl Reader<'_> {
    fn take(&mut self, count: u64) -> Option<Vec<u8>> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(count).ok()?)?;
        self.bytes = rest;
        Some(taken.to_vec())
    }

    fn length(&mut self, bytes: u64) -> Option<u64> {
        Some(self.take(bytes)?.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn signed(&mut self, bytes: u64) -> Option<Value> {
        let bytes = self.take(bytes)?;
        if bytes.len() > 16 {
            return Some(Other);
        }
        let sign = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut whole = [if sign { 0xff } else { 0 }; 16];
        whole[..bytes.len()].copy_from_slice(&bytes);
        Some(Number(i128::from_le_bytes(whole)))
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().position(|&byte| byte == b'\n')?;
        let line = self.take(end as u64)?;
        self.take(1)?;
        Some(line)
    }

    fn decimal(&mut self) -> Option<Option<i128>> {
        let line = self.line()?;
        let text = if line.len() > 64 { None } else { std::str::from_utf8(&line).ok() };
        Some(text.and_then(|text| text.strip_suffix('L').unwrap_or(text).parse().ok()))
    }

    fn node(&mut self, items: Vec<Value>) -> usize {
        self.nodes.push(items);
        self.nodes.len() - 1
    }

    fn above_mark(&mut self) -> Option<Vec<Value>> {
        let mark = self.marks.pop()?;
        Some(self.stack.split_off(mark))
    }

    fn put(&mut self, place: u64) -> Option<()> {
        self.memo.insert(place, self.stack.last()?.clone());
        Some(())
    }

    fn extend(&mut self, items: Vec<Value>) -> Option<()> {
        match *self.stack.last()? {
            List(node) | Dictionary(node) => self.nodes[node].extend(items),
            _ => return None,
        }
        Some(())
    }

    /// Whether it goes on.
    fn step(&mut self) -> Option<bool> {
        let opcode = self.take(1)?[0];
        let made = match opcode {
            b'.' => return Some(false),
            b'(' => {
                self.marks.push(self.stack.len());
                return Some(true);
            }
            0x80 => return self.take(1).map(|_| true),
            0x95 => return self.take(8).map(|_| true),
            b'0' => {
                match self.marks.last() {
                    Some(&mark) if mark == self.stack.len() => drop(self.marks.pop()),
                    _ => drop(self.stack.pop()?),
                }
                return Some(true);
            }
            b'1' => return self.above_mark().map(|_| true),
            b'2' => self.stack.last()?.clone(),
            b'N' | 0x88 | 0x89 => Other,
            b'I' | b'L' => self.decimal()?.map_or(Other, Number),
            b'J' => self.signed(4)?,
            b'K' => Number(self.length(1)?.into()),
            b'M' => Number(self.length(2)?.into()),
            0x8a | 0x8b => {
                let count = self.length(if opcode == 0x8a { 1 } else { 4 })?;
                self.signed(count)?
            }
            b'F' | b'S' | b'V' => {
                let line = self.line()?;
                let quoted = |quote: u8| line.strip_prefix(&[quote])?.strip_suffix(&[quote]);
                let text = quoted(b'\'').or(quoted(b'"')).map(<[u8]>::to_vec);
                Text(text.unwrap_or(line))
            }
            b'G' => self.take(8).map(|_| Other)?,
            b'U' | b'C' | 0x8c | b'T' | b'B' | b'X' | 0x8d | 0x8e | 0x96 => {
                let bytes = match opcode {
                    b'U' | b'C' | 0x8c => 1,
                    b'T' | b'B' | b'X' => 4,
                    _ => 8,
                };
                let count = self.length(bytes)?;
                Text(self.take(count)?)
            }
            b']' | b')' => List(self.node(vec![])),
            b'}' => Dictionary(self.node(vec![])),
            b'l' | b't' | b'd' => {
                let items = self.above_mark()?;
                let node = self.node(items);
                if opcode == b'd' { Dictionary(node) } else { List(node) }
            }
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(opcode - 0x84))?;
                let items = self.stack.split_off(from);
                List(self.node(items))
            }
            b'a' | b's' => {
                let from = self.stack.len().checked_sub(if opcode == b'a' { 1 } else { 2 })?;
                let items = self.stack.split_off(from);
                return self.extend(items).map(|()| true);
            }
            b'e' | b'u' => {
                let items = self.above_mark()?;
                return self.extend(items).map(|()| true);
            }
            b'g' | b'h' | b'j' => {
                let place = match opcode {
                    b'g' => u64::try_from(self.decimal()??).ok()?,
                    b'h' => self.length(1)?,
                    _ => self.length(4)?,
                };
                self.memo.get(&place)?.clone()
            }
            b'p' | b'q' | b'r' | 0x94 => {
                let place = match opcode {
                    b'p' => u64::try_from(self.decimal()??).ok()?,
                    b'q' => self.length(1)?,
                    b'r' => self.length(4)?,
                    _ => self.memo.len() as u64,
                };
                return self.put(place).map(|()| true);
            }
            _ => return None,
        };
        self.stack.push(made);
        Some(true)
    }

    fn list(&self, value: &Value) -> Option<&[Value]> {
        if let List(node) = value { Some(&self.nodes[*node]) } else { None }
    }

    /// The last of several.
    fn get(&self, value: &Value, key: &str) -> Option<&Value> {
        let Dictionary(node) = value else { return None };
        let mut pairs = self.nodes[*node].chunks_exact(2).rev();
        pairs.find(|pair| pair[0] == Text(key.into())).map(|pair| &pair[1])
    }

    fn number(&self, value: &Value, key: &str) -> Option<i128> {
        if let Some(Number(number)) = self.get(value, key) { Some(*number) } else { None }
    }

    fn snapshot(&self, root: &Value, device: Option<usize>) -> Option<Vec<Row>> {
        let (traces, segments) = match self.list(root) {
            Some(segments) => (&[][..], segments),
            None => (self.list(self.get(root, "device_traces")?)?, self.list(self.get(root, "segments")?)?),
        };
        let has_events = |trace: &Value| self.list(trace).is_some_and(|events| !events.is_empty());
        let device_of = |segment: &Value| self.number(segment, "device").unwrap_or(0);
        let of_segments = || segments.iter().map(device_of).filter(|&device| device >= 0).min();
        let device = device.or_else(|| traces.iter().position(has_events));
        let device = device.or_else(|| usize::try_from(of_segments()?).ok()).unwrap_or(0);
        let (mut ledger, mut first) = (Ledger::default(), None);
        for event in traces.get(device).map_or(Some(&[][..]), |trace| self.list(trace))? {
            let is_free = match self.get(event, "action")? {
                Text(action) if action == b"alloc" => false,
                Text(action) if action == b"free_requested" => true,
                _ => continue,
            };
            let (address, size) = (self.number(event, "addr")? as u64, self.number(event, "size")? as u64);
            let stream = self.number(event, "stream").unwrap_or(0) as u64;
            let time = self.number(event, "time_us").unwrap_or(0);
            let t_us = u64::try_from((time - *first.get_or_insert(time)).max(0)).unwrap_or(u64::MAX);
            match is_free {
                true => ledger.free(address, size, stream, t_us),
                false => ledger.allocate(address, size, stream, t_us)?,
            }
        }
        for segment in segments.iter().filter(|segment| device_of(segment) == device as i128) {
            let mut address = self.number(segment, "address")? as u64;
            let stream = self.number(segment, "stream").unwrap_or(0) as u64;
            for block in self.list(self.get(segment, "blocks")?)? {
                let size = self.number(block, "size")? as u64;
                address = self.number(block, "address").map_or(address, |address| address as u64);
                if self.get(block, "state") == Some(&Text(b"active_allocated".to_vec())) {
                    let requested = self.number(block, "requested_size").map_or(size, |size| size as u64);
                    ledger.stays(address, requested, stream);
                }
                address = address.wrapping_add(size);
            }
        }
        Some(ledger.into_rows())
    }
}
