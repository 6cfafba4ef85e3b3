//! All readers of files, each against a naive second reader: bytes are refused, or mean the same to both.

pub(crate) mod naive_pickle;
pub(crate) mod naive_rmm;

use flate2::Crc;
use std::collections::{BTreeMap, BTreeSet};
use vrampool_trace::{Format, Import, Op, Trace, fitted};

/// The most events that a checked trace may have.
const EVENTS: u32 = 20_000;

/// Whether it is a free, then id, size, stream and time.
pub(crate) type Row = (bool, u64, u64, u64, u64);

/// Reads any bytes as each format, and as whichever they look like.
pub(crate) fn check_all(bytes: &[u8]) {
    check_csv(bytes);
    check_rmm(bytes);
    check_pickle(bytes);
    check_classes(bytes);
    let _ = import().parse(bytes);
}

/// This crate's own format.
pub(crate) fn check_csv(bytes: &[u8]) {
    compare(&import().format(Format::Csv), bytes, csv);
    if let (Ok(one), Ok(two)) = (Trace::parse(bytes), import().format(Format::Csv).parse(bytes)) {
        assert_eq!(one.events(), two.events());
    }
}

/// RMM's logs.
pub(crate) fn check_rmm(bytes: &[u8]) {
    compare(&import().format(Format::Rmm), bytes, naive_rmm::read);
}

/// PyTorch's snapshots.
pub(crate) fn check_pickle(bytes: &[u8]) {
    compare(&import().format(Format::PyTorch), bytes, |bytes| naive_pickle::read(bytes, None));
    compare(&import().format(Format::PyTorch).device(1), bytes, |bytes| naive_pickle::read(bytes, Some(1)));
}

/// Fitted classes.
pub(crate) fn check_classes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(classes) = fitted::parse(bytes) {
        assert_eq!(naive_classes(text).as_deref(), Some(classes.sizes()));
    }
}

fn import() -> Import {
    Import::new().max_events(EVENTS)
}

/// What is compressed is read as what it decompresses to.
fn compare(import: &Import, bytes: &[u8], naive: impl Fn(&[u8]) -> Option<Vec<Row>>) {
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b]);
    let trace = match import.parse(bytes) {
        Ok(trace) => trace,
        Err(error) => {
            let is_inside =
                |at: Option<u64>| is_compressed || at.is_none_or(|at| at <= bytes.len().max(1) as u64);
            return assert!(is_inside(error.place.offset) && is_inside(error.place.line), "{error}");
        }
    };
    let mut plain = Vec::new();
    let bytes = match is_compressed {
        true => {
            let mut decoder = flate2::read::MultiGzDecoder::new(bytes);
            std::io::Read::read_to_end(&mut decoder, &mut plain).expect("what is read is whole");
            &plain[..]
        }
        false => bytes,
    };
    let row = |event: &vrampool_trace::TraceEvent| {
        (event.op == Op::Free, event.id, event.size, event.stream, event.t_us)
    };
    let rows: Vec<Row> = trace.events().iter().map(row).collect();
    assert_eq!(Some(&rows), naive(bytes).as_ref());
    let (mut live, mut sizes, mut peak) = (0u64, BTreeMap::new(), 0);
    for (is_free, id, size, ..) in rows {
        match is_free {
            false => {
                live += size;
                assert!(sizes.insert(id, size).is_none(), "an id names one allocation");
            }
            true => live -= sizes.get(&id).expect("what is freed was allocated"),
        }
        peak = peak.max(live);
    }
    assert_eq!(trace.peak_requested(), peak);
}

fn csv(bytes: &[u8]) -> Option<Vec<Row>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let lines: Vec<&str> = text.strip_suffix('\n')?.split('\n').collect();
    let mut lines: Vec<&str> =
        lines.into_iter().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    match lines.remove(0) {
        "op,id,size,stream,t_us" => {}
        "op,id,size,stream,t_us,v2" => {
            let end = lines.pop()?;
            let mut sum = Crc::new();
            lines.iter().for_each(|line| sum.update(format!("{line}\n").as_bytes()));
            let numbers: Vec<u64> =
                end.strip_prefix("end,")?.split(',').map(|text| text.parse().ok()).collect::<Option<_>>()?;
            let events = lines.iter().filter(|line| !line.starts_with("o,")).count() as u64;
            if numbers != [events, sum.sum().into(), 0, 0] {
                return None;
            }
        }
        _ => return None,
    }
    let (mut origins, mut rows) = (0, Vec::new());
    for line in lines {
        if line.starts_with("o,") {
            // Two commas.
            line.split(',').nth(2)?;
            origins += 1;
            continue;
        }
        let mut fields = line.split(',');
        let op = fields.next()?;
        let numbers: Vec<u64> = fields.map(|text| text.parse().ok()).collect::<Option<_>>()?;
        let (id, size, stream, t_us) = match numbers[..] {
            [id, size, stream, t_us] => (id, size, stream, t_us),
            [id, size, stream, t_us, origin] if op == "a" && origin <= origins => (id, size, stream, t_us),
            _ => return None,
        };
        let is_free = ["a", "f"].iter().position(|&known| known == op)? == 1;
        rows.push((is_free, id, size, stream, t_us));
    }
    Some(rows)
}

fn naive_classes(text: &str) -> Option<Vec<u64>> {
    let mut lines: Vec<&str> = text.strip_suffix('\n')?.split('\n').collect();
    let header = lines.remove(0);
    let words = lines.iter().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if header.trim_end_matches('\r') == "vrampool fitted classes 2" {
        let end = words.pop()?;
        let mut sum = Crc::new();
        words.iter().for_each(|word| sum.update(format!("{}\n", word.trim_start_matches('0')).as_bytes()));
        assert_eq!(end, format!("end {} {:08x}", words.len(), sum.sum()));
    }
    let sizes: Vec<u64> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let set: BTreeSet<u64> = sizes.iter().copied().collect();
    (set.into_iter().eq(sizes.iter().copied()) && !sizes.contains(&0)).then_some(sizes)
}

/// What addresses mean, with everything in plain maps: in the order of events, then what stays.
#[derive(Default)]
pub(crate) struct Ledger {
    before: Vec<(u64, u64)>,
    /// Whether it is a free, which allocation, size, stream, time. Those before have negative names.
    rows: Vec<(bool, i64, u64, u64, u64)>,
    /// Name and size of what is live; none where something was.
    at: BTreeMap<u64, Option<(i64, u64)>>,
    recorded: i64,
}

impl Ledger {
    /// `None` where something is live there.
    pub(crate) fn allocate(&mut self, address: u64, size: u64, stream: u64, t_us: u64) -> Option<()> {
        if let Some(Some(_)) = self.at.get(&address) {
            return None;
        }
        self.at.insert(address, Some((self.recorded, size)));
        self.rows.push((false, self.recorded, size, stream, t_us));
        self.recorded += 1;
        Some(())
    }

    /// A second free is left out.
    pub(crate) fn free(&mut self, address: u64, size: u64, stream: u64, t_us: u64) {
        let (name, size) = match self.at.get(&address) {
            Some(None) => return,
            Some(Some(live)) => *live,
            None => (self.was_there(size, stream), size),
        };
        self.at.insert(address, None);
        self.rows.push((true, name, size, stream, t_us));
    }

    /// It is live at the end.
    pub(crate) fn stays(&mut self, address: u64, size: u64, stream: u64) {
        if !self.at.contains_key(&address) {
            let name = self.was_there(size, stream);
            self.at.insert(address, Some((name, size)));
        }
    }

    fn was_there(&mut self, size: u64, stream: u64) -> i64 {
        self.before.push((size, stream));
        -(self.before.len() as i64)
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        let mut streams = Vec::new();
        let mut number = |stream: u64| {
            let known = streams.iter().position(|&known| known == stream);
            known.unwrap_or_else(|| {
                streams.push(stream);
                streams.len() - 1
            }) as u64
        };
        let before = self.before.len() as i64;
        let mut rows = Vec::new();
        for (id, (size, stream)) in self.before.into_iter().enumerate() {
            rows.push((false, id as u64, size, number(stream), 0));
        }
        for (is_free, name, size, stream, t_us) in self.rows {
            let id = if name < 0 { -1 - name } else { before + name };
            rows.push((is_free, id as u64, size, number(stream), t_us));
        }
        rows
    }
}
