//! Call counters and injected faults.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool_backend::{BackendError, fork};

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident,)+) => {
        /// The kinds of call that the device counts and that can be made to fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Call {
            $($(#[$doc])* $call,)+
        }

        impl Call {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$call),+];
        }
    };
}

calls! {
    /// Allocating memory.
    Allocate,
    /// Freeing memory. Counted; cannot fail, because dropping cannot.
    Free,
    /// Creating a stream.
    CreateStream,
    /// Recording an event.
    Record,
    /// Making a stream wait for an event.
    Wait,
    /// Copying on the device.
    Copy,
    /// Filling.
    Fill,
    /// Copying from the host.
    Upload,
    /// Copying to the host.
    Download,
    /// Launching a kernel.
    Launch,
    /// Waiting for a stream.
    Synchronize,
    /// Asking for free memory.
    MemoryInfo,
    /// Writing or reading mapped memory.
    Mapped,
    /// Asking whether an event is complete.
    Query,
    /// Reserving address space.
    Reserve,
    /// Creating physical memory, shareable or not.
    CreatePhysical,
    /// Dropping the last handle to physical memory that is mapped nowhere. Counted; cannot fail, because
    /// dropping cannot.
    ReleasePhysical,
    /// Mapping physical memory.
    Map,
    /// Making mapped memory accessible.
    SetAccess,
    /// Unmapping physical memory.
    Unmap,
    /// Exporting physical memory.
    Export,
    /// Importing physical memory.
    Import,
}

/// Faults of one device, injected while it runs, and the count of its calls.
///
/// ```
/// use vrampool_host::{AllocationRequest, Backend, Call, HostDevice, Placement};
/// let device = HostDevice::new();
/// device.faults().fail_nth(Call::Allocate, 2);
/// assert!(device.allocate(&AllocationRequest::new(64, Placement::Device)).is_ok());
/// assert!(device.allocate(&AllocationRequest::new(64, Placement::Device)).is_err());
/// assert!(device.allocate(&AllocationRequest::new(64, Placement::Device)).is_ok());
/// assert_eq!(device.faults().calls(Call::Allocate), 3);
/// ```
#[derive(Debug, Default)]
pub struct Faults {
    calls: [AtomicU64; Call::ALL.len()],
    /// Whether anything below is set, so that a healthy device takes no lock.
    armed: AtomicBool,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Calls that fail, by their number counted from the device's first.
    failing: Vec<(Call, u64, BackendError)>,
    /// Kinds of which every call fails.
    always: Vec<(Call, BackendError)>,
    lost: bool,
}

impl Faults {
    /// Makes the `n`-th call of this kind from now on fail (1 = the next one), once, with a driver error.
    pub fn fail_nth(&self, call: Call, n: u64) {
        self.fail_nth_with(call, n, BackendError::driver(format!("{call:?}"), -1, "injected fault"));
    }

    /// As [`fail_nth`](Self::fail_nth) with an error of your choice.
    pub fn fail_nth_with(&self, call: Call, n: u64, error: BackendError) {
        self.arm(|plan| plan.failing.push((call, self.calls(call) + n, error)));
    }

    /// Makes every call of this kind fail from now on, with `error`, until [`clear`](Self::clear). An
    /// allocation that fails once may be retried by a pool, which releases idle memory first.
    ///
    /// ```
    /// use vrampool_host::{AllocationRequest, Backend, BackendError, Call, HostDevice, Placement};
    /// let device = HostDevice::new();
    /// device.faults().fail_all(Call::Allocate, BackendError::out_of_memory(64, None));
    /// for _ in 0..3 {
    ///     assert!(device.allocate(&AllocationRequest::new(64, Placement::Device)).unwrap_err().is_out_of_memory());
    /// }
    /// device.faults().clear();
    /// assert!(device.allocate(&AllocationRequest::new(64, Placement::Device)).is_ok());
    /// ```
    pub fn fail_all(&self, call: Call, error: BackendError) {
        self.arm(|plan| plan.always.push((call, error)));
    }

    /// Loses the device, for good: every later call fails and work that is still queued is not done.
    pub fn lose_device(&self) {
        self.arm(|plan| plan.lost = true);
    }

    /// Forgets the planned failures. A lost device stays lost.
    pub fn clear(&self) {
        let mut plan = self.plan.lock();
        plan.failing.clear();
        plan.always.clear();
        self.armed.store(plan.lost, Ordering::Release);
    }

    /// How many calls of this kind the device was asked for, failed ones included.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(Ordering::Relaxed)
    }

    fn arm(&self, change: impl FnOnce(&mut Plan)) {
        let mut plan = self.plan.lock();
        change(&mut plan);
        // Release: the code that sees `armed` by the acquire in `check` or `is_lost` then takes the lock and sees
        // the plan.
        self.armed.store(true, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.armed.load(Ordering::Acquire) && self.plan.lock().lost
    }

    /// Counts a call and says whether it fails.
    pub(crate) fn check(&self, call: Call) -> Result<(), BackendError> {
        fork::check()?;
        let number = self.calls[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut plan = self.plan.lock();
        if plan.lost {
            return Err(lost());
        }
        match plan.failing.iter().position(|&(kind, at, _)| kind == call && at == number) {
            Some(index) => Err(plan.failing.swap_remove(index).2),
            None => match plan.always.iter().rev().find(|(kind, _)| *kind == call) {
                Some((_, error)) => Err(error.clone()),
                None => Ok(()),
            },
        }
    }
}

pub(crate) fn lost() -> BackendError {
    BackendError::lost("an injected fault lost the host device")
}
