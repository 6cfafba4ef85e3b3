//! A trace compiled to replay steps: table indices instead of ids, streams numbered from 0.

use super::file::event::Op;
use super::file::reader::Trace;
use std::collections::HashMap;

/// One event, in 16 bytes. A `slot` is a place in the table of live buffers, empty before its allocation and
/// after its free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Allocate {
        size: u64,
        slot: u32,
        stream: u16,
    },
    Free {
        slot: u32,
    },
    /// A free by another stream than the allocation's: that stream used the buffer last.
    FreeOn {
        slot: u32,
        stream: u16,
    },
}

#[derive(Debug)]
pub(crate) struct Program {
    /// The n-th is the trace's n-th event.
    pub(crate) steps: Vec<Step>,
    /// Number of slots: the peak number of live buffers.
    pub(crate) slots: usize,
    /// Number of streams.
    pub(crate) streams: usize,
}

impl Program {
    pub(crate) fn new(trace: &Trace) -> Self {
        // The slot that was freed last is used first, so that the table stays short and its used part in the cache.
        let (mut free, mut slots) = (Vec::new(), 0);
        let mut live: HashMap<u64, (u32, u16)> = HashMap::new();
        let mut streams: HashMap<u64, u16> = HashMap::new();
        let mut steps = Vec::with_capacity(trace.events().len());
        for event in trace.events() {
            // At most `MAX_STREAMS`, so it fits.
            let next = streams.len() as u16;
            let stream = *streams.entry(event.stream).or_insert(next);
            steps.push(match event.op {
                Op::Allocate => {
                    let slot = free.pop().unwrap_or(slots);
                    slots = slots.max(slot + 1);
                    live.insert(event.id, (slot, stream));
                    Step::Allocate { size: event.size, slot, stream }
                }
                Op::Free => {
                    // A trace frees what is live: its reader made sure.
                    let Some((slot, own)) = live.remove(&event.id) else { continue };
                    free.push(slot);
                    if own == stream { Step::Free { slot } } else { Step::FreeOn { slot, stream } }
                }
            });
        }
        Self { steps, slots: slots as usize, streams: streams.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_streams_are_dense() {
        let csv = "op,id,size,stream,t_us\n\
                   a,9,10,77,0\na,8,20,5,0\nf,9,10,77,0\na,7,30,77,0\nf,8,20,77,0\n";
        let program = Program::new(&Trace::parse(csv.as_bytes()).expect("a valid trace"));
        let steps = [
            Step::Allocate { size: 10, slot: 0, stream: 0 },
            Step::Allocate { size: 20, slot: 1, stream: 1 },
            Step::Free { slot: 0 },
            Step::Allocate { size: 30, slot: 0, stream: 0 },
            Step::FreeOn { slot: 1, stream: 0 },
        ];
        assert_eq!((program.steps.as_slice(), program.slots, program.streams), (&steps[..], 2, 2));
        assert_eq!(size_of::<Step>(), 16);
    }
}
