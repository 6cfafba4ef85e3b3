//! `vrampool solve`: what it prints and draws, on every device that is there, and how it fails.

use serde_json::Value;
use std::process::Command;
use vrampool::{Pool, any};
use vrampool_broker::Broker;
use vrampool_test_support::{command, failed, printed, rows};

fn solve(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool-demos"));
    command.env_remove("VRAMPOOL_BACKEND").arg("solve").args(arguments);
    command
}

fn json(arguments: &[&str]) -> Value {
    rows(solve(arguments).arg("--json")).remove(0)
}

/// 4 MB of a batch, in half a MiB.
const LEAST_RUNS: u64 = 52_000;
const LEAST_SHARE: u64 = 512 << 10;
const SMALL: [&str; 8] = ["--runs", "52000", "--samples", "16", "--steps", "2", "--share", "512KiB"];

#[test]
fn a_sweep_larger_than_its_share_is_right_on_every_device() {
    for device in any::devices().there {
        eprintln!("on {}", device.name);
        let opened = any::open(&device.name).expect("it is there");
        let granularity =
            Broker::builder(&Pool::new(&opened).expect("a pool")).build().expect("a broker").granularity();
        for streams in [1, 3] {
            // Where a device allocates in large pieces: one for each of both arrays on each stream, and eight
            // times as many runs as the states of go into one.
            let share = LEAST_SHARE.max(streams * 2 * granularity);
            let runs = LEAST_RUNS.max(granularity / (16 * 4) * 8);
            let [runs_text, share_text, streams_text] =
                [runs, share, streams].map(|number| number.to_string());
            let report = json(&[
                "--samples",
                "16",
                "--steps",
                "2",
                "--runs",
                &runs_text,
                "--share",
                &share_text,
                "--backend",
                &device.name,
                "--streams",
                &streams_text,
            ]);
            let number = |key: &str| report[key].as_u64().expect(key);
            assert_eq!(report["backend"].as_str(), Some(device.backend));
            assert_eq!(number("streams"), streams);
            assert!(number("chunks") >= 8 && number("chunk_len") * number("chunks") >= runs, "{report}");
            assert!(number("peak_held") <= number("share_bytes") && number("share_bytes") == share);
            assert_eq!((number("batch_bytes"), number("bytes_copied")), (runs * 76, runs * 76));
            // The program fails where an error is large.
            assert!(report["worst_error"].as_f64().expect("a number") < 1e-2);
        }
    }
}

#[test]
fn the_picture_has_a_bar_for_each_stage_of_each_chunk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("chunks.svg");
    let path = path.to_str().expect("UTF-8");
    let report = json(&[&SMALL[..], &["--plot", path, "--streams", "2"]].concat());
    let picture = std::fs::read_to_string(path).expect("a file");
    assert!(picture.starts_with("<svg") && picture.contains("stream 1"), "{picture}");
    let bars = picture.matches("fill=\"#E07B39\"").count() as u64;
    // And one in the legend.
    assert_eq!(bars, report["chunks"].as_u64().expect("a number") + 1);
}

#[test]
fn a_comparison_reports_hidden_transfers() {
    let report = json(&[&SMALL[..], &["--compare"]].concat());
    for key in ["single_stream_seconds", "copy_seconds", "compute_seconds", "speedup", "hidden"] {
        assert!(report[key].as_f64().is_some_and(f64::is_finite), "{key}: {report}");
    }
    let out = printed(&mut solve(&SMALL));
    for words in ["52000 of 16 samples", "512.0 KiB", "host arrays", "runs a second", "worst error"] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn impossible_arguments_are_reported() {
    for (arguments, words) in [
        (&["--share", "100"][..], "Can't fit a single run in device memory"),
        (&["--share", "1KiB", "--samples", "1000000", "--runs", "2"], "give a larger share"),
        (&["--runs", "18446744073709551615"], "no memory has as many bytes"),
        (&["--plot", "/nowhere/at/all.svg", "--runs", "1000"], "at/all"),
    ] {
        let err = failed(&mut solve(arguments), 1);
        assert!(err.starts_with("error: ") && err.contains(words), "{err}");
    }
    failed(&mut solve(&["--streams", "0"]), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_a_sweep_that_would_take_hours() {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool-demos"));
    command.args(["solve", "--backend", "host", "--chunk", "1", "--steps", "100000"]);
    let (code, _, err) = vrampool_test_support::interrupted(&mut command);
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("error: interrupted; what is printed is complete"), "{err}");
}
