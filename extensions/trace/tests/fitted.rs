//! Fitted classes: what they hold on recorded traces, and what a pool's own requests teach.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Pool, SizeClasses};
use vrampool_test_support as _;
use vrampool_trace::fitted::Demand;
use vrampool_trace::fitted::FittedClasses;
use vrampool_trace::fitted::Learner;
use vrampool_trace::{Op, Pass, Replay, Trace};

/// Every recorded trace, and bytes held over bytes requested by the best 64 classes.
const RECORDED: [(&str, f64); 4] =
    [("resnet50", 1.191), ("gpt2", 1.229), ("serve_mixed", 1.188), ("multistream", 1.910)];

fn recorded(name: &str) -> Trace {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../benches/traces");
    Trace::read(folder.join(format!("{name}.csv.gz"))).expect(name)
}

fn device() -> HostDevice {
    HostDevice::builder().memory_limit(1 << 40).build()
}

/// A cold pass and a warm one.
fn replay(trace: &Trace, pool: &Pool<HostDevice>) -> [Pass; 2] {
    let passes = Replay::new(trace).passes(2).run(pool).expect("memory");
    passes.try_into().expect("two passes")
}

#[test]
fn recorded_traces_hold_what_was_promised_and_less_than_by_other_rules() {
    for (name, ratio) in RECORDED {
        let trace = recorded(name);
        let demand = trace.demand();
        let classes = SizeClasses::from(FittedClasses::fit(&demand, FittedClasses::DEFAULT_CLASSES));
        assert_eq!(demand.peak_requested(), trace.peak_requested());
        let promised = demand.held(&classes).expect("bytes");
        let held_over_requested = promised as f64 / trace.peak_requested() as f64;
        assert!((held_over_requested - ratio).abs() < 0.001, "{name}: {held_over_requested}");
        for rule in [
            SizeClasses::Fixed,
            SizeClasses::PowerOfTwo,
            SizeClasses::GEOMETRIC,
            SizeClasses::Multiple(2 << 20),
        ] {
            assert!(promised < demand.held(&rule).expect("bytes"), "{name} {rule}");
        }

        let builder = Pool::builder(&device()).size_classes(classes.clone());
        let builder = builder.max_cached_bytes(None).max_buffers_per_bucket(None);
        let [cold, warm] = replay(&trace, &builder.build().expect("a pool"));
        assert_eq!((cold.peak_held_bytes, warm.peak_held_bytes), (promised, promised), "{name}");
        assert_eq!(warm.hit_rate, 1.0, "{name}");

        // With the default caps, too.
        let held = |classes: SizeClasses| {
            let pool = Pool::builder(&device()).size_classes(classes.clone()).build().expect("a pool");
            replay(&trace, &pool).map(|pass| pass.peak_held_bytes)
        };
        let (fitted, fixed) = (held(classes.clone()), held(SizeClasses::Fixed));
        assert!(fitted[0] < fixed[0] && fitted[1] < fixed[1], "{name}: {fitted:?}, fixed {fixed:?}");
    }
}

/// What matters of a demand: by each size, its requests and the most of them live at once; and what is
/// fitted.
fn shown(demand: &Demand) -> (Vec<vrampool_trace::fitted::ClassDemand>, Vec<u64>) {
    let classes = FittedClasses::fit(demand, FittedClasses::DEFAULT_CLASSES);
    (demand.by_class(&SizeClasses::Exact(1)), classes.sizes().to_vec())
}

#[test]
fn a_pools_own_requests_teach_what_its_trace_does() {
    let trace = recorded("resnet50");
    // A trace's replay drops in the end what the trace leaves live; what was live together is the same.
    for classes in [SizeClasses::Fixed, SizeClasses::EXACT] {
        let learner = Arc::new(Learner::new());
        let pool = Pool::builder(&device()).size_classes(classes.clone()).hook(Arc::clone(&learner)).build();
        Replay::new(&trace).run(&pool.expect("a pool")).expect("memory");
        assert!(!learner.is_full());
        assert_eq!(shown(&learner.demand()), shown(&trace.demand()), "{classes}");
    }
}

#[test]
fn a_learner_keeps_the_first_requests_that_were_served_and_their_frees() {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    let learner = Arc::new(Learner::with_requests(3));
    let pool = || Pool::builder(&device).hook(Arc::clone(&learner)).build().expect("a pool");
    let (pool, other) = (pool(), pool());
    let rows = || {
        let rows = learner.demand().by_class(&SizeClasses::Exact(1));
        rows.iter().map(|row| (row.class, row.requests, row.peak_buffers)).collect::<Vec<_>>()
    };

    device.faults().fail_nth(Call::Allocate, 1);
    assert!(pool.allocate(1000, &stream).is_err());
    assert_eq!((rows(), learner.is_full()), (vec![], false));
    drop(pool.allocate(1000, &stream).expect("memory"));
    let kept = other.allocate(1000, &stream).expect("memory");
    assert_eq!(rows(), [(1000, 2, 1)], "one after the other");
    let second = pool.allocate(1000, &stream).expect("memory");
    assert_eq!((rows(), learner.is_full()), (vec![(1000, 3, 2)], true));
    // Full: no more requests, nor frees of those.
    let third = pool.allocate(1000, &stream).expect("memory");
    drop((kept, second, third));
    drop(pool.allocate(7000, &stream).expect("memory"));
    assert_eq!(rows(), [(1000, 3, 2)]);

    let before = pool.allocate(9000, &stream).expect("memory");
    learner.clear();
    drop(before);
    assert_eq!((rows(), learner.is_full()), (vec![], false));
    drop(pool.allocate(9000, &stream).expect("memory"));
    assert_eq!(rows(), [(9000, 1, 1)], "what was live when it was cleared is not freed twice");
}

#[test]
fn threads_teach_one_learner() {
    let device = device();
    let learner = Arc::new(Learner::new());
    let pool = Pool::builder(&device).hook(Arc::clone(&learner)).build().expect("a pool");
    thread::scope(|scope| {
        for thread in 1..=4u64 {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                let stream = device.create_stream().expect("a stream");
                for _ in 0..200 {
                    let both = [1, 2].map(|n| pool.allocate(n * 10_000 * thread, &stream).expect("memory"));
                    drop(both);
                }
            });
        }
    });
    let demand = learner.demand();
    assert_eq!(demand.requests(), 4 * 200 * 2);
    // No two threads' requests were ever one buffer's, and each has at most two live.
    let live: u64 = demand.by_class(&SizeClasses::Exact(1)).iter().map(|row| row.peak_buffers).sum();
    assert!((2..=8).contains(&live), "{live}");
}

#[test]
fn a_demand_of_a_trace_ignores_what_frees_say_of_sizes() {
    let csv = "op,id,size,stream,t_us\na,7,600,0,0\nf,7,99,1,0\na,8,600,0,0\n";
    let trace = Trace::parse(csv.as_bytes()).expect("a trace");
    let rows = trace.demand().by_class(&SizeClasses::Exact(1));
    assert_eq!((rows.len(), rows[0].class, rows[0].requests, rows[0].peak_buffers), (1, 600, 2, 1));
    let requests = trace.events().iter().filter(|event| event.op == Op::Allocate).count();
    assert_eq!(trace.demand().requests(), requests as u64);
}
