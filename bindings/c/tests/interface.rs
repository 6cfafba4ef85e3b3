//! The header, the version script and the library agree on one interface, and the header documents all of it.

mod declared;

use declared::{HEADER, documented, functions, number};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use vrampool_c::boundary::Versioned;
use vrampool_c::{Block, BrokerPlan, Chunk, RunReport, SleepReport, Stats, vrampool_abi_version};
use vrampool_test_support::program;

fn here(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The nodes of the version script: version, functions, and the version before.
fn nodes() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    let script = include_str!("../vrampool.map");
    let (_, script) = script.split_once("*/").expect("a comment");
    let nodes = script.split("VRAMPOOL_").skip(1).collect::<Vec<_>>();
    let mut found = Vec::new();
    // Behind a node's end is the name of the one before it, so every other piece is a node.
    for (index, piece) in nodes.iter().enumerate() {
        let Some((version, body)) = piece.split_once(" {") else { continue };
        let global = body.split_once("global:").expect("functions").1;
        let functions =
            global.lines().map(str::trim).take_while(|line| !matches!(*line, "local:" | "};" | "}"));
        let functions = functions.filter_map(|line| line.strip_suffix(';')).collect();
        let before = nodes.get(index + 1).filter(|_| !body.contains("};"));
        found.push((version, functions, before.map_or("", |before| before.trim().trim_end_matches(';'))));
    }
    found
}

fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|part| part.parse().expect("a number")).collect()
}

#[test]
fn every_function_has_the_symbol_version_that_added_it() {
    let mut listed = BTreeSet::new();
    let mut before = "";
    for (node, functions, follows) in nodes() {
        assert_eq!(follows, before, "VRAMPOOL_{node} names the node before it");
        assert!(before.is_empty() || version(before) < version(node), "{before} is before {node}");
        assert!(
            version(node) <= version(env!("CARGO_PKG_VERSION")),
            "VRAMPOOL_{node} is a version of vrampool"
        );
        for function in functions {
            assert!(listed.insert(function), "vrampool.map lists {function} twice");
        }
        before = node;
    }
    let declared = functions();
    assert_eq!(declared.len(), declared.iter().collect::<BTreeSet<_>>().len());
    for function in &declared {
        assert!(listed.contains(function), "vrampool.map lacks {function}, in the node of the next release");
    }
    for function in listed {
        assert!(declared.contains(&function), "the header lacks {function}, which vrampool.map lists");
    }
}

#[test]
fn the_header_and_the_library_have_one_version() {
    assert_eq!(number("VRAMPOOL_ABI_VERSION"), vrampool_abi_version());
    let parts =
        ["MAJOR", "MINOR", "PATCH"].map(|part| number(&format!("VRAMPOOL_VERSION_{part}")).to_string());
    assert_eq!(parts.join("."), env!("CARGO_PKG_VERSION"));
}

/// What a program may pass as `struct_size` that was compiled with the first header of an ABI version.
#[test]
fn the_least_size_of_a_struct_is_that_of_the_first_version() {
    let pointer = size_of::<usize>();
    // A size that changes is another ABI version; fields that are added change the last number alone.
    let first = [
        ("vrampool_block", 5 * 8 + pointer, Block::LEAST, size_of::<Block>()),
        ("vrampool_stats", 103 * 8, Stats::LEAST, size_of::<Stats>()),
        ("vrampool_sleep_report", 5 * 8, SleepReport::LEAST, size_of::<SleepReport>()),
        ("vrampool_plan", 5 * 8, BrokerPlan::LEAST, size_of::<BrokerPlan>()),
        // Written by the library alone.
        ("vrampool_chunk", 6 * 8 + 4 * pointer, 6 * 8 + 4 * pointer, size_of::<Chunk>()),
        ("vrampool_run_report", 8 * 8, RunReport::LEAST, size_of::<RunReport>()),
    ];
    assert_eq!(vrampool_abi_version(), 1, "a new ABI version has sizes of its own here");
    for (name, expected, least, size) in first {
        assert_eq!(least, expected, "{name} began so in ABI version 1");
        assert!(size >= least, "{name}");
        assert!(HEADER.contains(&format!("typedef struct {name} {{")), "{name}");
    }
    let versioned = HEADER.matches("    size_t struct_size;\n").count();
    assert_eq!(versioned, first.len(), "each struct that begins with its size is in this list");
    // The header's structs are as large as the library's.
    let Some(cc) = program("cc") else { return };
    let checks =
        first.map(|(name, _, _, size)| format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n"));
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sizes.c");
    std::fs::write(&source, format!("#include <vrampool.h>\n{}", checks.concat())).expect("a file");
    let output =
        Command::new(cc).args(["-std=c11", "-fsyntax-only", "-I", &here("include")]).arg(source).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_function_states_its_thread_safety() {
    let documented = documented();
    assert!(documented.len() > 60, "{documented:?}");
    for (function, comment) in documented {
        assert!(comment.starts_with("/**"), "{function} has a separate comment");
        assert!(
            comment.contains("\n * Thread-safe"),
            "the comment of {function} lacks `Thread-safe`: {comment}"
        );
    }
}

#[test]
fn doxygen_builds_the_reference_without_a_warning() {
    if program("doxygen").is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reference");
    let output = Command::new(here("doc/build.sh")).arg(&folder).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{}: {text}", output.status);
    let page = std::fs::read_to_string(folder.join("vrampool_8h.html")).expect("a page of the header");
    for function in functions() {
        assert!(page.contains(&format!(">{function}</a>")), "{function} is on the page");
    }
    assert!(page.matches("Thread-safe").count() >= functions().len());
}
