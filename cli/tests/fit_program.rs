//! `vrampool fit`: what it prints and writes, how that is used, and how it fails.

use serde_json::{Map, Value};
use std::path::Path;
use vrampool_test_support::{command, outcome};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");

fn vrampool(arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(command(env!("CARGO_BIN_EXE_vrampool")).args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn keys(row: &Map<String, Value>) -> Vec<&str> {
    row.keys().map(String::as_str).collect()
}

#[test]
fn written_classes_are_those_of_a_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("some.classes");
    let (code, out, err) = vrampool(&["fit", TRACE, "--output", text(&path)]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let fitted = format!("fitted:{}", text(&path));
    for words in ["live at once", "padding", "multistream: 362 requests of 92 sizes;", &fitted] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let written = std::fs::read_to_string(&path).expect("a file");
    assert!(written.starts_with("vrampool fitted classes 2\n") && written.lines().count() > 3, "{written}");

    let held = |classes: &str| {
        let (code, out, err) = vrampool(&["replay", TRACE, "--json", "--size-classes", classes]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let rows = out.lines().map(|line| serde_json::from_str::<Map<String, Value>>(line).expect(line));
        let rows: Vec<_> = rows.collect();
        let names = rows.iter().map(|row| row["size_classes"].as_str().expect("a word").to_owned());
        (names.collect::<Vec<_>>(), rows.iter().map(|row| row["peak_held"].as_u64()).max().flatten())
    };
    let (names, by_fitted) = held(&fitted);
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("table:")), "{names:?}");
    assert!(by_fitted < held("fixed").1);
}

#[test]
fn json_is_the_fit_then_each_class() {
    let (code, out, err) = vrampool(&["fit", TRACE, "--json", "--classes", "3"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let rows = out.lines().map(|line| serde_json::from_str::<Map<String, Value>>(line).expect(line));
    let rows: Vec<_> = rows.collect();
    let of = |kind: &str| rows.iter().filter(|row| row["row"] == kind).collect::<Vec<_>>();
    let (fit, classes) = (of("fit"), of("class"));
    assert_eq!((fit.len(), fit.len() + classes.len()), (1, rows.len()));
    let number = |row: &Map<String, Value>, key: &str| row[key].as_u64().expect(key);
    assert_eq!(
        (number(fit[0], "requests"), number(fit[0], "distinct_sizes"), number(fit[0], "learned_classes")),
        (362, 92, 3)
    );
    let class_keys =
        ["class", "held", "learned", "padding", "peak_buffers", "requests", "row", "share", "sizes"];
    assert!(classes.iter().all(|row| keys(row) == class_keys), "{classes:?}");
    assert_eq!(classes.iter().map(|row| number(row, "requests")).sum::<u64>(), 362);
    assert_eq!(classes.iter().map(|row| number(row, "sizes")).sum::<u64>(), 92);
    assert_eq!(classes.iter().filter(|row| row["learned"] == true).count(), 3);
}

#[test]
fn an_empty_trace_teaches_nothing_and_that_is_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, classes) = (folder.path().join("empty.csv"), folder.path().join("empty.classes"));
    std::fs::write(&trace, "op,id,size,stream,t_us\n").expect("a file");
    for json in [&["--json"][..], &[]] {
        let arguments = [&["fit", text(&trace), "--output", text(&classes)], json].concat();
        let (code, out, err) = vrampool(&arguments);
        assert_eq!(code, Some(0), "{out}");
        assert!(err.contains("warning: ") && err.contains("no last line with the number of events"), "{err}");
    }
    assert_eq!(
        std::fs::read_to_string(&classes).expect("a file"),
        "vrampool fitted classes 2\nend 0 00000000\n"
    );
    let fitted = format!("fitted:{}", text(&classes));
    assert_eq!(vrampool(&["replay", TRACE, "--size-classes", &fitted]).0, Some(0));
}

#[test]
fn padding_is_a_share_of_the_bytes_of_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("small.csv");
    std::fs::write(&trace, "op,id,size,stream,t_us\na,0,4,0,0\n").expect("a file");
    let (code, out, _) = vrampool(&["fit", text(&trace)]);
    // 508 of 512 bytes.
    assert!(code == Some(0) && out.contains("99.2 %") && !out.contains("12700"), "{out}");
}

#[test]
fn errors_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let trace = |name: &str, text: &str| {
        std::fs::write(at(name), text).expect("a file");
        at(name)
    };
    let bad = trace("bad.csv", "op,id,size,stream,t_us\na,0,-5,0,0\n");
    let cut = trace("cut.csv.gz", "\u{1f}");
    for (arguments, words) in [
        (vec!["no/such/file"], "error: no/such/file: the file cannot be opened"),
        (vec![text(&bad)], "line 2, field `size`: `-5` is negative"),
        (vec![text(&cut)], "the file ends early"),
        (vec![TRACE, "--max-events", "10"], "raise `max_events`"),
        (vec![TRACE, "--output", "no/such/folder/file"], "no/such/folder/file: the file cannot be created"),
    ] {
        let (code, out, err) = vrampool(&[&["fit"], &arguments[..]].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains(words), "{err}");
    }
    for arguments in [vec![], vec![TRACE, "--classes", "-1"], vec![TRACE, "--classes", "1025"]] {
        assert_eq!(vrampool(&[&["fit"], &arguments[..]].concat()).0, Some(2), "{arguments:?}");
    }

    let order = trace("order.classes", "vrampool fitted classes 1\n\n512\n512\n");
    let (order, none) = (format!("fitted:{}", text(&order)), format!("fitted:{}", text(&at("none"))));
    for (classes, words) in [
        (order.as_str(), "order.classes, line 4: 512 is not larger"),
        (&none, "none: the file cannot be opened"),
        ("fitted:", "the file cannot be opened"),
        ("fitted", "known are fixed"),
    ] {
        let (code, _, err) = vrampool(&["replay", TRACE, "--size-classes", classes]);
        assert!(code == Some(2) && err.contains(words), "{classes}: {err}");
    }
}
