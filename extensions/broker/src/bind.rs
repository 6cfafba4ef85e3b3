//! The device memory of a plan, split by stream, and the data of its arrays.

use crate::chunk_order::{Piece, Rows};
use crate::data::Data;
use crate::error::BrokerError;
use crate::id::ArrayId;
use crate::request::Role;
use crate::slot::{StreamSlot, unknown};
use crate::state::{Grant, Held};
use vrampool_backend::Backend;

/// Splits a run's memory by stream, and returns the memory that all streams share.
pub(super) fn sort<B: Backend>(
    grant: &Grant,
    streams: &[B::Stream],
    memory: Vec<Held<B>>,
) -> (Vec<StreamSlot<B>>, Vec<Option<Held<B>>>) {
    let none = || grant.arrays.iter().map(|_| None).collect::<Vec<_>>();
    let len = grant.partition.chunk_len();
    let slot = |(index, stream): (usize, &B::Stream)| StreamSlot {
        index,
        stream: stream.clone(),
        len,
        memory: none(),
    };
    let mut slots: Vec<_> = streams.iter().take(grant.slots).enumerate().map(slot).collect();
    let mut common = none();
    for held in memory {
        let Some(at) = grant.arrays.iter().position(|array| array.id == held.array) else { continue };
        match held.slot.map(|slot| slots.get_mut(slot)) {
            Some(Some(slot)) => slot.memory[at] = Some(held),
            Some(None) => {}
            None => common[at] = Some(held),
        }
    }
    (slots, common)
}

/// Orders memory after its earlier users: each stream's own on that stream, shared memory on the first.
pub(super) fn hand_over<B: Backend>(
    slots: &mut [StreamSlot<B>],
    common: &mut [Option<Held<B>>],
) -> Result<(), BrokerError> {
    let Some(first) = slots.first().map(|slot| slot.stream.clone()) else { return Ok(()) };
    let own = slots.iter_mut().flat_map(|slot| {
        let stream = slot.stream.clone();
        slot.memory.iter_mut().flatten().map(move |held| (held, stream.clone()))
    });
    let common = common.iter_mut().flatten().map(|held| (held, first.clone()));
    for (held, stream) in own.chain(common) {
        held.buffer.reuse_on(&stream)?;
    }
    Ok(())
}

/// Returns the data of each array of a grant, checked against its role.
pub(super) fn bound<'a, B: Backend>(
    grant: &Grant,
    data: Vec<(ArrayId, Role, Data<'a, B>)>,
) -> Result<Vec<Option<Data<'a, B>>>, BrokerError> {
    let mut found: Vec<_> = grant.arrays.iter().map(|_| None).collect();
    for (id, role, data) in data {
        let at = grant.arrays.iter().position(|array| array.id == id).ok_or_else(|| unknown(id))?;
        let array = &grant.arrays[at];
        let refused = |reason: &str| {
            Err(BrokerError::Request { label: array.label.clone(), reason: reason.to_owned() })
        };
        match array.role {
            own if own == role => {}
            Role::Input => return refused("it is an input: give its data to `upload`"),
            Role::Output => return refused("it is an output: give its place to `download`"),
            Role::InOut => return refused("it goes both ways: give its data to `exchange`"),
            Role::Scratch => return refused("it is scratch, which has no data of the host's"),
        }
        if data.len != array.layout.bytes() {
            let (label, bytes) = (array.label.clone(), array.layout.bytes());
            return Err(BrokerError::Length { label, array_bytes: bytes, data_bytes: data.len });
        }
        found[at] = Some(data);
    }
    for (array, data) in grant.arrays.iter().zip(&found) {
        if data.is_none() && array.role != Role::Scratch {
            let reason = "it has no data: bind some before the run, or ask for it as scratch".into();
            return Err(BrokerError::Request { label: array.label.clone(), reason });
        }
    }
    Ok(found)
}

/// Takes the writable bytes out of the data: by rows for arrays that are cut, and as one piece for others.
pub(super) fn rows<'a, B: Backend>(grant: &Grant, data: &mut [Option<Data<'a, B>>]) -> (Rows<'a>, Piece<'a>) {
    let mut whole = Vec::new();
    let mut cut = Vec::new();
    for (array, data) in grant.arrays.iter().zip(data) {
        let bytes = data.as_mut().and_then(|data| data.rows.take());
        let (to_cut, to_whole) = if array.layout.is_cut { (bytes, None) } else { (None, bytes) };
        let row = usize::try_from(array.layout.row_bytes(array.layout.runs)).unwrap_or(usize::MAX).max(1);
        cut.push(to_cut.map(|bytes| (array.layout, bytes.chunks_mut(row).collect())));
        whole.push(to_whole.map(|bytes| vec![bytes]));
    }
    (cut, Piece { index: 0, range: 0..grant.partition.runs(), rows: whole })
}
