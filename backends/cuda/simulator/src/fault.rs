//! Faults on demand: the n-th call of a function, or of any function, fails with a chosen code.

use crate::code::Code;
use std::collections::HashMap;
use std::ffi::c_int;

/// A fault among all calls passes it by: it undoes a push that was done, and a caller could make up for its
/// failure by nothing. [`Faults::fail_function`] still makes it fail.
const NEVER: &str = "cuCtxPopCurrent_v2";

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Calls so far, by function.
    calls: HashMap<&'static str, u64>,
    total: u64,
    planned: Vec<(String, u64, c_int)>,
    /// Calls that may fail until one does, and its code.
    next: Option<(u64, c_int)>,
    /// The function that failed last.
    last: Option<&'static str>,
    /// Calls that may fail, so far.
    fallible: u64,
}

impl Faults {
    pub(crate) fn new(planned: Vec<(String, u64, c_int)>) -> Self {
        Self { planned, ..Self::default() }
    }

    /// Counts a call of `name`, and returns its number among all calls.
    pub(crate) fn count(&mut self, name: &'static str) -> u64 {
        *self.calls.entry(name).or_default() += 1;
        self.total += 1;
        self.total
    }

    /// The code that this call of `name`, which was counted, is to return.
    pub(crate) fn due(&mut self, name: &'static str) -> Option<Code> {
        let number = self.calls.get(name).copied().unwrap_or(0);
        if let Some((_, _, code)) =
            self.planned.iter().find(|(function, n, _)| function == name && *n == number)
        {
            self.last = Some(name);
            return Some(Code(*code));
        }
        if name == NEVER {
            return None;
        }
        self.fallible += 1;
        match &mut self.next {
            Some((0, code)) => {
                let code = Code(*code);
                (self.next, self.last) = (None, Some(name));
                Some(code)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }

    /// Has the call after the next `skip` fallible calls fail with `code`; 0 takes the plan back.
    pub(crate) fn fail_next(&mut self, skip: u64, code: c_int) {
        self.next = (code != 0).then_some((skip, code));
        self.last = None;
    }

    /// Has the `nth` call of `function` from now on fail with `code`.
    pub(crate) fn fail_function(&mut self, function: &str, nth: u64, code: c_int) {
        let so_far = self.calls.get(function).copied().unwrap_or(0);
        self.planned.push((function.into(), so_far + nth, code));
    }

    /// Calls of `function` so far.
    pub(crate) fn calls(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }

    /// Calls that a fault can be planned for, so far.
    pub(crate) fn fallible(&self) -> u64 {
        self.fallible
    }

    /// The function that the last fault was in.
    pub(crate) fn last(&self) -> Option<&'static str> {
        self.last
    }
}
