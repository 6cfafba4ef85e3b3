//! The execution of a batch on the device.

use crate::bind::{bound, hand_over, rows, sort};
use crate::chunk_order::{Failure, RemainingChunks};
use crate::commit::{Ended, InRun};
use crate::data::{Data, Side};
use crate::error::BrokerError;
use crate::id::{ArrayId, ClientId};
use crate::progress::{Instant, ProgressHook, RunReport};
use crate::request::Role;
use crate::session::Session;
use crate::slot::{Chunk, StreamSlot};
use crate::state::{BrokerCore, Grant, Held};
use std::panic::resume_unwind;
use std::sync::Arc;
use vrampool_backend::Backend;

pub(crate) fn run<'a, B, F>(
    core: &'a BrokerCore<B>,
    group: &'a str,
    data: Vec<(ArrayId, Role, Data<'a, B>)>,
    progress: Option<&ProgressHook<'_>>,
    is_timed: bool,
    work: &F,
) -> Result<RunReport, BrokerError>
where
    B: Backend,
    F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
{
    let mut running = Running::begin(core, group)?;
    let grant = Arc::clone(&running.grant);
    let ordered = hand_over(&mut running.slots, &mut running.common);
    core.staging.ask_again();
    ordered?;
    let mut data = bound(&grant, data)?;
    let (rows, mut whole) = rows(&grant, &mut data);
    let sides: Vec<_> = data.iter().map(|data| data.as_ref().map_or(Side::None, |data| data.side)).collect();
    let course =
        RemainingChunks::new(grant.partition.runs(), grant.partition.chunk_len(), running.slots.len(), rows);
    let session = Session {
        core,
        group,
        grant: &grant,
        rounding: core.rounding(),
        sides: &sides,
        course: &course,
        common: &running.common,
        work,
        progress,
        start: Instant::now(),
        is_timed,
        spans: Default::default(),
        copied: Default::default(),
        watching: Default::default(),
    };
    let (ends, panic) = session.drive_batch(&mut running.slots, &mut whole);
    let report = session.into_report(running.slots.len());
    let failure = course.take_failure();
    running.ended = Ended {
        has_begun: true,
        chunks: report.chunks,
        shrinks: report.shrinks,
        bytes_copied: report.copied_bytes,
        has_failed: failure.is_some() || ends.is_err() || panic.is_some(),
    };
    match (panic, failure) {
        (Some(panic), _) => resume_unwind(panic),
        (None, Some(Failure { chunk, range, stage, error })) => {
            Err(BrokerError::Run { chunk, range, stage, source: Box::new(error) })
        }
        (None, None) => ends.map(|()| report),
    }
}

/// A pending run. Its end, for any reason, returns its memory to the clients, and the group may run again.
struct Running<'a, B: Backend> {
    core: &'a BrokerCore<B>,
    group: &'a str,
    grant: Arc<Grant>,
    clients: Vec<ClientId>,
    slots: Vec<StreamSlot<B>>,
    common: Vec<Option<Held<B>>>,
    ended: Ended,
}

impl<'a, B: Backend> Running<'a, B> {
    fn begin(core: &'a BrokerCore<B>, group: &'a str) -> Result<Self, BrokerError> {
        let InRun { grant, streams, memory, clients } = core.begin(group)?;
        let (slots, common) = sort(&grant, &streams, memory);
        Ok(Self { core, group, grant, clients, slots, common, ended: Ended::default() })
    }
}

impl<B: Backend> Drop for Running<'_, B> {
    fn drop(&mut self) {
        let own = self.slots.drain(..).flat_map(|slot| slot.memory);
        let memory = own.chain(self.common.drain(..)).flatten().collect();
        let clients = std::mem::take(&mut self.clients);
        let has_failed = self.ended.has_failed || std::thread::panicking();
        self.core.finish(self.group, &self.grant, clients, memory, Ended { has_failed, ..self.ended });
    }
}
