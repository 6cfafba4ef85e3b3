//! The sources of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of every crate of the repository, those of workspaces of their own included: `src` beside a
/// `Cargo.toml`, or the programs of `fuzz_targets`; and each test of several files.
pub(crate) fn sources() -> Vec<String> {
    fn search(folder: &Path, to: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let (path, name) = (entry.path(), entry.file_name().into_string().expect("text"));
            // Not what is built or installed.
            if !entry.file_type().expect("a type").is_dir()
                || name.starts_with('.')
                || ["target", "node_modules"].contains(&name.as_str())
            {
                continue;
            }
            let is_crates =
                folder.join("Cargo.toml").exists() && ["src", "fuzz_targets"].contains(&name.as_str());
            let is_test = folder.ends_with("tests") && path.join("main.rs").exists();
            if is_crates || is_test {
                to.push(path);
            } else {
                search(&path, to);
            }
        }
    }
    let mut found = Vec::new();
    search(root(), &mut found);
    let relative =
        |path: &PathBuf| path.strip_prefix(root()).expect("below").to_str().expect("text").replace('\\', "/");
    found.iter().map(relative).collect()
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn files(folder: &Path, kind: &str, to: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, kind, to);
        } else if path.extension().is_some_and(|extension| extension == kind) {
            to.push(path);
        }
    }
}

/// The code of each file of a folder of sources, by module; `lib` and `main` by that name.
pub(crate) fn modules(source: &str) -> BTreeMap<String, String> {
    let folder = root().join(source);
    let mut all = Vec::new();
    files(&folder, "rs", &mut all);
    assert!(!all.is_empty(), "{source}: {all:?}");
    let module = |path: &Path| {
        let name = path.strip_prefix(&folder).expect("below").to_str().expect("text").replace('\\', "/");
        name.trim_end_matches(".rs").trim_end_matches("/mod").to_owned()
    };
    let texts: Vec<_> =
        all.iter().map(|path| (module(path), fs::read_to_string(path).expect("text"))).collect();
    let tests: BTreeSet<_> = texts.iter().flat_map(|(module, text)| test_modules(module, text)).collect();
    texts
        .iter()
        .filter(|(module, _)| !tests.contains(module))
        .map(|(module, text)| (module.clone(), code(text)))
        .collect()
}

/// The modules in files of their own that a file declares for tests alone.
fn test_modules(module: &str, text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    let declared = lines
        .windows(2)
        .filter(|two| two[0].starts_with("#[cfg(test)]") || two[0].starts_with("#[cfg(all(test"));
    let names = declared.filter_map(|two| two[1].strip_prefix("mod ")?.strip_suffix(';'));
    names
        .map(
            |name| {
                if ["lib", "main"].contains(&module) { name.to_owned() } else { format!("{module}/{name}") }
            },
        )
        .collect()
}

/// A file's text without comments and without its unit tests, which may use all there is.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        if is_test && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
            lines.by_ref().find(|line| *line == "}");
            continue;
        }
        if is_test && lines.peek().is_some_and(|next| next.starts_with("mod ")) {
            lines.next();
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}
