//! What a broker promises: shares are kept, batches are cut so that they fit, and no client loses what it works
//! with. CuBIE's tests by their names (here, and beside the code in `src/broker` where they are of numbers or
//! of what is not public), its defects (`defects`), and what its documents promise and its source does not
//! do.
//!
//! Names that are not here, and why:
//!
//! * Of callbacks of clients, which ours have none of: a plan allocates again by itself, and a commit returns it.
//!   `test_queue_request_requires_live_invalidate_hook`, `test_allocate_queue_notifies_notaries`,
//!   `test_bound_method_hooks_compare_equal`, `test_dead_hooks_are_noops`:
//!   `pressure::a_client_without_callbacks_is_served_and_evicted_like_any`.
//! * Of calls that ours have not: a client has one group (`test_change_group_moves_instance`), a failed run gets new
//!   streams (`test_reinit_streams`), a commit finds what is available (`test_get_available_memory_active_mode_warns`,
//!   `test_probe_device_sizes_a_manager_built_without_one`). `test_inflight_owner_is_not_evicted`:
//!   `pressure::a_running_plan_is_not_evicted`.
//! * `test_release_host_array_reports_unlink_failure`: a spilled array's file has no name that could fail to
//!   be removed; `host_arrays::spill_files_never_outlive_their_process`. For the same reason none of a file's
//!   path or metadata (`test_shape_change_updates_memmap_metadata`).
//! * Of the watcher, which polls for copies that are done: there is none, the thread that runs a chunk copies its
//!   results. `test_wait_all_polls_until_complete`, `test_wait_all_returns_immediately_when_no_pending`,
//!   `test_multiple_tasks_all_complete`, `test_process_task_copies_full_buffer_when_no_data_shape`,
//!   `test_process_task_copies_sliced_buffer_when_data_shape_provided` and
//!   `test_process_task_releases_buffer_to_pool`: `runs::test_chunked_results_match_unchunked`,
//!   `runs::test_repeat_chunked_solve_matches_first`, `runs::progress_is_reported_after_each_chunk`,
//!   `staging::staging_stays_within_its_bound` and `model`.
//! * `test_get_chunk_parameters_computes_chunk_size_when_eligible`, `test_allocate_queue_chunks_correctly`,
//!   `test_active_cap_chunks_with_free_device_memory` and `test_pressure_evicts_idle_complete_owner`: `model` has the
//!   same rules for random requests.
//! * Of ended instances `test_dead_manual_instances_release_proportion` and `test_dead_auto_instance_leaves_pool`,
//!   `test_registry_does_not_pin_instances`:
//!   `shares::test_register_and_drop_change_everybodys_share`; `test_non_weakrefable_instance_registers`:
//!   `pressure::a_client_without_callbacks_is_served_and_evicted_like_any`.
//! * `test_clear_empties_pool_and_resets_id`'s ids, and those of `PinnedBuffer` and of attributes: blocks
//!   have none.
//! * Of solvers and of pinned memory `test_solver_spill_policies_are_independent`: each broker has its own policy;
//!   `host_arrays::test_choose_host_memory_type_applies_policy`. `test_allocation_pressure_does_not_run_cyclic_gc`: no
//!   garbage is collected; `pressure::a_running_plan_is_not_evicted`.
//!   `test_pinned_budget_counts_all_live_allocations`, `test_pinned_release_returns_budget`,
//!   `test_concurrent_pinned_reservations_respect_budget` and `test_forced_pinned_reservation_exceeds_budget`: the
//!   library's `tests/ledger.rs`, for any ledger.
//! * Of the stream groups the two that `stream_groups` names, and those that its comments name beside a test.
//!   `test_memory_manager_get_group_stream_passthrough`: `stream_groups::test_add_instance_shares_group_stream`;
//!   `test_reinit_streams_replaces_all`: as `test_reinit_streams`.
//! * `test_attrs_post_init_unexpected_exception`, `test_totalmem_is_not_a_constructor_argument`: a broker is
//!   made for a device that is open, and has no other size.

mod callbacks;
mod chunks;
mod defects;
#[allow(dead_code, reason = "other tests use all of it")]
#[path = "../../../../tests/detached/mod.rs"]
mod detached;
mod generations;
mod groups;
mod hidden;
mod host_arrays;
#[cfg(target_os = "linux")]
mod limits;
mod model;
mod no_device;
mod others;
mod pools;
mod pressure;
mod runs;
mod shares;
mod shrinking_shares;
mod staging;
mod stream_groups;

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool::Pool;
use vrampool::host::{HostDevice, HostStream};
use vrampool_broker::{
    ArrayId, ArrayRequest, Broker, BrokerBuilder, BrokerError, Chunk, Client, ClientHandle, Plan, Progress,
    RunReport,
};

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn device(bytes: u64) -> HostDevice {
    HostDevice::builder().memory_limit(bytes).build()
}

/// A pool with defaults.
pub(crate) fn pool(device: &HostDevice) -> Pool<HostDevice> {
    Pool::new(device).expect("a pool")
}

/// Keeps all warnings of this process.
struct Kept(Mutex<Vec<String>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().expect("no panic").push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The warnings that one broker logs.
#[derive(Debug)]
pub(crate) struct Warnings(String);

impl Warnings {
    /// Names a broker, and keeps what it logs from now on.
    pub(crate) fn of(builder: BrokerBuilder<HostDevice>) -> (Broker<HostDevice>, Self) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Another test may have set it.
        let _ = log::set_logger(&KEPT);
        log::set_max_level(LevelFilter::Warn);
        let name = format!("broker {}", NEXT.fetch_add(1, Relaxed));
        let prefix = format!("broker {name}: ");
        (builder.name(name).build().expect("a broker"), Self(prefix))
    }

    /// The number of warnings with this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let is_own = |line: &&String| line.strip_prefix(&self.0).is_some_and(|line| line.contains(text));
        KEPT.0.lock().expect("no panic").iter().filter(is_own).count()
    }
}

/// Each new plan of so many chunks gives this warning.
pub(crate) const MANY_CHUNKS: &str = "the batch needs many chunks";

/// A broker with little staging, and the warnings that it gives.
pub(crate) fn broker(device: &HostDevice) -> (Broker<HostDevice>, Warnings) {
    let builder = Broker::builder(&pool(device)).staging(64 << 10, 64 << 10).pinned_max(u64::MAX);
    Warnings::of(builder)
}

/// A device and a broker with `bytes` for its clients, besides the memory of its staging.
pub(crate) fn with_budget(bytes: u64) -> (HostDevice, Broker<HostDevice>) {
    let device = device(bytes + (64 << 10));
    let broker = Broker::builder(&pool(&device))
        .staging(64 << 10, 64 << 10)
        .pinned_max(u64::MAX)
        .budget(bytes)
        .build();
    (device, broker.expect("a broker"))
}

/// A client that squares numbers: two arrays of `f32`, one value a run.
#[derive(Debug)]
pub(crate) struct Squarer {
    pub(crate) client: ClientHandle<HostDevice>,
    pub(crate) from: ArrayId,
    pub(crate) to: ArrayId,
    pub(crate) runs: u64,
}

impl Squarer {
    pub(crate) fn new(broker: &Broker<HostDevice>, client: Client, runs: u64) -> Self {
        let client = broker.register(client).expect("a client");
        let from = client.queue(ArrayRequest::input("from", [runs], 4)).expect("queued");
        let to = client.queue(ArrayRequest::output("to", [runs], 4)).expect("queued");
        Self { client, from, to, runs }
    }

    pub(crate) fn work(&self, chunk: &Chunk<'_, HostDevice>, stream: &HostStream) -> Result<(), BrokerError> {
        let (from, to) = (chunk.region(self.from)?, chunk.region_mut(self.to)?);
        stream.launch([from], [to], |[from], [to]: [&mut [f32]; 1]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * from);
        })?;
        Ok(())
    }

    /// Runs it and checks every result.
    pub(crate) fn run(&self, plan: &Plan<HostDevice>) -> Result<RunReport, BrokerError> {
        self.run_with(plan, |_| (), |_, _| Ok(()))
    }

    /// Runs it with `before` ahead of each chunk's own work, and checks every result.
    pub(crate) fn run_with(
        &self,
        plan: &Plan<HostDevice>,
        on_progress: impl Fn(&Progress) + Sync,
        before: impl Fn(&Chunk<'_, HostDevice>, &HostStream) -> Result<(), BrokerError> + Sync,
    ) -> Result<RunReport, BrokerError> {
        let numbers = numbers(self.runs);
        let mut squares = vec![0xAA; numbers.len()];
        let report = plan
            .execution()
            .upload(self.from, &numbers[..])
            .download(self.to, &mut squares[..])
            .on_progress(on_progress)
            .run(|chunk, stream| before(chunk, stream).and_then(|()| self.work(chunk, stream)))?;
        for (run, (number, square)) in floats(&numbers).zip(floats(&squares)).enumerate() {
            assert_eq!(square, number * number, "run {run}");
        }
        Ok(report)
    }
}

/// One number a run, all small enough that their squares are exact.
pub(crate) fn numbers(runs: u64) -> Vec<u8> {
    (0..runs).flat_map(|run| ((run % 4096) as f32).to_ne_bytes()).collect()
}

pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
