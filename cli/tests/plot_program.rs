//! `vrampool trace plot`: its page in a headless browser shows the trace's sums, and answers to the pointer.

use std::path::Path;
use std::process::Command;
use vrampool_test_support::program;
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
    for file in [&own, &format!("{ROOT}/benches/traces/gpt2.csv.gz"), &snapshot, log.to_str().expect("UTF-8")]
    {
        let page = folder.path().join("page.html");
        let status = vrampool()
            .args(["trace", "plot", "--source", "virtual", "--limit", "64GiB", file, "-o"])
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
