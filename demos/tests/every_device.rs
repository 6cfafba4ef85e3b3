//! The program on every device that is there besides the host, by its name: it learns what it learns on the
//! host, from recycled memory, and a real program's buffers stay as they were written.

use serde_json::Value;
use vrampool::any;
use vrampool_test_support::{command, outcome, skip_backend};
use vrampool_trace::{Op, Trace};

/// Returns the names of all devices except the host. A backend without a device is reported, and fails the
/// test if `VRAMPOOL_REQUIRE` lists it.
fn names() -> Vec<String> {
    let devices = any::devices();
    for absent in &devices.absent {
        skip_backend(absent.backend, &absent.reason);
    }
    devices.there.into_iter().map(|device| device.name).filter(|name| name != "host").collect()
}

/// The JSON objects that the program prints, one a line. Drivers may have something to say on stderr.
fn vrampool(arguments: &[&str]) -> Vec<Value> {
    let mut program = command(env!("CARGO_BIN_EXE_vrampool-demos"));
    let (code, text, err) = outcome(program.args(arguments).arg("--json").env_remove("VRAMPOOL_BACKEND"));
    assert_eq!(code, Some(0), "{arguments:?}: {err}");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn it_learns_as_on_the_host() {
    // A third of the default epochs learns as much, and a device that is a processor takes a second an epoch.
    let train = |on: &str| vrampool(&["train", "--overlap=0", "--epochs=10", "--backend", on]).remove(0);
    let host = number(&train("host"), "test_accuracy");
    for name in names() {
        let report = train(&name);
        // Sums of other orders: some of 355 images come out otherwise.
        let accuracy = number(&report, "test_accuracy");
        assert!(accuracy >= 0.97 && (accuracy - host).abs() < 0.012, "{name}: host {host}, {report}");
        assert!(number(&report, "hit_rate_after_first_epoch") >= 0.99, "{name}: {report}");
        assert_eq!(number(&report, "step_allocations_after_first_epoch"), 0.0, "{name}: {report}");
        let caps = ["peak_idle", "max_cached_bytes"].map(|key| number(&report, key));
        assert!(caps[0] <= caps[1], "{name}: {report}");
    }
}

#[test]
fn real_buffers_stay_as_they_were_written() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");
    // A sixteenth of each size, and of the limit: kernels on a processor take a minute for the whole.
    let mut rows = String::from("op,id,size,stream,t_us\n");
    for event in Trace::read(file).expect("a trace").events() {
        let op = if event.op == Op::Allocate { 'a' } else { 'f' };
        rows += &format!("{op},{},{},{},0\n", event.id, event.size.div_ceil(16), event.stream);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("smaller.csv");
    std::fs::write(&trace, rows).expect("a file");
    for name in names() {
        for source in ["direct", "arena"] {
            let rows = vrampool(&[
                "replay",
                trace.to_str().expect("UTF-8"),
                "--touch",
                "--backend",
                &name,
                "--source",
                source,
                "--limit",
                "64MiB",
                "--passes",
                "1",
            ]);
            assert_eq!(rows.len(), 1, "{name}, {source}");
            assert_eq!(rows[0]["corrupt_bytes"].as_u64(), Some(0), "{name}, {source}: {}", rows[0]);
            assert_eq!(rows[0]["ops"].as_u64(), Some(723), "{name}, {source}");
        }
    }
}
