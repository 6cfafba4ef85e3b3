//! `vrampool trace plot`: its page in a headless browser shows the trace's sums, and answers to the pointer.

use std::path::Path;
use std::process::Command;
use vrampool_test_support::{command, outcome, program};
use vrampool_trace::{Import, Op, Trace};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Opens a page in a browser and returns the attribute that its check leaves.
fn checked(browser: &Path, folder: &Path, page: &Path) -> serde_json::Value {
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=1400,1900", "--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}#check", page.display()))
        .output()
        .expect("the browser starts");
    let document = String::from_utf8(output.stdout).expect("UTF-8");
    let check = document.split_once("data-check=\"").and_then(|(_, rest)| rest.split_once('"'));
    let (check, _) = check.unwrap_or_else(|| panic!("the page failed: {document:.600}"));
    serde_json::from_str(&check.replace("&quot;", "\"").replace("&amp;", "&")).expect("JSON")
}

#[test]
fn a_page_shows_the_sums_of_its_trace_and_follows_the_pointer() {
    let Some(browser) = program("chromium") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let own = format!("{ROOT}/benches/traces/multistream.csv.gz");
    let log = folder.path().join("rmm.log");
    let vrampool = || Command::new(env!("CARGO_BIN_EXE_vrampool"));
    let converted = vrampool().args(["trace", "convert", "--to", "rmm", &own]).arg(&log).status();
    assert!(converted.expect("the program starts").success());
    let snapshot = format!("{ROOT}/extensions/trace/tests/golden/snapshot.pickle");
    let others =
        ["gpt2", "resnet50", "serve_mixed"].map(|name| format!("{ROOT}/benches/traces/{name}.csv.gz"));
    let golden = format!("{ROOT}/extensions/trace/tests/golden/rmm.csv");
    let files = [&own, &snapshot, &golden, log.to_str().expect("UTF-8")];
    for file in files.into_iter().chain(others.iter().map(String::as_str)) {
        let page = folder.path().join("page.html");
        let status = vrampool()
            .args(["trace", "plot", "--source", "virtual", "--size-classes", "exact:1"])
            .args(["--limit", "64GiB", file, "-o"])
            .arg(&page)
            .status();
        assert!(status.expect("the program starts").success(), "{file}");

        let trace = Import::new().read(file).expect("a trace");
        let shown = checked(&browser, folder.path(), &page);
        let (size, areas) = sums(&trace);
        let blocks = trace.events().iter().filter(|event| event.op == Op::Allocate).count() as u64;
        let figures = [
            ("blocks", blocks),
            ("size", size),
            ("peak", trace.peak_requested()),
            ("areas", areas),
            ("limit", 64 << 30),
            ("rungs", 0),
        ];
        for (name, expected) in figures {
            assert_eq!(shown[name].as_u64(), Some(expected), "{file}: {name}");
        }
        eprintln!("{file}: loaded in {} ms, drawn in {} ms", shown["loaded"], shown["drawn"]);
        // Blocks as large as their requests, so that both areas are alike but for blocks of no bytes.
        let drawn = shown["rectangles"].as_f64().expect("an area") / areas as f64;
        assert!((drawn - 1.0).abs() < 1e-3, "{file}: rectangles of {drawn} times the trace's area");
        assert!(shown["tree"].as_f64().is_some_and(|part| (part - 1.0).abs() < 1e-6), "{file}: {shown}");
        assert!(shown["colours"].as_u64().is_some_and(|colours| colours > 1), "{file}: {shown}");
        let lines = shown["lines"].as_str().expect("a key");
        assert!(lines.contains("limit 64.0 GiB"), "{file}: {lines}");
        let events = shown["events"].as_str().expect("a figure");
        assert_eq!(events.replace(',', ""), format!("{}events", trace.events().len()), "{file}");
        assert_eq!(events.contains(','), trace.events().len() >= 1000, "{file}: {events}");
        assert!(shown["painted"].as_f64().is_some_and(|part| part > 0.01), "{file}: {shown}");
        assert!(
            shown["tip"].as_str().is_some_and(|tip| tip.contains("allocated at event")),
            "{file}: {shown}"
        );
        assert!(shown["zoomed"].as_f64().is_some_and(|factor| factor > 1.5), "{file}: {shown}");
        assert_eq!(shown["redrawn"], true, "{file}");
        assert!(shown["found"].as_str().is_some_and(|found| found.contains(" blocks, ")), "{file}: {shown}");
        assert_eq!(shown["dimmed"], true, "{file}");
        let packed = std::fs::metadata(file).expect("a file").len();
        let bytes = std::fs::metadata(&page).expect("a file").len();
        assert!(bytes <= 3 * packed + 40_000, "{file}: a page of {bytes} bytes for a file of {packed}");
    }
}

#[test]
fn single_charts_are_svg() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("{ROOT}/benches/traces/multistream.csv.gz");
    let draw = |name: &str, flags: &[&str]| {
        let path = folder.path().join(name);
        let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
        command.args(["trace", "plot", "--source", "virtual", "--limit", "300MiB", &file, "-o"]);
        let (code, _, err) = outcome(command.arg(&path).args(flags));
        assert_eq!(code, Some(0), "{err}");
        std::fs::read_to_string(path).expect("a picture")
    };
    let bytes = draw("bytes.svg", &[]);
    for text in
        ["reserved", "requested", "limit 300.0 MiB", "stroke-dasharray", ">256.0 MiB<", ">600<", "events"]
    {
        assert!(bytes.contains(text), "{text}: {bytes:.3000}");
    }
    let addresses = draw("chart", &["--picture", "addresses"]);
    for text in ["multistream: ", "stream 1", "rgb(66,133,214)"] {
        assert!(addresses.contains(text), "{text}: {addresses:.3000}");
    }
    let rectangles = addresses.matches("h-").count();
    assert!((300..=362).contains(&rectangles), "{rectangles} rectangles of 362 blocks");
    assert!(
        draw("bytes", &["--picture", "bytes"]) == bytes
            && draw("page.svg", &["--picture", "page"]).contains("<html")
    );
    let unknown =
        command(env!("CARGO_BIN_EXE_vrampool")).args(["trace", "plot", &file, "--picture", "moon"]).output();
    assert_eq!(unknown.expect("it starts").status.code(), Some(2));
}

/// With a viewer that reports the file that it opens; and without one.
#[cfg(target_os = "linux")]
#[test]
fn a_written_page_is_opened() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (viewer, seen) = (folder.path().join("xdg-open"), folder.path().join("seen"));
    std::fs::write(&viewer, "#!/bin/sh\necho \"$1\" >seen\n").expect("a file");
    std::fs::set_permissions(&viewer, std::fs::Permissions::from_mode(0o755)).expect("a program");
    assert!(Command::new("mkfifo").arg(&seen).status().expect("it starts").success());
    let open = |path: &Path| {
        let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
        let file = format!("{ROOT}/extensions/trace/tests/golden/rmm.csv");
        command
            .args(["trace", "plot", &file, "--open", "--output=-a.html"])
            .current_dir(&folder)
            .env("PATH", path);
        outcome(&mut command)
    };
    let (code, out, err) = open(folder.path());
    assert_eq!((code, out.as_str()), (Some(0), "-a.html\n"), "{err}");
    // Until the viewer has written.
    let opened = std::fs::read_to_string(&seen).expect("a path");
    assert_eq!(Path::new(opened.trim_end()), folder.path().join("-a.html"));
    let (code, out, err) = open(Path::new("/nonexistent"));
    assert_eq!((code, out.as_str()), (Some(1), "-a.html\n"));
    assert!(err.contains("error: no viewer opens -a.html; open it in a browser"), "{err}");
}

/// Requested bytes of all blocks, and these times the events for which each is live.
fn sums(trace: &Trace) -> (u64, u64) {
    let mut live = std::collections::HashMap::new();
    let (mut size, mut areas) = (0, 0);
    for (event, at) in trace.events().iter().zip(0..) {
        match event.op {
            Op::Allocate => {
                size += event.size;
                live.insert(event.id, (at, event.size));
            }
            _ => {
                let (start, size) = live.remove(&event.id).expect("a live block");
                areas += size * (at - start);
            }
        }
    }
    let end = trace.events().len() as u64;
    (size, areas + live.values().map(|(start, size)| size * (end - start)).sum::<u64>())
}
