//! The folders of the library, the program, the C library and the simulated CUDA driver form layers, which
//! `order.txt` lists: each imports from those below it alone. No files of any crate import each other in a
//! circle, nor do those of the Python package. Its variables are known by name.

mod imports;
mod python;
mod tree;
mod variables;

use imports::{arrows, circles, paths};
use std::fs;
use std::path::PathBuf;
use tree::{files, modules, root, sources};

/// The sources that have a list of layers.
const LAYERED: &[&str] = &[
    "src",
    "cli/src",
    "demos/src",
    "bindings/c/src",
    "backends/cuda/simulator/src",
    "extensions/broker/src",
    "extensions/hooks/src",
    "extensions/sleep/src",
    "extensions/trace/src",
];

/// The folders and files of a list, from top to bottom, as paths under `source`.
fn layers(source: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("tests/layers/order.txt")).expect("it is there");
    let list = text.split("* `").find_map(|list| list.strip_prefix(&format!("{source}`: "))).expect("a list");
    let rows: Vec<_> = list.split(',').map(|path| path.trim().trim_end_matches('/').to_owned()).collect();
    assert!(rows.len() > 3, "{source}: {rows:?}");
    rows
}

/// The layer that a module or an item is in: that of the longest path which begins it.
fn layer_of(module: &str, layers: &[String]) -> Option<usize> {
    let is_in = |layer: &&String| module == **layer || module.starts_with(&format!("{layer}/"));
    let longest = layers.iter().filter(is_in).max_by_key(|layer| layer.len())?;
    layers.iter().position(|layer| layer == longest)
}

#[test]
fn imports_point_down_only() {
    let mut wrong = Vec::new();
    for source in LAYERED {
        let layers = layers(source);
        let modules = modules(source);
        for (module, code) in &modules {
            let Some(own) = layer_of(module, &layers) else {
                wrong.push(format!("{source}/{module} is in no layer"));
                continue;
            };
            if own == 0 {
                continue;
            }
            for target in paths(code, module) {
                let Some(other) = layer_of(&target, &layers) else {
                    // The program's commands may name the crate's own root, which is in the list.
                    wrong.push(format!("{source}/{module} names `{target}`, which is in no layer"));
                    continue;
                };
                if other >= own {
                    continue;
                }
                wrong.push(format!(
                    "{source}/{module} imports `{target}`: {} is above {}",
                    layers[other], layers[own]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_form_no_circle() {
    let mut found = Vec::new();
    let sources = sources();
    for known in
        LAYERED.iter().chain(&["fuzz/fuzz_targets", "backends/cuda/simulator/control/src", "tests/devices"])
    {
        assert!(sources.iter().any(|source| source == known), "{known} is not among {sources:?}");
    }
    for source in &sources {
        let modules = modules(source);
        let circles = circles(&arrows(&modules));
        found.extend(circles.into_iter().map(|circle| format!("{source}: {}", circle.join(", "))));
    }
    assert!(found.is_empty(), "files that import each other in a circle:\n{}", found.join("\n"));
}

/// The lists name files alone, because the first line of each says what it knows.
#[test]
fn each_file_says_what_it_knows() {
    let mut all = Vec::new();
    LAYERED.iter().for_each(|source| files(&root().join(source), "rs", &mut all));
    // The C library is described in its header, and a file of tests is named after the tested file.
    all.retain(|path| !path.ends_with("tests.rs") && !path.ends_with("bindings/c/src/lib.rs"));
    let is_silent = |path: &PathBuf| !fs::read_to_string(path).expect("text").starts_with("//! ");
    let silent: Vec<_> = all.into_iter().filter(is_silent).collect();
    assert!(silent.is_empty(), "their first line does not say what they know: {silent:?}");
}

/// The table of behaviours names files and functions that exist.
#[test]
fn each_behaviour_is_where_the_table_says() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it is there");
    let rows = text.split("| behaviour |").nth(1).expect("a table of behaviours").lines().skip(2);
    let (mut functions, mut wrong) = (0, Vec::new());
    for row in rows.take_while(|row| row.starts_with('|')) {
        let mut file = String::new();
        for name in row.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                let path = root().join("src").join(name);
                file = if path.is_file() { fs::read_to_string(&path).expect("text") } else { String::new() };
                wrong.extend((!path.exists()).then(|| name.to_owned()));
                continue;
            }
            functions += 1;
            let function = format!("fn {}", name.rsplit("::").next().expect("a name"));
            let is_there = ["(", "<"].iter().any(|end| file.contains(&format!("{function}{end}")));
            wrong.extend((!is_there).then(|| name.to_owned()));
        }
    }
    assert!(functions > 10, "{functions} functions");
    assert!(wrong.is_empty(), "CONTRIBUTING.md names what is not there: {}", wrong.join(", "));
}
