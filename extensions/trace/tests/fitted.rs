//! Fitted classes: what they hold on recorded traces.

use std::path::PathBuf;
use vrampool::host::HostDevice;
use vrampool::{Pool, SizeClasses};
use vrampool_test_support as _;
use vrampool_trace::fitted;
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
        let classes = SizeClasses::Table(fitted::fit(&demand, fitted::DEFAULT_CLASSES));
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

#[test]
fn a_demand_of_a_trace_ignores_what_frees_say_of_sizes() {
    let csv = "op,id,size,stream,t_us\na,7,600,0,0\nf,7,99,1,0\na,8,600,0,0\n";
    let trace = Trace::parse(csv.as_bytes()).expect("a trace");
    let rows = trace.demand().by_class(&SizeClasses::Exact(1));
    assert_eq!((rows.len(), rows[0].class, rows[0].requests, rows[0].peak_buffers), (1, 600, 2, 1));
    let requests = trace.events().iter().filter(|event| event.op == Op::Allocate).count();
    assert_eq!(trace.demand().requests(), requests as u64);
}
