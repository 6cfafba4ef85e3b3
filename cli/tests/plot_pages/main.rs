//! Pages of `vrampool trace plot` in a headless browser: they show the trace's sums and the tree's pictures, answer to
//! the pointer, and open in time.

mod browser;

use browser::Browser;
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};
use vrampool_test_support::{command, outcome, program};
use vrampool_trace::{Export, Format, Import, Op, Recorder, Trace};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const CHECK: &str = include_str!("check.js");

/// Columns and rows of a picture's cells for a canvas.
const CELLS: (usize, usize) = (40, 8);

/// A mean colour may differ by so much of 255, and so many of 1,000 by more: fonts differ.
const SHADE: u64 = 12;
const OTHERS: usize = 30;

/// Processor time within which a page opens, seconds.
const OPENS: f64 = 2.0;

fn plot(file: &Path, page: &Path, flags: &[&str]) {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    let (code, _, err) = outcome(command.args(["trace", "plot"]).arg(file).arg("-o").arg(page).args(flags));
    assert_eq!(code, Some(0), "{}: {err}", file.display());
}

/// What the check of a page finds, and the page's picture.
fn checked(browser: &mut Browser, page: &Path) -> (Value, Value) {
    browser.open(page);
    let checked = browser.evaluate(CHECK);
    let mut checked: Value = serde_json::from_str(checked.as_str().expect("text")).expect("JSON");
    let picture = checked["picture"].take();
    (checked, picture)
}

/// Compares the mean colours of a page's canvases with those in the tree; with `VRAMPOOL_UPDATE_PICTURES` replaces them.
fn assert_looks_alike(name: &str, picture: Value) {
    let cells: Vec<u8> = serde_json::from_value(picture).expect("colours");
    let header = format!("P6 {} {} 255\n", CELLS.0, cells.len() / CELLS.0 / 3);
    let path = format!("{ROOT}/cli/tests/plot_pages/pictures/{name}.ppm");
    if std::env::var_os("VRAMPOOL_UPDATE_PICTURES").is_some() {
        return std::fs::write(path, [header.as_bytes(), &cells].concat()).expect("a file");
    }
    let known = std::fs::read(&path).expect(&path);
    let known = known.strip_prefix(header.as_bytes()).expect("a picture of this size");
    let others = cells.iter().zip(known).filter(|(one, two)| u64::from(one.abs_diff(**two)) > SHADE).count();
    assert!(others * 1000 <= OTHERS * cells.len(), "{name}: {others} of {} shades differ", cells.len());
}

/// What every page does.
fn assert_answers(name: &str, shown: &Value) {
    let text = |key: &str| shown[key].as_str().unwrap_or_else(|| panic!("{name}: no {key} in {shown}"));
    let number = |key: &str| shown[key].as_f64().unwrap_or_else(|| panic!("{name}: no {key} in {shown}"));
    assert!((number("tree") - 1.0).abs() < 1e-6, "{name}: {shown}");
    assert!((number("now") - number("live")).abs() <= 1e-6 * number("live"), "{name}: {shown}");
    assert!(text("tip").starts_with("block #") && text("tile").contains(" blocks, "), "{name}: {shown}");
    assert!(text("found").contains(" blocks, ") && text("none").starts_with("0 blocks"), "{name}: {shown}");
    assert!(text("unread").starts_with("cannot read moon: "), "{name}: {shown}");
    assert_eq!(shown["dimmed"], true, "{name}");
    assert_eq!(
        shown["shades"],
        shown["colours"].as_array().expect("colours").len(),
        "{name}: one picture each"
    );
    assert!(number("rows") > 1.0, "{name}: {shown}");
}

/// Files of every kind, with names: those in the tree, a log of RMM's, and a recording of a pool with children.
fn files(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let traces = PathBuf::from(format!("{ROOT}/benches/traces"));
    let golden = PathBuf::from(format!("{ROOT}/extensions/trace/tests/golden"));
    let mut files: Vec<_> = ["gpt2", "resnet50", "serve_mixed", "multistream"]
        .map(|name| (name, traces.join(name).with_extension("csv.gz")))
        .into();
    files.extend([("snapshot", golden.join("snapshot.pickle")), ("rmm", golden.join("rmm.csv"))]);
    let (log, children) = (folder.join("multistream.log"), folder.join("children.csv"));
    let multistream = Trace::read(&files[3].1).expect("a trace");
    Export::new(Format::Rmm).save(&multistream, &log).expect("a file");
    Export::new(Format::Csv).save(&recorded(), &children).expect("a file");
    files.extend([("multistream", log), ("children", children)]);
    files
}

/// A recording of a pool with two children, by three lines of code.
fn recorded() -> Trace {
    let (device, recorder) = (HostDevice::new(), Recorder::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).name("root").hook(recorder.hook()).build().expect("a pool");
    let [weights, requests] = ["weights", "requests"].map(|name| pool.child(name).build().expect("a child"));
    let _weights: Vec<_> = (1..5).map(|n| weights.allocate(n << 20, &stream).expect("memory")).collect();
    for n in 1..40 {
        let _one = requests.allocate(n << 16, &stream).expect("memory");
        let _other = requests.allocate(n << 10, &stream).expect("memory");
        drop(pool.allocate(3 << 20, &stream).expect("memory"));
    }
    recorder.trace("children").expect("a trace")
}

#[test]
fn a_page_shows_the_sums_of_its_trace_and_follows_the_pointer() {
    let Some(browser) = program("chromium") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut browser, page) = (Browser::start(&browser), folder.path().join("page.html"));
    for (name, file) in files(folder.path()) {
        let flags = |source| ["--source", source, "--size-classes", "exact:1", "--limit", "64GiB"];
        // Its addresses are one range, so they are the same each time.
        plot(&file, &page, &flags("arena"));
        assert_looks_alike(name, checked(&mut browser, &page).1);
        plot(&file, &page, &flags("virtual"));
        let trace = Import::new().read(&file).expect("a trace");
        let (shown, _) = checked(&mut browser, &page);
        let (size, areas) = sums(&trace);
        let blocks = trace.events().iter().filter(|event| event.op == Op::Allocate).count() as u64;
        let figures = [
            ("blocks", blocks),
            ("size", size),
            ("peak", trace.peak_requested()),
            ("areas", areas),
            ("limit", 64 << 30),
            ("rungs", 0),
            ("origins", trace.origins().len() as u64),
        ];
        for (figure, expected) in figures {
            assert_eq!(shown[figure].as_u64(), Some(expected), "{name}: {figure}");
        }
        assert_answers(name, &shown);
        // Blocks as large as their requests, so that both areas are alike but for blocks of no bytes.
        let drawn = shown["rectangles"].as_f64().expect("an area") / areas as f64;
        assert!((drawn - 1.0).abs() < 1e-3, "{name}: rectangles of {drawn} times the trace's area");
        let text = |key: &str| shown[key].as_str().expect(key).to_owned();
        assert!(text("lines").contains("limit 64.0 GiB"), "{name}: {shown}");
        let events = trace.events().len();
        assert_eq!(text("events").replace(',', ""), format!("{events}events"), "{name}");
        assert_eq!(text("events").contains(','), events >= 1000, "{name}");
        assert!(text("tip").contains("allocated at event"), "{name}: {shown}");
        assert!(
            text("moment").contains(" mapped, ") && text("moment").contains(" holes of "),
            "{name}: {shown}"
        );
        assert!(shown["zoomed"].as_f64().is_some_and(|factor| factor > 1.5), "{name}: {shown}");
        assert_eq!(shown["redrawn"], true, "{name}");
        if trace.origins().is_empty() {
            assert!(!text("heads").contains("pool"), "{name}: {shown}");
        } else {
            assert!(text("heads").ends_with("call site"), "{name}: {shown}");
            assert!(name == "snapshot" || text("tip").contains("\ncall site: "), "{name}: {shown}");
            assert!(
                !text("named").starts_with("0 blocks") && text("named").contains(" blocks, "),
                "{name}: {shown}"
            );
            let clicked = shown["clicked"].as_array().expect("a search");
            let [search, found] = [0, 1].map(|part| clicked[part].as_str().expect("text"));
            assert!(search.contains("site:\"") && found.contains(" blocks, "), "{name}: {clicked:?}");
        }
        let bytes = |file: &Path| std::fs::metadata(file).expect("a file").len();
        let (packed, bytes) = (bytes(&file), bytes(&page));
        assert!(bytes <= 3 * packed + 40_000, "{name}: a page of {bytes} bytes for a file of {packed}");
    }
}

#[test]
fn a_snapshot_of_a_pool_is_drawn_with_pages_holes_and_pending_frees() {
    let Some(browser) = program("chromium") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut browser, page) = (Browser::start(&browser), folder.path().join("page.html"));
    plot(Path::new(&format!("{ROOT}/cli/tests/plot_pages/snapshot.json")), &page, &[]);
    let (shown, picture) = checked(&mut browser, &page);
    assert_eq!(
        (&shown["blocks"], &shown["limit"], &shown["live"]),
        (&5.into(), &(32u64 << 20).into(), &(13_107_200u64).into())
    );
    assert_answers("snapshot.json", &shown);
    let text = |key: &str| shown[key].as_str().expect(key);
    let moment = "5 live blocks, 12.5 MiB; 20.0 MiB mapped, 4 holes of 7.50 MiB, the largest 4.50 MiB";
    assert!(text("moment").starts_with(moment), "{shown}");
    assert!(text("moment").ends_with("mappedidlepending frees"), "{shown}");
    assert!(text("pinned").contains("address 0x7f0") && text("pinned").contains("pool: "), "{shown}");
    assert_eq!((&shown["named"], &shown["rectangles"]), (&"4 blocks, 9.48 MiB".into(), &Value::Null));
    assert_looks_alike("moment", picture);
}

#[test]
fn a_million_events_open_in_time() {
    let Some(browser) = program("chromium") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (file, page) = (folder.path().join("million.csv"), folder.path().join("page.html"));
    let mut text = std::io::BufWriter::new(std::fs::File::create(&file).expect("a file"));
    writeln!(text, "op,id,size,stream,t_us").expect("a file");
    (0..200).for_each(|site| writeln!(text, "o,pool,forward at layer{site}.py:{site}").expect("a file"));
    // Each block lives for 300 others.
    for id in 0..500_300u64 {
        let size = |id: u64| 512 * (1 + id * 7919 % 4001);
        if id < 500_000 {
            writeln!(text, "a,{id},{},{},{id},{}", size(id), id % 3, 1 + id % 200).expect("a file");
        }
        if let Some(freed) = id.checked_sub(300) {
            writeln!(text, "f,{freed},{},{},{id}", size(freed), freed % 3).expect("a file");
        }
    }
    drop(text);
    plot(&file, &page, &["--source", "virtual"]);
    let mut browser = Browser::start(&browser);
    browser.open(&page);
    // Processor time of its thread, as the browser counts it: a busy machine does not prolong it.
    let took = browser.processor_time();
    let shown = browser.evaluate("performance.now()");
    let again = browser.evaluate("{ const began = performance.now(); drawAll(); performance.now() - began }");
    eprintln!("opened in {took:.2} s of processor time, {shown} ms; drawn again in {again} ms");
    assert!((0.01..OPENS).contains(&took), "opened in {took} s");
    assert_eq!(browser.evaluate("trace.events"), 1_000_000);
}

/// Requested bytes of all blocks, and these times the events for which each is live.
fn sums(trace: &Trace) -> (u64, u64) {
    let mut live = HashMap::new();
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
