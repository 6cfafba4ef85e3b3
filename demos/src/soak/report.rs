//! Resource usage of a run, and the check that it stays constant.

use super::cell::{Cell, Turn};
use crate::device::Device;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use vrampool::BackendError;

/// The process's use of the system.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Process {
    mappings: u64,
    address_bytes: u64,
    resident_bytes: u64,
    threads: u64,
}

/// One tenth of a run: sums over all pools, but for `process`, which is the mean of the ends of all turns.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Tenth {
    tenth: u32,
    operations: u64,
    ns_per_operation: f64,
    refused: u64,
    failed: u64,
    corrupt: u64,
    /// Means of the virtual pools' turns, together, and the most that one of them had.
    mappings: u64,
    most_mappings: u64,
    address_bytes: u64,
    most_address_bytes: u64,
    stitched_ranges: u64,
    process: Process,
    #[serde(skip)]
    turns: Vec<Process>,
    #[serde(skip)]
    nanoseconds: u64,
    /// Those that do not depend on the other tenths.
    #[serde(skip)]
    pub(crate) findings: Vec<String>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Whole {
    seed: u64,
    operations: u64,
    refused: u64,
    failed: u64,
    corrupt: u64,
    /// The last tenth over the first; of the time over the second.
    ratios: BTreeMap<&'static str, f64>,
    pub(crate) findings: Vec<String>,
}

impl Process {
    fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/self/status");
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let digits = line.map(|line| line.chars().filter(char::is_ascii_digit).collect::<String>());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        Self {
            mappings: text("/proc/self/maps").lines().count() as u64,
            address_bytes: number("VmSize:") << 10,
            resident_bytes: number("VmRSS:") << 10,
            threads: number("Threads:"),
        }
    }

    fn mean(turns: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> u64| turns.iter().map(of).sum::<u64>() / (turns.len() as u64).max(1);
        Self {
            mappings: mean(|turn| turn.mappings),
            address_bytes: mean(|turn| turn.address_bytes),
            resident_bytes: mean(|turn| turn.resident_bytes),
            threads: mean(|turn| turn.threads),
        }
    }
}

impl Tenth {
    pub(crate) fn new(tenth: u32) -> Self {
        Self { tenth, ..Self::default() }
    }

    /// A pool had its turn.
    pub(crate) fn add<D: Device>(&mut self, cell: &Cell<D>, turn: &Turn) -> Result<(), BackendError> {
        self.operations += turn.operations;
        self.nanoseconds += turn.nanoseconds;
        self.refused += turn.refused;
        self.failed += turn.failed;
        self.corrupt += turn.corrupt.len() as u64;
        let found = turn.corrupt.iter().take(10).map(|found| format!("tenth {}: {found}", self.tenth));
        self.findings.extend(found);
        self.ns_per_operation = self.nanoseconds as f64 / self.operations.max(1) as f64;
        if let Some((mappings, addresses)) = cell.bounds()? {
            let of = |figure: usize| turn.samples.iter().map(move |sample| sample[figure]);
            let most = (of(0).max().unwrap_or(0), of(1).max().unwrap_or(0));
            if most.0 > mappings || most.1 > addresses {
                self.findings.push(format!(
                    "tenth {}: a pool has {} mappings and {} bytes of addresses; its bounds are {mappings} and {addresses}",
                    self.tenth, most.0, most.1
                ));
            }
            let [mappings, address_bytes, stitched_ranges] =
                [0, 1, 2].map(|figure| of(figure).sum::<u64>() / (turn.samples.len() as u64).max(1));
            self.mappings += mappings;
            self.address_bytes += address_bytes;
            self.stitched_ranges += stitched_ranges;
            self.most_mappings = self.most_mappings.max(most.0);
            self.most_address_bytes = self.most_address_bytes.max(most.1);
        }
        self.turns.push(Process::now());
        self.process = Process::mean(&self.turns);
        Ok(())
    }
}

/// A run of an hour or more is to stay below this share of what it took in its second tenth, of time, and in
/// its first, of the process and of addresses. In shorter runs the first tenth of a pool is its warm-up.
const FLAT: f64 = 1.2;
const LONG: Duration = Duration::from_secs(3600);

impl Whole {
    pub(crate) fn of(seed: u64, total: Duration, tenths: &[Tenth], mut findings: Vec<String>) -> Self {
        let sum = |count: fn(&Tenth) -> u64| tenths.iter().map(count).sum();
        let over = |earlier: usize, count: fn(&Tenth) -> f64| match (tenths.get(earlier), tenths.last()) {
            (Some(earlier), Some(last)) => count(last) / count(earlier).max(1.0),
            _ => 1.0,
        };
        findings.extend(tenths.iter().flat_map(|tenth| tenth.findings.clone()));
        let ratios = BTreeMap::from([
            ("time of an operation", over(1, |tenth| tenth.ns_per_operation)),
            ("number of mappings", over(0, |tenth| tenth.process.mappings as f64)),
            ("size of the address space", over(0, |tenth| tenth.process.address_bytes as f64)),
            ("resident memory", over(0, |tenth| tenth.process.resident_bytes as f64)),
            ("number of the pools' mappings", over(0, |tenth| tenth.mappings as f64)),
            ("addresses of the pools", over(0, |tenth| tenth.address_bytes as f64)),
        ]);
        if total >= LONG {
            let grown = ratios.iter().filter(|(_, ratio)| **ratio > FLAT);
            findings.extend(grown.map(|(what, ratio)| format!("the {what} grew {ratio:.2} times")));
        }
        Self {
            seed,
            operations: sum(|tenth| tenth.operations),
            refused: sum(|tenth| tenth.refused),
            failed: sum(|tenth| tenth.failed),
            corrupt: sum(|tenth| tenth.corrupt),
            ratios,
            findings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Growth = (&'static str, fn(&mut Tenth));

    #[test]
    fn growth_in_a_long_run_is_a_finding() {
        let growths: [Growth; 6] = [
            ("time", |tenth| tenth.ns_per_operation *= 1.3),
            ("mappings", |tenth| tenth.process.mappings *= 2),
            ("address space", |tenth| tenth.process.address_bytes *= 2),
            ("resident", |tenth| tenth.process.resident_bytes *= 2),
            ("pools' mappings", |tenth| tenth.mappings *= 2),
            ("addresses of the pools", |tenth| tenth.address_bytes *= 2),
        ];
        let flat = |number| Tenth {
            ns_per_operation: 100.0,
            mappings: 100,
            address_bytes: 100,
            process: Process { mappings: 100, address_bytes: 100, resident_bytes: 100, threads: 1 },
            ..Tenth::new(number)
        };
        for (what, grow) in growths {
            let mut tenths: Vec<_> = (1..=10).map(flat).collect();
            tenths.iter_mut().skip(2).for_each(grow);
            assert_eq!(Whole::of(1, Duration::from_secs(60), &tenths, vec![]).findings, [""; 0]);
            let findings = Whole::of(1, LONG, &tenths, vec![]).findings;
            assert!(matches!(findings.as_slice(), [finding] if finding.contains(what)), "{findings:?}");
        }
    }
}
