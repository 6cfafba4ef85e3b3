//! The library knows each variable that others read by its name, so that it warns of all other names.

use crate::tree::{files, root};
use std::collections::BTreeSet;
use std::fs;

/// Quoted names of variables of the library.
fn quoted(text: &str) -> BTreeSet<String> {
    let is_name =
        |name: &&str| name.chars().all(|c| c == '_' || c.is_ascii_uppercase() || c.is_ascii_digit());
    let names = text.split('"').filter(|name| name.len() > 9 && name.starts_with("VRAMPOOL_"));
    names.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn the_variables_of_others_are_those_that_they_read() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let own = read("src/environment.rs");
    let list = own.split_once("const OTHERS").and_then(|(_, list)| list.split_once("];")).expect("a list").0;
    let mut others = quoted(list);
    let mut all = Vec::new();
    for folder in ["backends", "bindings", "cli", "demos", "extensions", "tests/support"] {
        let folder = root().join(folder);
        let mut found = Vec::new();
        ["rs", "py"].iter().for_each(|kind| files(&folder, kind, &mut found));
        let is_test = |of: &str| ["tests", "benches", "target"].contains(&of);
        found.retain(|path| {
            let path = path.strip_prefix(&folder).expect("below");
            !path.iter().any(|part| part.to_str().is_some_and(is_test))
        });
        all.extend(found.iter().map(|path| quoted(&fs::read_to_string(path).expect("text"))));
    }
    let mut by_others: BTreeSet<_> = all.into_iter().flatten().collect();
    by_others.remove("VRAMPOOL_BACKEND");
    let unknown: Vec<_> = by_others.difference(&others).collect();
    assert!(by_others.len() > 10 && unknown.is_empty(), "others read {unknown:?}: add them to OTHERS");
    let checks = read(".ci/run") + &read("CONTRIBUTING.md");
    others.retain(|name| !by_others.contains(name) && !checks.contains(name.as_str()));
    assert!(others.is_empty(), "nothing reads {others:?}");
}
