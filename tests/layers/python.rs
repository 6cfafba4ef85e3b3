//! The modules of the Python package.

use crate::imports::circles;
use crate::tree::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// The modules below `folder` that a Python file imports, also where only type checkers do.
fn python_imports(module: &str, text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((from, mut names)) =
            line.trim().strip_prefix("from .").and_then(|rest| rest.split_once(" import "))
        else {
            continue;
        };
        let list: String;
        if names.starts_with('(') {
            list = lines.by_ref().take_while(|line| !line.starts_with(')')).collect::<Vec<_>>().join(" ");
            names = &list;
        }
        let mut folder: Vec<&str> = module.trim_end_matches("/__init__").split('/').collect();
        let dots = from.len() - from.trim_start_matches('.').len();
        folder.truncate(folder.len().saturating_sub(dots + usize::from(!module.ends_with("__init__"))));
        let start = folder.join("/");
        let from = from.trim_start_matches('.').replace('.', "/");
        let names = names.split(',').map(|name| name.split_whitespace().next().unwrap_or_default());
        for name in names {
            let path = format!("{start}/{from}/{name}").replace("//", "/").trim_matches('/').to_owned();
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let all =
                [path.clone(), format!("{path}/__init__"), parent.to_owned(), format!("{parent}/__init__")];
            found.extend(all.into_iter().find(|path| modules.contains(path)));
        }
    }
    found.remove(module);
    found
}

#[test]
fn python_modules_form_no_circle() {
    let folder = root().join("bindings/python/src/vrampool");
    let mut all = Vec::new();
    files(&folder, "py", &mut all);
    let name = |path: &PathBuf| {
        let path = path.strip_prefix(&folder).expect("below").to_str().expect("text").replace('\\', "/");
        path.trim_end_matches(".py").to_owned()
    };
    let modules: BTreeSet<String> = all.iter().map(name).collect();
    let mut imports = BTreeMap::new();
    for path in &all {
        let text = fs::read_to_string(path).expect("text");
        imports.insert(name(path), python_imports(&name(path), &text, &modules));
    }
    assert!(imports["torch/_install"].contains("torch/_devices"), "{imports:?}");
    let arrows = imports
        .iter()
        .map(|(module, to)| (module.as_str(), to.iter().map(String::as_str).collect()))
        .collect();
    let circles = circles(&arrows);
    assert!(circles.is_empty(), "modules that import each other in a circle: {circles:?}");
}
