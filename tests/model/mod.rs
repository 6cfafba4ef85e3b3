//! Every interleaving of a few threads with the pool, by a model checker. Refills, exchanges, frees on other
//! threads, trims, and ends of threads and pools keep the caps at every instant and lose no memory.
//!
//! Compiled into the library by `tests/model.sh`, because threads end by a call that is not public.

use crate::heap::magazine;
use crate::{Buffer, Pool};
use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use vrampool_backend::{AllocationRequest, Backend, BackendError, Event, Memory, Region, RegionMut, Stream};
use vrampool_backend::{DeviceId, MemoryInfo, Properties, StreamId};

mod waiting;

const CLASS: u64 = 1024;

/// A device that only counts allocations.
#[derive(Debug, Clone)]
struct Counting {
    properties: Properties,
    taken: Arc<AtomicU64>,
    limit: u64,
}

#[derive(Debug)]
struct Taken(Arc<AtomicU64>, u64);

#[derive(Debug, Clone)]
struct OneStream(StreamId);

#[derive(Debug)]
struct Done;

impl Memory for Taken {
    fn len(&self) -> u64 {
        self.1
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, SeqCst);
    }
}

impl Event for Done {
    fn is_complete(&self) -> Result<bool, BackendError> {
        Ok(true)
    }
}

const DEVICE: DeviceId = DeviceId::new("model", 0);

impl Stream for OneStream {
    fn id(&self) -> StreamId {
        self.0
    }

    fn device(&self) -> DeviceId {
        DEVICE
    }
}

const UNSUPPORTED: BackendError = BackendError::unsupported("the model counts bytes");

impl Backend for Counting {
    type Memory = Taken;
    type Stream = OneStream;
    type Event = Done;

    fn id(&self) -> DeviceId {
        DEVICE
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Err(UNSUPPORTED)
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<Taken, BackendError> {
        let bytes = request.bytes;
        let before = self.taken.fetch_add(bytes, SeqCst);
        assert!(before + bytes <= self.limit, "the limit is kept");
        Ok(Taken(Arc::clone(&self.taken), bytes))
    }

    fn create_stream(&self) -> Result<OneStream, BackendError> {
        Ok(OneStream(StreamId::next()))
    }

    fn synchronize(&self, _: &OneStream) -> Result<(), BackendError> {
        Ok(())
    }

    fn record(&self, _: &OneStream) -> Result<Done, BackendError> {
        Ok(Done)
    }

    fn wait(&self, _: &OneStream, _: &Done) -> Result<(), BackendError> {
        Ok(())
    }

    fn copy(&self, _: &OneStream, _: Region<'_, Taken>, _: RegionMut<'_, Taken>) -> Result<(), BackendError> {
        Err(UNSUPPORTED)
    }

    fn fill(&self, _: &OneStream, _: RegionMut<'_, Taken>, _: u8) -> Result<(), BackendError> {
        Err(UNSUPPORTED)
    }

    fn upload(&self, _: &OneStream, _: &[u8], _: RegionMut<'_, Taken>) -> Result<(), BackendError> {
        Err(UNSUPPORTED)
    }

    fn download(&self, _: &OneStream, _: Region<'_, Taken>, _: &mut [u8]) -> Result<(), BackendError> {
        Err(UNSUPPORTED)
    }
}

/// Caps in buffers of one class.
#[derive(Debug, Clone, Copy)]
struct Caps {
    cached: u64,
    bucket: u64,
    limit: u64,
}

#[derive(Debug)]
struct Scene {
    pool: Pool<Counting>,
    stream: OneStream,
    caps: Caps,
    taken: Arc<AtomicU64>,
}

impl Scene {
    fn new(caps: Caps) -> Arc<Self> {
        let taken = Arc::new(AtomicU64::new(0));
        let properties = Properties::new("model", "bytes");
        let device = Counting { properties, taken: Arc::clone(&taken), limit: caps.limit * CLASS };
        let pool = Pool::builder(&device)
            .max_cached_bytes(caps.cached * CLASS)
            .max_buffers_per_bucket(caps.bucket)
            .limit(caps.limit * CLASS)
            .budget(None)
            .magazine_bytes(8 * CLASS)
            .build();
        let stream = OneStream(StreamId::next());
        Arc::new(Self { pool: pool.expect("good settings"), stream, caps, taken })
    }

    fn allocate(&self) -> Option<Buffer<Counting>> {
        self.pool.allocate(CLASS, &self.stream).ok()
    }

    /// Checks the caps, which must hold whatever else runs.
    fn observe(&self) {
        let (stats, caps) = (self.pool.stats(), self.caps);
        assert!(
            stats.idle_bytes <= caps.cached * CLASS && stats.peak.idle_bytes <= caps.cached * CLASS,
            "{stats:?}"
        );
        assert!(stats.buckets.iter().all(|bucket| bucket.idle_buffers <= caps.bucket), "{stats:?}");
        assert!(stats.held_bytes <= caps.limit * CLASS, "{stats:?}");
        assert!(stats.live_bytes + stats.idle_bytes <= stats.held_bytes, "{stats:?}");
    }

    /// Checks, when all is quiet, that all memory is accounted for and can be allocated again.
    fn rest(&self, live: u64) {
        self.observe();
        let stats = self.pool.stats();
        assert_eq!((stats.live_buffers, stats.live_bytes), (live, live * CLASS), "{stats:?}");
        assert_eq!(stats.held_bytes, stats.live_bytes + stats.idle_bytes);
        assert_eq!(self.taken.load(SeqCst), stats.held_bytes);
        self.pool.trim().expect("a trim");
        assert_eq!(self.taken.load(SeqCst), live * CLASS);
        assert_eq!(self.pool.stats().idle_bytes, 0);
    }
}

/// A thread that ends like the system's: when it is joined, its blocks have been returned.
fn spawn(work: impl FnOnce() + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        work();
        magazine::end_thread();
    })
}

/// Explores every interleaving, or if there are too many all with at most `preemptions` preemptions.
///
/// One test at a time: pools share some numbers, and a run must not depend on another test.
fn explore(preemptions: Option<usize>, scene: impl Fn() + Send + Sync + 'static) {
    static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one = ONE.lock();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(scene);
}

const ROOMY: Caps = Caps { cached: 8, bucket: 8, limit: 8 };

/// Two threads refill from and spill to one bucket that has room for one idle buffer.
#[test]
fn refill_and_exchange() {
    explore(Some(4), || {
        let scene = Scene::new(Caps { cached: 1, bucket: 4, limit: 4 });
        let work = |scene: &Scene| {
            for _ in 0..2 {
                drop(scene.allocate().expect("the limit has room for both"));
            }
        };
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || work(&scene)
        });
        work(&scene);
        scene.observe();
        other.join().expect("no panic");
        scene.rest(0);
    });
}

/// Each of two threads drops what the other allocates.
#[test]
fn free_on_another_thread() {
    explore(None, || {
        let scene = Scene::new(ROOMY);
        let handed_over = Arc::new(Mutex::new(vec![scene.allocate()]));
        let other = spawn({
            let (scene, handed_over) = (Arc::clone(&scene), Arc::clone(&handed_over));
            move || {
                drop(handed_over.lock().expect("no panic").pop());
                handed_over.lock().expect("no panic").push(scene.allocate());
            }
        });
        drop(scene.allocate());
        scene.observe();
        other.join().expect("no panic");
        handed_over.lock().expect("no panic").clear();
        scene.rest(0);
    });
}

/// A trim while another thread allocates and drops: after its next call that thread keeps nothing.
#[test]
fn trim() {
    explore(None, || {
        let scene = Scene::new(ROOMY);
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || {
                drop(scene.allocate());
                drop(scene.allocate());
            }
        });
        scene.pool.trim().expect("a trim");
        scene.observe();
        other.join().expect("no panic");
        scene.rest(0);
    });
}

/// A thread with idle buffers ends while another requests some.
#[test]
fn thread_end() {
    explore(Some(5), || {
        let scene = Scene::new(Caps { cached: 2, bucket: 2, limit: 2 });
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || {
                let both = (scene.allocate(), scene.allocate());
                drop(both);
            }
        });
        let mine = scene.allocate();
        scene.observe();
        let live = mine.is_some();
        other.join().expect("no panic");
        scene.rest(u64::from(live));
    });
}

/// The last handle is dropped while another thread drops a buffer and has another idle.
#[test]
fn pool_drop() {
    explore(None, || {
        let scene = Scene::new(ROOMY);
        let (taken, stream) = (Arc::clone(&scene.taken), scene.stream.clone());
        let pool = Arc::into_inner(scene).expect("no other owner").pool;
        let other = spawn({
            let pool = pool.clone();
            move || {
                drop(pool.allocate(CLASS, &stream));
                let live = pool.allocate(CLASS, &stream);
                drop(pool);
                drop(live);
            }
        });
        // A point of interruption: the last handle is dropped before, between or after.
        assert!(pool.stats().idle_bytes <= 8 * CLASS);
        drop(pool);
        other.join().expect("no panic");
        assert_eq!(taken.load(SeqCst), 0, "all of it is returned");
    });
}

/// A pool is closed by another thread while a thread searches for closed pools, which it does once for each
/// closed pool. After the closing, the next search leaves nothing of that pool.
#[test]
fn closed_elsewhere() {
    explore(Some(3), || {
        let (closing, open) = (Scene::new(ROOMY), Scene::new(ROOMY));
        drop(closing.allocate());
        let taken = Arc::clone(&closing.taken);
        assert_eq!(taken.load(SeqCst), CLASS, "this thread keeps one");
        let pool = Arc::into_inner(closing).expect("no other owner").pool;
        let other = spawn(move || drop(pool));
        let first = open.allocate();
        other.join().expect("no panic");
        let second = open.allocate();
        assert_eq!(taken.load(SeqCst), 0, "all of it is returned");
        drop((first, second));
        open.rest(0);
    });
}

/// A limit of one buffer: a request gets it or an error, and never more.
#[test]
fn memory_pressure() {
    explore(None, || {
        let scene = Scene::new(Caps { cached: 4, bucket: 1, limit: 1 });
        let work = |scene: &Scene| {
            drop(scene.allocate());
            scene.observe();
        };
        let other = spawn({
            let scene = Arc::clone(&scene);
            move || work(&scene)
        });
        work(&scene);
        other.join().expect("no panic");
        scene.rest(0);
    });
}

/// Three threads at once: one allocates and drops, one trims, one reads statistics and ends.
#[test]
fn three_threads() {
    explore(Some(3), || {
        let scene = Scene::new(Caps { cached: 1, bucket: 1, limit: 2 });
        let others = [
            spawn({
                let scene = Arc::clone(&scene);
                move || drop(scene.allocate())
            }),
            spawn({
                let scene = Arc::clone(&scene);
                move || {
                    scene.pool.trim().expect("a trim");
                }
            }),
        ];
        drop(scene.allocate());
        scene.observe();
        for other in others {
            other.join().expect("no panic");
        }
        scene.rest(0);
    });
}
