//! Virtual memory: address space and physical memory.

use crate::detector::Span;
use crate::pages::identify;
use std::collections::{BTreeMap, HashSet};
use std::ffi::c_int;

/// Physical memory: a file without a name.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) file: c_int,
    /// As what it can be exported: 0 or 1, a file descriptor.
    pub(crate) shareable: c_int,
    pub(crate) direct_rdma: bool,
    /// Handles to it, and the references of each.
    pub(crate) handles: BTreeMap<usize, usize>,
    /// Handles that were imported, which do not report what it can be exported as.
    pub(crate) imported: HashSet<usize>,
    /// Descriptors that it was exported as. It lives while one of them is open in this process.
    pub(crate) exported: Vec<c_int>,
    /// Places where it is mapped.
    pub(crate) mapped: usize,
    /// Whether it came from another process, which accounts for it.
    pub(crate) is_imported: bool,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) physical: u64,
    /// Devices that may read and write it.
    pub(crate) access: HashSet<usize>,
    /// Devices that may read it.
    pub(crate) read_only: HashSet<usize>,
}

#[derive(Debug)]
pub(crate) struct Reservation {
    /// Its number for the detector, by which work that uses its addresses is found.
    pub(crate) backing: u64,
    pub(crate) bytes: u64,
    /// By offset.
    pub(crate) mappings: BTreeMap<u64, Mapping>,
}

impl Physical {
    pub(crate) fn is_exported(&self) -> bool {
        let own = identify(self.file);
        self.exported.iter().any(|&file| identify(file) == own)
    }
}

impl Reservation {
    /// The physical memory behind a range, and the range itself.
    pub(crate) fn spans(&self, start: u64, end: u64, write: bool) -> Vec<Span> {
        let mut spans = vec![Span { backing: self.backing, start, end: end.min(self.bytes), write: false }];
        let first = self.mappings.range(..=start).next_back().map_or(start, |(&first, _)| first);
        for (&offset, mapping) in self.mappings.range(first..end) {
            let (from, to) = (start.max(offset), end.min(offset + mapping.bytes));
            if from < to {
                spans.push(Span { backing: mapping.physical, start: from - offset, end: to - offset, write });
            }
        }
        spans
    }

    pub(crate) fn is_accessible(&self, start: u64, end: u64, device: usize, write: bool) -> bool {
        let allows = |mapping: &Mapping| {
            mapping.access.contains(&device) || (!write && mapping.read_only.contains(&device))
        };
        let mut from = start;
        while from < end {
            match self.mapping_at(from) {
                Some((offset, mapping)) if allows(mapping) => from = offset + mapping.bytes,
                _ => return false,
            }
        }
        true
    }

    pub(crate) fn mapping_at(&self, offset: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=offset).next_back()?;
        (offset - start < mapping.bytes).then_some((start, mapping))
    }

    /// The mappings in a range, unless it cuts one.
    pub(crate) fn uncut(&self, start: u64, end: u64) -> Option<Vec<u64>> {
        let cuts = |at: u64| self.mapping_at(at).is_some_and(|(offset, _)| offset != at);
        (!cuts(start) && !cuts(end))
            .then(|| self.mappings.range(start..end).map(|(&offset, _)| offset).collect())
    }

    /// The mappings that make up a range, if whole ones do.
    pub(crate) fn whole(&self, start: u64, end: u64) -> Option<Vec<u64>> {
        let offsets: Vec<u64> = self.mappings.range(start..end).map(|(&offset, _)| offset).collect();
        let mut at = start;
        for offset in &offsets {
            if *offset != at {
                return None;
            }
            at += self.mappings.get(offset)?.bytes;
        }
        (at == end && !offsets.is_empty()).then_some(offsets)
    }
}
