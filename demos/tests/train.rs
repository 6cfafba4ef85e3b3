//! `vrampool train`: it learns, through pool buffers only, the same whatever the pool may keep; its flags and
//! the environment reach the pool; what is wrong is said.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vrampool_test_support::{failed, outcome, printed, rows};

const GIB: u64 = 1 << 30;

/// The program, in an environment that sets nothing for it.
fn command() -> Command {
    let mut command = vrampool_test_support::command(env!("CARGO_BIN_EXE_vrampool-demos"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("VRAMPOOL_") || name.starts_with("NETCL_") {
            command.env_remove(name);
        }
    }
    command
}

fn vrampool(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = command();
    command.args(arguments).envs(environment.iter().copied());
    command
}

/// The JSON object of a run that succeeds.
fn train(arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    rows(vrampool(&["train", "--json"], environment).args(arguments)).remove(0)
}

/// Returns the message of a run that fails.
fn failure(arguments: &[&str], environment: &[(&str, &str)], code: i32) -> String {
    failed(vrampool(&["train"], environment).args(arguments), code)
}

fn bytes(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

fn share(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn it_learns_from_recycled_memory_and_a_tiny_cap_changes_nothing() {
    // Without memory for overlap, whose amount depends on the device's progress.
    let (roomy, tight) =
        (train(&["--overlap", "0"], &[]), train(&["--overlap", "0", "--max-cached-bytes", "64KiB"], &[]));
    let side_by_side = train(&[], &[]);
    assert!(share(&side_by_side, "hit_rate") >= 0.97, "{side_by_side}");
    for report in [&roomy, &tight] {
        assert!(share(report, "test_accuracy") >= 0.96, "{report}");
        assert!(bytes(report, "peak_idle") <= bytes(report, "max_cached_bytes"), "{report}");
        assert!(bytes(report, "peak_requested") <= bytes(report, "peak_live"), "{report}");
        assert!(bytes(report, "peak_live") <= bytes(report, "peak_held"), "{report}");
        assert!(bytes(report, "peak_live") <= bytes(report, "peak_needed"), "{report}");
        assert!(bytes(report, "idle_bytes") <= bytes(report, "peak_idle"), "{report}");
        assert_eq!(bytes(report, "steps"), 30 * 1442_u64.div_ceil(64), "{report}");
    }
    assert_eq!(bytes(&roomy, "max_cached_bytes"), 4 * GIB);
    assert!(share(&roomy, "hit_rate") >= 0.99, "{roomy}");
    assert!(share(&roomy, "hit_rate_after_first_epoch") >= 0.99, "{roomy}");
    assert_eq!(bytes(&roomy, "step_allocations_after_first_epoch"), 0, "{roomy}");
    assert_eq!(bytes(&tight, "max_cached_bytes"), 64 << 10);
    assert!(share(&tight, "hit_rate") < share(&roomy, "hit_rate"), "{tight}");
    for key in ["test_accuracy", "steps", "peak_requested", "peak_live"] {
        assert_eq!(roomy[key], tight[key], "{key}");
    }
    assert_eq!(
        bytes(&roomy, "served_by_bucket") + bytes(&roomy, "served_by_driver"),
        bytes(&tight, "served_by_bucket") + bytes(&tight, "served_by_driver"),
        "the requests are the same"
    );
}

#[test]
fn the_json_object_has_these_keys() {
    let report = train(&["--epochs", "1"], &[]);
    let mut found: Vec<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut wanted = [
        "backend",
        "device",
        "steps",
        "test_accuracy",
        "served_by_bucket",
        "served_by_arena",
        "served_by_driver",
        "bucket_hit_rate",
        "bucket_hit_rate_after_first_epoch",
        "hit_rate",
        "hit_rate_after_first_epoch",
        "source",
        "initial_bytes",
        "step_allocations_after_first_epoch",
        "idle_bytes",
        "peak_requested",
        "peak_live",
        "peak_held",
        "max_cached_bytes",
        "peak_idle",
        "peak_needed",
        "reuse_waits",
        "overlap",
        "wall_s",
    ];
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    assert_eq!((&report["backend"], &report["device"]), (&"host".into(), &"host memory".into()));
    assert_eq!((&report["source"], &report["overlap"]), (&"direct".into(), &"unlimited".into()));
    for later in ["hit_rate_after_first_epoch", "step_allocations_after_first_epoch"] {
        assert!(report[later].is_null(), "there was no second epoch");
    }
    assert!(share(&report, "wall_s") > 0.0);
}

#[test]
fn a_seed_repeats_a_run_and_another_seed_does_not() {
    let run = |seed| {
        let mut report = train(&["--epochs", "2", "--seed", seed, "--overlap", "0"], &[]);
        // They depend on how far the device is.
        for timed in ["wall_s", "reuse_waits", "peak_needed"] {
            report[timed].take();
        }
        report
    };
    let first = run("7");
    assert_eq!(first, run("7"));
    assert_ne!(
        first["served_by_bucket"],
        run("8")["served_by_bucket"],
        "the batches of validation come from the seed too"
    );
}

#[test]
fn tables_are_for_people() {
    let text = printed(&mut vrampool(&["train", "--epochs", "1", "--max-cached-bytes", "1MiB"], &[]));
    for word in
        ["test accuracy", "hit rate", "requested", "cached", "1.0 MiB", "bucket", "misses", "64.0 KiB"]
    {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
}

#[test]
fn every_size_class_rule_and_batch_size_trains() {
    let wanted = share(&train(&["--epochs", "1"], &[]), "test_accuracy");
    for classes in ["power-of-two", "geometric:8:1KiB", "multiple:4KiB", "exact"] {
        let report = train(&["--epochs", "1", "--size-classes", classes], &[]);
        assert_eq!(share(&report, "test_accuracy"), wanted, "{classes}");
    }
    for (batch_size, steps) in [("1000", 2), ("1000000", 1)] {
        let report = train(&["--epochs", "1", "--batch-size", batch_size], &[]);
        assert_eq!(bytes(&report, "steps"), steps, "{batch_size}");
    }
}

#[test]
fn a_variable_that_nothing_reads_is_a_warning() {
    let (code, _, said) = outcome(&mut vrampool(&["train", "--epochs", "1"], &[("VRAMPOOL_LIMITGB", "1")]));
    assert!(code == Some(0) && said.contains("VRAMPOOL_LIMITGB has no effect"), "{said}");
    assert!(said.contains("VRAMPOOL_LIMIT_GB"), "{said}");
}

#[test]
fn a_variable_that_cannot_be_read_is_named() {
    // A size, a text, and one that the pool does not read.
    for (name, value) in [
        ("VRAMPOOL_MAX_CACHED_GB", "abc"),
        ("VRAMPOOL_OVERLAP", "much"),
        ("VRAMPOOL_PINNED_STAGING_MB", "-1"),
    ] {
        // The error does not depend on the arguments, nor on whether the device needs the variables.
        for arguments in [&[][..], &["--epochs", "1", "--max-cached-bytes", "1MiB"]] {
            let error = failure(arguments, &[(name, value)], 1);
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}

#[test]
fn an_address_in_use_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = failure(&["--metrics", &address], &[], 1);
    assert!(error.contains("metrics") && error.contains(&address), "{error}");
}

/// A training run that serves its metrics, and their address. It ends with this.
struct Training {
    process: Child,
    address: String,
}

impl Training {
    /// Starts it, at a port that the system chooses and the program prints.
    fn start() -> Self {
        let mut program = command();
        program.args(["train", "--epochs", "1000000", "--metrics", "127.0.0.1:0"]);
        let process = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs");
        let mut training = Self { process, address: String::new() };
        let mut line = String::new();
        let errors = training.process.stderr.take().expect("piped");
        BufReader::new(errors).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("metrics at http://").and_then(|line| line.strip_suffix("/metrics"));
        training.address = address.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        training
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn metrics_are_served_while_it_trains() {
    let training = Training::start();
    // The deadline only ends a test that would fail.
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut page = String::new();
    // From the second step on there are hits.
    while !page.contains("vrampool_served_total{") && Instant::now() < deadline {
        let answer = ureq::get(format!("http://{}/metrics", training.address)).call();
        page = answer.and_then(|mut answer| answer.body_mut().read_to_string()).unwrap_or_default();
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert!(page.contains("vrampool_served_total{pool=\"train\",backend=\"host\""), "{page}");
}

#[test]
fn a_limit_that_is_too_small_is_explained() {
    let error = failure(&["--limit", "1KiB"], &[], 1);
    assert!(error.contains("out of memory") && error.contains("limit"), "{error}");
    let error = failure(&["--limit", "1MiB"], &[], 1);
    assert!(error.contains("out of memory") && error.contains("1.0 MiB"), "{error}");
    // 2 MiB hold the network and a batch, with little to spare for idle memory.
    let report = train(&["--epochs", "1", "--limit", "2MiB"], &[]);
    assert!(bytes(&report, "peak_held") <= 2 << 20, "{report}");
}

#[test]
fn wrong_flags_are_refused() {
    for arguments in [["--epochs", "0"], ["--batch-size", "0"]] {
        let error = failure(&arguments, &[], 2);
        assert!(error.contains(arguments[0]), "{error}");
    }
}

/// A recorded run's peak is what the next run maps at once: then training maps almost nothing more.
#[test]
fn the_peak_of_a_recorded_run_is_mapped_at_the_start_of_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("run.csv.gz");
    let (trace, peak) = (trace.to_str().expect("UTF-8"), format!("peak:{}", trace.display()));
    let flags = ["--source", "virtual", "--epochs", "1"];
    let first = train(&[&flags[..], &["--record", trace]].concat(), &[]);
    assert_eq!((bytes(&first, "initial_bytes"), &first["source"]), (0, &"virtual".into()));
    let next = train(&[&flags[..], &["--initial", &peak]].concat(), &[]);
    assert!(bytes(&next, "initial_bytes") >= bytes(&first, "peak_requested"), "{next}");
    let large = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");
    let peak_of_large = format!("peak:{large}");
    let first_pass = |flags: &[&str]| -> Value {
        let replay = [&["replay", "--json", "--source", "virtual", large], flags].concat();
        rows(&mut vrampool(&replay, &[])).remove(0)
    };
    let (without, with) = (first_pass(&[]), first_pass(&["--initial", &peak_of_large]));
    assert!(without["initial_bytes"].is_null(), "{without}");
    assert!(bytes(&with, "initial_bytes") >= bytes(&with, "peak_requested"), "{with}");
    assert!(2 * bytes(&with, "driver_calls") < bytes(&without, "driver_calls"), "{with}, {without}");
    for (value, said) in [("peak:nowhere.csv", "nowhere.csv"), ("many", "512MiB")] {
        let error = failure(&["--initial", value], &[], 2);
        assert!(error.contains(said), "{error}");
    }
    // A file that is read is not written.
    let error = failure(&["--source", "virtual", "--initial", &peak, "--record", trace], &[], 1);
    assert!(error.contains("run.csv.gz"), "{error}");
}

#[test]
fn the_help_lists_the_demonstrations_and_the_commands_of_the_program() {
    let help = printed(&mut vrampool(&["--help"], &[]));
    assert!(help.contains("Usage: vrampool <COMMAND>"), "{help}");
    for command in
        ["train", "solve", "soak", "replay", "trace", "fit", "bench", "devices", "completions", "man"]
    {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {help}");
    }
    let help = printed(&mut vrampool(&["train", "--help"], &[]));
    assert!(help.contains("Usage: vrampool train [OPTIONS]"), "{help}");
}
