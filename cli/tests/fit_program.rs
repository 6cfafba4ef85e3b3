//! `vrampool fit`: what it prints and writes, how that is used, and how it fails.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use vrampool_test_support::{command, failed, outcome, printed, rows};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");

fn vrampool(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.args(arguments);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn written_classes_are_those_of_a_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("some.classes");
    let out = printed(&mut vrampool(&["fit", TRACE, "--output", text(&path)]));
    let fitted = format!("fitted:{}", text(&path));
    for words in ["live at once", "padding", "multistream: 362 requests of 92 sizes;", &fitted] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let written = std::fs::read_to_string(&path).expect("a file");
    assert!(written.starts_with("vrampool fitted classes 2\n") && written.lines().count() > 3, "{written}");

    let held = |classes: &str| {
        let rows = rows(&mut vrampool(&["replay", TRACE, "--json", "--size-classes", classes]));
        let names = rows.iter().map(|row| row["size_classes"].as_str().expect("a word").to_owned());
        (names.collect::<Vec<_>>(), rows.iter().map(|row| row["peak_held"].as_u64()).max().flatten())
    };
    let (names, by_fitted) = held(&fitted);
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("table:")), "{names:?}");
    assert!(by_fitted < held("fixed").1);
}

#[test]
fn json_is_the_fit_then_each_class() {
    let rows = rows(&mut vrampool(&["fit", TRACE, "--json", "--classes", "3"]));
    let of = |kind: &str| rows.iter().filter(|row| row["row"] == kind).collect::<Vec<_>>();
    let (fit, classes) = (of("fit"), of("class"));
    assert_eq!((fit.len(), fit.len() + classes.len()), (1, rows.len()));
    let number = |row: &Value, key: &str| row[key].as_u64().expect(key);
    assert_eq!(
        (number(fit[0], "requests"), number(fit[0], "distinct_sizes"), number(fit[0], "learned_classes")),
        (362, 92, 3)
    );
    let class_keys =
        ["class", "held", "learned", "padding", "peak_buffers", "requests", "row", "share", "sizes"];
    let has_keys = |row: &&Value| row.as_object().expect("an object").keys().eq(class_keys);
    assert!(classes.iter().all(has_keys), "{classes:?}");
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
        let (code, out, err) = outcome(&mut vrampool(&arguments));
        assert_eq!(code, Some(0), "{out}");
        assert!(err.contains("warning: ") && err.contains("no last line with the number of events"), "{err}");
    }
    assert_eq!(
        std::fs::read_to_string(&classes).expect("a file"),
        "vrampool fitted classes 2\nend 0 00000000\n"
    );
    let fitted = format!("fitted:{}", text(&classes));
    rows(&mut vrampool(&["replay", TRACE, "--json", "--size-classes", &fitted]));
}

#[test]
fn padding_is_a_share_of_the_bytes_of_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("small.csv");
    std::fs::write(&trace, "op,id,size,stream,t_us\na,0,4,0,0\n").expect("a file");
    let (code, out, _) = outcome(&mut vrampool(&["fit", text(&trace)]));
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
        let err = failed(&mut vrampool(&[&["fit"], &arguments[..]].concat()), 1);
        assert!(err.contains(words), "{err}");
    }
    for arguments in [vec![], vec![TRACE, "--classes", "-1"], vec![TRACE, "--classes", "1025"]] {
        failed(&mut vrampool(&[&["fit"], &arguments[..]].concat()), 2);
    }

    let order = trace("order.classes", "vrampool fitted classes 1\n\n512\n512\n");
    let (order, none) = (format!("fitted:{}", text(&order)), format!("fitted:{}", text(&at("none"))));
    for (classes, words) in [
        (order.as_str(), "order.classes, line 4: 512 is not larger"),
        (&none, "none: the file cannot be opened"),
        ("fitted:", "the file cannot be opened"),
        ("fitted", "known are fixed"),
    ] {
        let err = failed(&mut vrampool(&["replay", TRACE, "--size-classes", classes]), 2);
        assert!(err.contains(words), "{classes}: {err}");
    }
}
