//! Imports of files of Rust, and their cycles.

use crate::tree::code;
use std::collections::{BTreeMap, BTreeSet};

/// For each file those that it imports from. What a file re-exports is its own file's: such a name leads there, and
/// the re-export itself is no arrow. Nor is one from or to the crate's root.
pub(crate) fn arrows(modules: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let is_root = |module: &str| ["lib", "main"].contains(&module);
    let mut exports = BTreeMap::new();
    let mut rest = BTreeMap::new();
    for (module, code) in modules {
        let mut own = String::new();
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            let words = line.trim_start();
            let is_export = words.starts_with("pub ") && words.starts_with("pub use ")
                || words.starts_with("pub(") && words.contains(") use ");
            if !is_export {
                own.push_str(line);
                own.push('\n');
                continue;
            }
            let mut export = line.to_owned();
            while !export.contains(';') {
                export.push_str(lines.next().expect("an end"));
            }
            for target in paths_of_file(&export, module, modules) {
                let name = target.rsplit('/').next().unwrap_or_default().to_owned();
                let own = if is_root(module) { name } else { format!("{module}/{name}") };
                exports.insert(own, target);
            }
        }
        rest.insert(module.as_str(), own);
    }
    let mut arrows = BTreeMap::new();
    for (module, code) in &rest {
        let targets = paths_of_file(code, module, modules);
        let mut found: BTreeSet<&str> =
            targets.iter().filter_map(|to| file_of(to, modules, &exports)).collect();
        found.retain(|to| to != module && !is_root(to) && !is_root(module));
        arrows.insert(*module, found);
    }
    arrows
}

/// As [`paths`], those that begin with a child of the module included.
fn paths_of_file(code: &str, module: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = paths(code, module);
    let prefix = if ["lib", "main"].contains(&module) { String::new() } else { format!("{module}/") };
    for child in modules.keys().filter_map(|other| other.strip_prefix(&prefix)) {
        for (start, _) in code.match_indices(&format!("{child}::")) {
            let is_word = !code[..start]
                .ends_with(|before: char| before.is_alphanumeric() || ['_', ':', '.'].contains(&before));
            if is_word && !child.contains('/') {
                leaves(prefix.trim_end_matches('/'), &code[start..], &mut found);
            }
        }
    }
    found
}

/// The file that a path leads to: that of its longest beginning, or where that re-exports what follows.
fn file_of<'a>(
    path: &str,
    modules: &'a BTreeMap<String, String>,
    exports: &BTreeMap<String, String>,
) -> Option<&'a str> {
    let mut path = path.to_owned();
    for _ in 0..8 {
        let exported = exports.iter().find(|(name, target)| {
            let behind = path.strip_prefix(name.as_str());
            name != target && behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('/'))
        });
        let Some((name, target)) = exported else { break };
        path = format!("{target}{}", &path[name.len()..]);
    }
    let mut beginning = path.as_str();
    loop {
        if let Some((module, _)) = modules.get_key_value(beginning) {
            return Some(module);
        }
        beginning = beginning.rsplit_once('/')?.0;
    }
}

/// Files that reach each other, in groups, each in order.
pub(crate) fn circles<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<Vec<&'a str>> {
    let reached = |start: &'a str| {
        let (mut found, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(file) = next.pop() {
            next.extend(arrows[file].iter().copied().filter(|to| found.insert(*to)));
        }
        found
    };
    let reach: BTreeMap<_, _> = arrows.keys().map(|file| (*file, reached(file))).collect();
    let group = |file: &&'a str| {
        let own = &reach[*file];
        own.iter().copied().filter(|other| reach[*other].contains(*file)).collect::<Vec<_>>()
    };
    arrows.keys().map(group).filter(|group| group.len() > 1).collect()
}

/// The paths that begin with `crate` or `super`, those in braces included, as modules and items below `src`.
pub(crate) fn paths(code: &str, module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let is_word = !code[..start]
            .ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$');
        // `pub(in crate::…)` limits an item's visibility. A path of several `super` is read from its first.
        if !is_word || code[..start].ends_with("in ") || code[..start].ends_with("super::") {
            continue;
        }
        let mut prefix: Vec<&str> = module.split('/').collect();
        let mut rest = &code[start..];
        if word == "crate::" {
            prefix.clear();
            rest = &rest[word.len()..];
        }
        while let Some(behind) = rest.strip_prefix("super::") {
            prefix.pop();
            rest = behind;
        }
        leaves(&prefix.join("/"), rest, &mut found);
    }
    found
}

/// Adds what the tree at the beginning of `text` names.
fn leaves(prefix: &str, text: &str, found: &mut BTreeSet<String>) {
    let join = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
    if let Some(inner) = text.strip_prefix('{') {
        let mut depth = 0;
        let mut start = 0;
        for (index, character) in inner.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    leaves(prefix, inner[start..index].trim(), found);
                    start = index + 1;
                    if character == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let end =
        text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    let (name, behind) = text.split_at(end);
    match behind.strip_prefix("::") {
        // A type's own items, or a macro's.
        Some(_) if !name.starts_with(char::is_lowercase) => drop(found.insert(join(name))),
        Some(behind) => leaves(&join(name), behind, found),
        None if name.is_empty() => drop(found.insert(prefix.to_owned())),
        None => drop(found.insert(join(name))),
    }
}

#[test]
fn paths_are_found_wherever_they_are() {
    let text = "use crate::pool::{Pool, buffer::Buffer};\nuse super::{depot, hot::Hot};\nlet a = crate::UNLIMITED;\n\
                pub(in crate::metrics) fn f() {} // crate::comment\nuse super::super::sync::Mutex as M;\n\
                #[cfg(test)]\nmod tests {\n    use crate::broker::Broker;\n}\nfn g() -> crate::error::Error { $crate::no!() }\n";
    let found = paths(&code(text), "cache/magazine/thread_cache");
    let expected = [
        "UNLIMITED",
        "cache/magazine/depot",
        "cache/magazine/hot/Hot",
        "cache/sync/Mutex",
        "error/Error",
        "pool/Pool",
        "pool/buffer/Buffer",
    ];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn a_circle_is_found_through_a_re_export() {
    let files = [
        ("pool", "pub use buffer::Buffer;\nuse crate::cache::Cache;\n"),
        ("pool/buffer", "use crate::source::Source;\n"),
        ("cache", "mod depot;\nfn f() { depot::take() }\n"),
        ("cache/depot", "use crate::pool::Buffer;\nuse super::Cache;\n"),
        ("source", "fn g() -> crate::pool::Buffer { }\n"),
    ];
    let modules: BTreeMap<_, _> =
        files.iter().map(|(module, code)| ((*module).to_owned(), (*code).to_owned())).collect();
    let found = circles(&arrows(&modules));
    let expected = [vec!["cache", "cache/depot"], vec!["pool/buffer", "source"]];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}
