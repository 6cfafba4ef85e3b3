//! The table of a pool's settings. From it: the methods of the builder, [`Settings`](crate::Settings), variables of the
//! environment, options of C, Python and the program `vrampool`, and the page of settings.
//!
//! A row is the name, the type of the builder's argument, the type; the default as text, the pools that have it, the
//! version since when, the variables (first its own), a line of help. Tests add rows.

macro_rules! rows {
    ($with:ident $($added:tt)*) => {
        $with! {
            /// The pool's name in metrics. Default: `pool-0`, `pool-1` and so on.
            name(impl Into<String>): String, "pool-0, pool-1 and so on", Any, "0.1", [],
                "The pool's name in metrics.";
            /// What serves misses. Default: [`Source::Direct`]. For [`Source::Arena`] an arena of `limit` bytes is
            /// reserved; without a limit, of what is free less a margin
            /// ([`ArenaBuilder::limit`](crate::arena::ArenaBuilder::limit)). For [`Source::Virtual`] addresses alone
            /// are reserved, and `limit` bounds physical bytes.
            source(Source): Source, "direct", Any, "0.1",
                [("VRAMPOOL_SOURCE", Text)],
                "What serves misses.";
            /// The hard cap on bytes taken from the device, live and idle. A request that would exceed it gets
            /// [`Error::OutOfMemory`] once releasing idle memory does not help. It bounds what the pool has; a
            /// driver may keep memory that the pool released until work that uses it is done; wgpu keeps at most 32
            /// MiB so. Default: `None`, no cap.
            ///
            /// A program that repeats itself is served again at a limit at which it was served once. Not always where
            /// the place of a block decides, over [`Source::Virtual`] or an arena whose blocks
            /// [stay](Self::addresses_stay): a later pass may find other blocks, so leave it a little more than the
            /// first one needs. Over virtual memory, 42 recorded programs and variants of them were all served ten
            /// times at 1 % more than the smallest limit of one pass. A program of one stream is served at that
            /// limit again after a [trim](crate::Pool::trim).
            limit(impl Into<Amount>): Amount, "unlimited", Any, "0.1",
                [("VRAMPOOL_LIMIT", Text), ("VRAMPOOL_LIMIT_GB", Gib)],
                "Hard cap on bytes taken from the device.";
            /// The soft cap on bytes taken from the device: a miss releases idle memory to stay within it, and
            /// exceeds it when that is not enough. Default: 0.85 of a discrete device's memory, `None` (no cap)
            /// elsewhere.
            budget(impl Into<Amount>): Amount, "85% of a discrete device, else unlimited", Root, "0.1",
                [("VRAMPOOL_BUDGET", Text), ("VRAMPOOL_POOL_BUDGET_FRAC", Share),
                 ("NETCL_POOL_BUDGET_FRAC", Share)],
                "Soft cap on bytes taken from the device.";
            /// The cap on idle bytes. 0 caches nothing; `None` has no cap. Default: 4 GiB; 64 MiB where the source is
            /// [virtual](Source::Virtual).
            max_cached_bytes(impl Into<Amount>): Amount, "4GiB; 64MiB if the source is virtual", Root, "0.1",
                [("VRAMPOOL_MAX_CACHED_BYTES", Text), ("VRAMPOOL_MAX_CACHED_GB", Gib), ("NETCL_MAX_CACHED_GB", Gib)],
                "Cap on idle bytes.";
            /// The cap on idle buffers in one bucket (one size class of one kind). 0 caches nothing; `None` has
            /// no cap. Default: 16; none where the source is [virtual](Source::Virtual), which keeps small
            /// classes only.
            max_buffers_per_bucket(impl Into<Option<u64>>): Option<u64>, "16; unlimited if the source is virtual", Any, "0.1",
                [("VRAMPOOL_MAX_BUFFERS_PER_BUCKET", Text)],
                "Cap on idle buffers in one size class.";
            /// The largest class that is kept idle, bytes: larger ones are returned to the source at once, where an
            /// arena merges them. Default: `None`, all; 512 KiB where the source is [virtual](Source::Virtual).
            cached_class(impl Into<Amount>): Amount, "unlimited; 512KiB if the source is virtual", Any, "0.1",
                [("VRAMPOOL_CACHED_CLASS", Text)],
                "Largest class that is kept idle.";
            /// How requests round up. Default: [`SizeClasses::Fixed`], which needs no trace. With a
            /// [`Table`](SizeClasses::Table) of sizes that is fitted to a trace a pool holds least.
            size_classes(SizeClasses): SizeClasses, "fixed; tight if the source is virtual", Any, "0.1",
                [("VRAMPOOL_SIZE_CLASSES", Text), ("VRAMPOOL_POOL_LARGE_BUCKET_MB", LargeBucket),
                 ("NETCL_POOL_LARGE_BUCKET_MB", LargeBucket)],
                "How requests round up: `fixed`, `power-of-two`, `geometric[:PER_DOUBLING[:FROM]]`, \
                 `multiple:SIZE`, `exact[:SIZE]`, `tight`.";
            /// From how many of the next larger classes an empty geometric class takes an idle buffer, rather than
            /// miss: with 2, at 8 classes to a doubling, a buffer is at most 28 % larger than its own class. Other
            /// classes never borrow: their next one is far away. Near the `limit` none does: beside the larger buffers
            /// that are in use there is room for as much as was live before. Default: 2.
            borrow_classes(u32): u32, "2", Any, "0.1",
                [("VRAMPOOL_BORROW_CLASSES", Text)],
                "Number of next larger classes that an empty geometric class borrows from.";
            /// The bytes of idle buffers that each thread may keep to itself, in *magazines*, from which it allocates
            /// without a lock. They count against the caps, and those of all threads together are at most an eighth
            /// of `limit`. 0 turns magazines off. Default: 8 MiB, at most a 64th of `max_cached_bytes` and of `limit`
            /// (an 8th where the source is virtual).
            ///
            /// A thread releases them when it ends (by the time it is joined; the end of a [`std::thread::scope`]
            /// alone does not wait for that). When they are needed before, by [`Pool::trim`], a limit that is
            /// reached, a device that is out of memory, or the pool's end, it does so at its next call to the pool
            /// (after the pool's end, at its next call to any pool that gets to the shared buckets). So a thread that
            /// stays away keeps at most this much; of [`Source::Arena`] on OpenCL, wgpu, and hosts other than Linux,
            /// the arena.
            magazine_bytes(impl Into<Amount>): Amount, "8MiB, at most a 64th of max_cached_bytes and limit; an 8th if virtual", Any, "0.1",
                [("VRAMPOOL_MAGAZINE_BYTES", Text)],
                "Idle bytes that a thread keeps to itself; 0 turns magazines off.";
            /// The largest class that magazines keep, bytes; larger ones are shared by all threads at once. 0 turns
            /// magazines off. Default: 1 MiB.
            magazine_class(impl Into<Amount>): Amount, "1MiB", Any, "0.1",
                [("VRAMPOOL_MAGAZINE_CLASS", Text)],
                "Largest class that magazines keep.";
            /// Bounds the memory that is allocated so that streams do not wait for each other: bytes held beyond the
            /// peak of live bytes. It is trimmed like other idle memory. Default: [`Amount::Unlimited`], so that only
            /// the limit, the budget and the device bound it.
            ///
            /// An arena that is passed to [`arena`](Self::arena) has its own
            /// [bound](crate::arena::ArenaBuilder::overlap).
            ///
            /// ```
            /// # use vrampool::{Amount, Pool, host::HostDevice};
            /// let pool = Pool::builder(&HostDevice::new()).overlap(Amount::Percent(25.0)).build()?;
            /// # Ok::<(), vrampool::Error>(())
            /// ```
            overlap(impl Into<Amount>): Amount, "unlimited", Any, "0.1",
                [("VRAMPOOL_OVERLAP", Text)],
                "Cap on memory, beyond the peak of live bytes, that is allocated instead of waiting for \
                 another stream; a percentage is of the held bytes.";
            /// Sets the memory that the pool maps when it is made, so that the first pass of a program makes few driver
            /// calls. With 0.95 of the peak of `reserved_bytes` of an earlier run it makes almost none. The memory is
            /// released like other free memory. The source must be [virtual](Source::Virtual), and the arena the pool's
            /// own; for another arena use [`initial_bytes`](crate::arena::ArenaBuilder::initial_bytes). Default: none.
            ///
            /// ```
            /// # use vrampool::{Backend, Pool, Source, host::HostDevice};
            /// # let device = HostDevice::new();
            /// # if device.virtual_memory().is_none() { return Ok(()) }
            /// # let stream = device.create_stream()?;
            /// let pool = Pool::builder(&device).source(Source::Virtual).initial(64 << 20).build()?;
            /// let _buffer = pool.allocate(48 << 20, &stream)?;
            /// assert_eq!(pool.stats().reserved_bytes, 64 << 20);
            /// # Ok::<(), vrampool::Error>(())
            /// ```
            initial(impl Into<Amount>): Amount, "0B", Any, "0.1",
                [("VRAMPOOL_INITIAL", Text)],
                "Memory to map when the pool is made, if the source is virtual.";
            /// The largest piece of physical memory that the pool maps where the source is [virtual](Source::Virtual),
            /// bytes. Each piece costs driver calls; with smaller pieces a pool holds less. Default: a 16th of the
            /// mapped bytes, up to 16 MiB ([details](crate::arena::ArenaBuilder::piece_bytes)).
            piece_bytes(impl Into<Amount>): Amount, "a 16th of the mapped bytes, up to 16MiB", Any, "0.1",
                [("VRAMPOOL_PIECE_BYTES", Text)],
                "Largest piece of memory to map, if the source is virtual.";
            /// The kind of memory that [`Pool::allocate`] returns. Default: what the device prefers
            /// ([`Properties::preferred_placement`](vrampool_backend::Properties::preferred_placement)).
            memory(impl Into<MemoryKind>): MemoryKind, "what the device prefers", Any, "0.1",
                [("VRAMPOOL_MEMORY", Text)],
                "Kind of memory: device, host (pinned), managed.";
            /// No buffer of this pool is moved: its arena is not compacted for it, neither to make room for
            /// a request, which is then out of memory though the holes together would serve it, nor by
            /// [`Pool::compact`]. No other pool of the tree moves them. For callers that store addresses
            /// ([`Buffer::address`](crate::Buffer::address)), such as other languages and graphs. The program must not
            /// compact its own [`arena`](Self::arena) either. Default: false; blocks of other sources than
            /// [`Source::Arena`] never move.
            ///
            /// ```
            /// # use vrampool::{Backend, Pool, Source, host::HostDevice};
            /// # let device = HostDevice::new();
            /// # let stream = device.create_stream()?;
            /// let pool = Pool::builder(&device).source(Source::Arena).limit(16 << 20).addresses_stay(true).build()?;
            /// let (first, second) = (pool.allocate(4 << 20, &stream)?, pool.allocate(4 << 20, &stream)?);
            /// let address = second.address();
            /// drop(first);
            /// assert_eq!(pool.compact(None, &stream, |_| {})?.moved_bytes, 0);
            /// assert_eq!(second.address(), address);
            /// # Ok::<(), vrampool::Error>(())
            /// ```
            addresses_stay(bool): bool, "false", Any, "0.1", [],
                "No buffer is moved.";
            /// Reserves bytes of the limits of the pools above for a [child](Pool::child): for its live and idle
            /// memory, rounded to classes; over virtual memory rounded up to whole pages. Default: 0.
            ///
            /// The unused part counts against these limits for requests of others: idle memory is released for it, and
            /// requests that do not fit beside it wait or fail. So no limit refuses a request within the share. The
            /// device or an arena may still refuse one: a share reserves no memory. [`build`](Self::build) fails if
            /// there is no room for the share; [`Pool::set_share`] changes it.
            share(impl Into<Amount>): Amount, "0B", Child, "0.1", [],
                "Bytes of the limits above that are reserved for a child.";
            /// Keeps idle memory of a [child](Pool::child) for its own requests until it is dropped: no limit, cap or
            /// trim releases any of it. Threads keep none in magazines. Virtual memory stays mapped at its addresses,
            /// where free blocks are cut and joined; with other sources idle blocks keep their sizes and addresses.
            /// Default: false.
            ///
            /// **Graphs.** A graph uses the same addresses at each launch. While a stream is captured, the driver forbids
            /// allocations, waits for the work of other streams, and blocking calls. So run the step once before the
            /// capture, with buffers of a private child, which then keeps their memory for the capture. A request that
            /// neither this memory nor a free block of an arena of fixed size serves fails with
            /// [`Error::Capture`](crate::Error::Capture), and the capture continues. Drop the graph, and then the
            /// child.
            ///
            /// What the warm-up queued on the stream is ordered before the graph only where the graph is launched on
            /// that stream. So launch it there, or call [`Pool::used_on`] with the stream of the launch before it.
            ///
            /// ```
            /// # use vrampool::{Backend, Error, Pool, host::HostDevice};
            /// # let device = HostDevice::new();
            /// # let stream = device.create_stream()?;
            /// # let pool = Pool::new(&device)?;
            /// let memory = pool.child("decode").private(true).build()?;
            /// let step = || memory.allocate(1000, &stream)?.fill(0, &stream);
            /// step()?; // the warm-up takes from the device
            /// // begin the capture of `stream`
            /// step()?; // the same memory again, and no call that is forbidden
            /// // end the capture; launch the graph; drop the graph, and then `memory`
            /// pool.trim()?;
            /// assert_eq!(memory.stats().idle_bytes, 1024);
            /// # Ok::<(), Error>(())
            /// ```
            private(bool): bool, "false", Child, "0.1", [],
                "Idle memory is kept for its own requests until the pool is dropped.";
            $($added)*
        }
    };
}
pub(crate) use rows;
