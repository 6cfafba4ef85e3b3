//! The lines of code in a snapshot's frames.

use super::budget::Budget;
use super::pickle_value::{Item, Node, Value};
use super::snapshot_keys::SnapshotKey;
use crate::error::TraceFault;
use crate::error::bounds::MAX_ORIGINS;
use crate::file::origin::Origin;
use std::collections::HashMap;
use std::mem;

/// The most bytes of a function's name.
const FUNCTION_BYTES: usize = 64;

/// Beginnings of names in PyTorch's and Python's own C++.
const OWN: [&str; 7] = ["torch::", "c10::", "at::", "caffe2::", "pybind11::", "THP", "_Py"];

/// Texts of frames, and the sites that they name: of a list of frames the innermost that is not PyTorch's or Python's
/// own C or C++.
#[derive(Debug, Default)]
pub(super) struct Sites {
    texts: Vec<u8>,
    /// From 1.
    numbers: HashMap<Vec<u8>, u32>,
}

impl Sites {
    /// The most bytes of a text: of a file's name the last ones.
    pub(super) const TEXT_BYTES: usize = 100;

    pub(super) fn keep(&mut self, text: &[u8], budget: &mut Budget) -> Result<Value, TraceFault> {
        budget.room(&mut self.texts, text.len())?;
        let start = u32::try_from(self.texts.len());
        self.texts.extend_from_slice(text);
        Ok(start.map_or(Value::Other, |start| Value::Text { start, length: text.len() as u16 }))
    }

    /// Replaces a list of frames, and each of them, by the number of its site.
    pub(super) fn reduce(
        &mut self,
        nodes: &mut [Node],
        list: Value,
        budget: &mut Budget,
    ) -> Result<Value, TraceFault> {
        let Value::List(list) = list else { return Ok(Value::Other) };
        let frames = match nodes.get_mut(list as usize) {
            Some(Node::Site(number)) => return Ok(Value::Site(*number)),
            Some(Node::Items(frames)) if !frames.is_empty() => mem::take(frames),
            _ => return Ok(Value::Other),
        };
        let mut site = 0;
        for frame in &frames {
            let of_frame = self.of_frame(nodes, frame.value, budget)?;
            site = if site == 0 { of_frame } else { site };
        }
        budget.dropped(&frames);
        nodes[list as usize] = Node::Site(site);
        Ok(Value::Site(site))
    }

    fn of_frame(&mut self, nodes: &mut [Node], frame: Value, budget: &mut Budget) -> Result<u32, TraceFault> {
        let Value::Dictionary(frame) = frame else { return Ok(0) };
        let entries = match nodes.get_mut(frame as usize) {
            Some(Node::Site(number)) => return Ok(*number),
            Some(Node::Items(entries)) => entries,
            _ => return Ok(0),
        };
        let (mut file, mut function, mut line) = (&b""[..], &b""[..], String::new());
        for Item { key, value } in entries.iter() {
            let text = match *value {
                Value::Text { start, length } => self
                    .texts
                    .get(start as usize..)
                    .and_then(|texts| texts.get(..length.into()))
                    .unwrap_or_default(),
                Value::Key(key) => key.text().as_bytes(),
                _ => b"",
            };
            match key {
                Some(SnapshotKey::Filename) => file = text,
                Some(SnapshotKey::Name) => function = text,
                Some(SnapshotKey::Line) => {
                    line = value.number().map_or_else(String::new, |line| format!(":{line}"))
                }
                _ => return Ok(0),
            }
        }
        let function = function.get(..FUNCTION_BYTES).unwrap_or(function);
        let mut site = Vec::new();
        if !is_own(&String::from_utf8_lossy(function), &String::from_utf8_lossy(file)) {
            let parts = [function, b" at ", file, line.as_bytes()];
            budget.room(&mut site, parts.iter().map(|part| part.len()).sum())?;
            parts.into_iter().for_each(|part| site.extend_from_slice(part));
        }
        budget.dropped(entries);
        let number = self.number(site, budget)?;
        nodes[frame as usize] = Node::Site(number);
        Ok(number)
    }

    fn number(&mut self, site: Vec<u8>, budget: &mut Budget) -> Result<u32, TraceFault> {
        let known = self.numbers.get(&site).copied();
        if site.is_empty() || known.is_some() || self.numbers.len() == MAX_ORIGINS {
            budget.dropped(&site);
            return Ok(known.unwrap_or(0));
        }
        budget.room_in_map(&mut self.numbers)?;
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(site, number);
        Ok(number)
    }

    /// In the order of their numbers.
    pub(super) fn into_origins(self) -> Vec<Origin> {
        let mut sites: Vec<_> = self.numbers.into_iter().collect();
        sites.sort_unstable_by_key(|(_, number)| *number);
        sites.into_iter().map(|(site, _)| Origin::new("", &String::from_utf8_lossy(&site))).collect()
    }
}

/// Whether a frame is of PyTorch's or Python's own C or C++.
fn is_own(function: &str, file: &str) -> bool {
    let is_python = file.ends_with(".py") || file.starts_with('<');
    // Without the type that it returns, and its parameters.
    let name = function.split(['(', '<']).next().and_then(|head| head.split(' ').next_back());
    let is_named = name.is_some_and(|name| OWN.iter().any(|own| name.starts_with(own)));
    !is_python && (matches!(file, "" | "??") || file.ends_with(".c") || is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_framework_are_skipped() {
        for (function, file) in [
            ("c10::cuda::CUDACachingAllocator::malloc(unsigned long)", "CUDACachingAllocator.cpp"),
            ("void at::native::gpu_kernel<at::TensorIterator>(int)", "Loops.cuh"),
            ("at::(anonymous namespace)::empty()", "RegisterCUDA.cpp"),
            ("torch::unwind::unwind()", "??"),
            ("cfunction_call", "/usr/src/Python/Objects/methodobject.c"),
            ("_PyEval_EvalFrameDefault", "ceval.cc"),
        ] {
            assert!(is_own(function, file), "{function} at {file}");
        }
        for (function, file) in [
            ("forward", "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"),
            ("<module>", "<stdin>"),
            ("my_op(at::Tensor const&)", "my_op.cpp"),
            ("Mat::resize(int)", "mat.cu"),
        ] {
            assert!(!is_own(function, file), "{function} at {file}");
        }
    }
}
