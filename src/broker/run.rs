//! The execution of a batch on the device.

use super::bind::{bound, hand_over, rows, sort};
use super::commit::{Ended, InRun};
use super::course::{Course, Failure};
use super::data::{Data, Way};
use super::progress::{ProgressHook, RunReport};
use super::request::Role;
use super::session::Session;
use super::slot::{Chunk, StreamSlot};
use super::state::{BrokerCore, Grant, Held};
use super::transfer::Side;
use super::{ArrayId, BrokerError, ClientId};
use crate::sync::Instant;
use std::panic::resume_unwind;
use std::sync::Arc;
use vrampool_backend::Backend;

pub(crate) fn run<'a, B, F>(
    core: &'a BrokerCore<B>,
    group: &'a str,
    data: Vec<(ArrayId, Way, Data<'a, B>)>,
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
    let mut panic = None;
    let outcome = ordered.and_then(|()| bound(&grant, data)).and_then(|mut data| {
        let (rows, mut whole) = rows(&grant, &mut data);
        let sides: Vec<_> = data.iter().map(|data| data.as_ref().map_or(Side::None, Side::of)).collect();
        let course =
            Course::new(grant.partition.runs(), grant.partition.chunk_len(), running.slots.len(), rows);
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
        let stream = running.slots[0].stream.clone();
        let ends = session.whole_arrays(&stream, &mut whole, Role::is_uploaded).and_then(|()| {
            panic = session.drive_all(&mut running.slots);
            // After a failure outputs are not copied.
            if course.is_stopped() {
                return Ok(());
            }
            session.whole_arrays(&stream, &mut whole, Role::is_downloaded)
        });
        let reached = course.reached();
        let bytes_copied = *session.copied.lock();
        let report = RunReport {
            chunks: reached.done_chunks,
            runs: reached.runs,
            chunk_len: reached.len,
            streams: running.slots.len(),
            shrinks: reached.shrinks,
            copied_bytes: bytes_copied,
            elapsed: session.start.elapsed(),
            spans: std::mem::take(&mut *session.spans.lock()),
        };
        let failure = course.take_failure();
        running.ended = Ended {
            has_begun: true,
            chunks: reached.done_chunks,
            shrinks: reached.shrinks,
            bytes_copied,
            has_failed: failure.is_some() || ends.is_err() || panic.is_some(),
        };
        match failure {
            Some(Failure { chunk, range, stage, error }) => {
                Err(BrokerError::Run { chunk, range, stage, source: Box::new(error) })
            }
            None => ends.map(|()| report),
        }
    });
    match panic {
        Some(panic) => resume_unwind(panic),
        None => outcome,
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
