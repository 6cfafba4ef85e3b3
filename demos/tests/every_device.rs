//! The program on every device that is there besides the host, by its name: it learns what it learns on the
//! host, from recycled memory.

use serde_json::Value;
use vrampool::any;
use vrampool_test_support::{command, outcome, skip_backend};

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
