//! The library's folders form layers, which CONTRIBUTING.md lists: each imports from those below it alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Arrows that point up, each with its reason.
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

/// The folders and files of the table, from top to bottom, as paths under `src`.
fn layers() -> Vec<String> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it is there");
    let section = text.split("\n## Layers\n").nth(1).expect("a section of layers");
    let section = section.split("\n## ").next().expect("the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `src/")?.split('`').next());
    let rows: Vec<_> =
        rows.map(|path| path.trim_end_matches('/').trim_end_matches(".rs").to_owned()).collect();
    assert!(rows.len() > 10 && rows[0] == "lib", "{rows:?}");
    rows
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, to: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, to);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            to.push(path);
        }
    }
}

/// The layer that a module or an item is in: that of the longest path which begins it.
fn layer_of(module: &str, layers: &[String]) -> Option<usize> {
    let is_in = |layer: &&String| module == **layer || module.starts_with(&format!("{layer}/"));
    let longest = layers.iter().filter(is_in).max_by_key(|layer| layer.len())?;
    layers.iter().position(|layer| layer == longest)
}

/// A file's text without comments and without its unit tests, which may use all there is.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        if is_test && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
            lines.by_ref().find(|line| *line == "}");
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// The paths that begin with `crate` or `super`, those in braces included, as modules and items below `src`.
fn paths(code: &str, module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let is_word = !code[..start]
            .ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$');
        // `pub(in crate::…)` says who may see an item; and a path of several `super` is read from its first.
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
fn imports_point_down_only() {
    let layers = layers();
    let source = root().join("src");
    let mut all = Vec::new();
    files(&source, &mut all);
    assert!(all.len() > 150, "{all:?}");
    let (mut wrong, mut excused) = (Vec::new(), BTreeSet::new());
    for path in &all {
        let name = path.strip_prefix(&source).expect("below").to_str().expect("text").replace('\\', "/");
        let module = name.trim_end_matches(".rs").trim_end_matches("/mod");
        let Some(own) = layer_of(module, &layers) else {
            wrong.push(format!("src/{name} is in no layer"));
            continue;
        };
        if own == 0 {
            continue;
        }
        for target in paths(&code(&fs::read_to_string(path).expect("text")), module) {
            let Some(other) = layer_of(&target, &layers) else {
                wrong.push(format!("src/{name} names `{target}` of the crate's root, which is above all"));
                continue;
            };
            if other >= own {
                continue;
            }
            match EXCEPTIONS.iter().find(|(from, to, _)| *from == layers[own] && *to == layers[other]) {
                Some(exception) => drop(excused.insert(exception)),
                None => wrong.push(format!(
                    "src/{name} imports `{target}`: {} is above {}",
                    layers[other], layers[own]
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(excused.len(), EXCEPTIONS.len(), "an exception that nobody needs");
}

#[test]
fn paths_are_found_wherever_they_are() {
    let text = "use crate::pool::{Pool, buffer::Buffer};\nuse super::{depot, hot::Hot};\nlet a = crate::UNLIMITED;\n\
                pub(in crate::metrics) fn f() {} // crate::comment\nuse super::super::sync::Mutex as M;\n\
                #[cfg(test)]\nmod tests {\n    use crate::broker::Broker;\n}\nfn g() -> crate::error::Error { $crate::no!() }\n";
    let found = paths(&code(text), "cache/magazine/rack");
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
