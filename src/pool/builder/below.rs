//! Settings of a pool below another one.

use crate::pool::Pool;
use crate::pool::builder::PoolBuilder;
use crate::pool::settings::PoolSettings;
use vrampool_backend::{Backend, fork};

impl<B: Backend> PoolBuilder<B> {
    /// The settings of a child of `pool`: those of the pool, but its name, limit, budget and cap on idle bytes.
    pub(crate) fn below(pool: &Pool<B>, name: String) -> Self {
        let core = pool.core();
        let (caps, borrow_classes) = match fork::is_child() {
            // It builds no pool.
            true => (core.caps, 0),
            false => {
                let depot = core.depot();
                (depot.accounts.caps, depot.buckets.borrow_classes())
            }
        };
        let supply = core.supply::<B>();
        let given = PoolSettings {
            max_buffers_per_bucket: Some(caps.max_buffers_per_bucket),
            source: Some(supply.source),
            size_classes: Some(core.classes.clone()),
            overlap: Some(caps.overlap),
            ..PoolSettings::default()
        };
        Self {
            name,
            addresses_stay: supply.addresses_stay,
            borrow_classes,
            kind: Some(core.kind),
            parent: Some(pool.clone()),
            cached_class: Some(caps.cached_class),
            magazine_bytes: Some(core.caps.magazine_bytes),
            magazine_class: Some(core.caps.magazine_class),
            piece_bytes: Some(supply.piece_bytes),
            hooks: core.hooks.iter().cloned().collect(),
            given,
            ..Self::new(&supply.device)
        }
    }

    /// Reserves bytes of the limits of the pools above for a [child](Pool::child): for its live and idle memory,
    /// rounded to classes; over virtual memory rounded up to whole pages. Default: 0.
    ///
    /// The unused part counts against these limits for requests of others: idle memory is released for it, and
    /// requests that do not fit beside it wait or fail. So no limit refuses a request within the share. The device or
    /// an arena may still refuse one: a share reserves no memory. [`build`](Self::build) fails if there is no room
    /// for the share; [`Pool::set_share`] changes it.
    pub fn share(mut self, bytes: u64) -> Self {
        self.share = bytes;
        self
    }

    /// Keeps idle memory of a [child](Pool::child) for its own requests until it is dropped: no limit, cap or trim
    /// releases any of it. Threads keep none in magazines. Default: false.
    ///
    /// **Graphs.** A graph uses the same addresses at each launch. While a stream is captured, the driver forbids
    /// allocations, waits for the work of other streams, and blocking calls. So run the step once before the capture,
    /// with buffers of a private child, which then keeps their memory for the capture. A request that
    /// neither this memory nor a free block of an arena of fixed size serves fails with
    /// [`Error::Capture`](crate::Error::Capture), and the capture continues. Drop the
    /// graph, and then the child.
    ///
    /// What the warm-up queued on the stream is ordered before the graph only where the graph is launched on that
    /// stream. So launch it there, or call [`Pool::used_on`] with the stream of the launch before it.
    ///
    /// ```
    /// # use vrampool::{Backend, Error, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let pool = Pool::new(&device)?;
    /// let memory = pool.child("decode").private().build()?;
    /// let step = || memory.allocate(1000, &stream)?.fill(0, &stream);
    /// step()?; // the warm-up takes from the device
    /// // begin the capture of `stream`
    /// step()?; // the same memory again, and no call that is forbidden
    /// // end the capture; launch the graph; drop the graph, and then `memory`
    /// pool.trim()?;
    /// assert_eq!(memory.stats().idle_bytes, 1024);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn private(mut self) -> Self {
        self.is_private = true;
        self
    }
}
