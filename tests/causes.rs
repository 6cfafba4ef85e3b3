//! An error's cause is in its text or is its `source()`, never both: so a chain names each cause once.

#![cfg(feature = "host")]

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use vrampool::arena::{ArenaError, DeviceArena};
use vrampool::host::HostDevice;
use vrampool::{Backend, BackendError, Error, Pool, any};

const MIB: u64 = 1 << 20;

/// Checks one error and all of its causes.
fn check(error: &(dyn std::error::Error + 'static)) {
    let mut error = error;
    while let Some(cause) = error.source() {
        let (text, cause_text) = (error.to_string(), cause.to_string());
        assert!(!text.contains(&cause_text), "`{text}` includes its source `{cause_text}`");
        error = cause;
    }
}

#[test]
fn errors_of_pools_and_arenas_name_a_cause_once() {
    let device = HostDevice::builder().memory_limit(MIB).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::new(&device).expect("a pool");
    let arena = DeviceArena::builder(&device).limit(4096).build().expect("an arena");
    let limited = Pool::builder(&device).limit(4096).build().expect("a pool");
    let full = pool.allocate(4 * MIB, &stream).expect_err("more than the device has");
    assert!(matches!(full.backend(), Some(BackendError::OutOfMemory { .. })), "{full:?}");
    assert!(full.to_string().contains("the device is out of memory"), "{full}");
    let hole = arena.allocate(8192, &stream).expect_err("more than the arena has");
    assert!(matches!(hole.arena(), Some(ArenaError::NoSpace { .. })), "{hole:?}");
    let limit = limited.allocate(8192, &stream).expect_err("more than the limit");
    let invalid = arena.allocate(0, &stream).expect_err("no bytes");
    let setting = "exactly:3".parse::<vrampool::SizeClasses>().expect_err("no rule");
    let absent = any::open("no-such-device").map(drop).expect_err("no such name");
    for error in [full, hole, limit, invalid, setting, absent] {
        check(&error);
        assert!(error.source().is_none(), "{error:?}");
    }
}

/// A `main` that fails prints the text. The long form lists the fields.
#[test]
fn an_error_is_its_text_or_its_fields() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).limit(1024).build().expect("a pool");
    let refused = pool.allocate(4096, &stream).expect_err("more than the limit");
    let setting = "exactly:3".parse::<vrampool::SizeClasses>().expect_err("no rule");
    let errors = [Error::Closed, setting, refused];
    errors.iter().for_each(|error| assert_eq!(format!("{error:?}"), error.to_string()));
    let texts = errors.map(|error| format!("{error:#?}"));
    assert_eq!(texts[0], "Closed");
    assert!(texts[1].starts_with("Configuration(\n") && texts[1].contains("field: "), "{}", texts[1]);
    assert!(texts[2].contains("requested_bytes: 4096"), "{}", texts[2]);
}

/// Every derived error of the workspace: the text of a variant does not name the field that is its source.
#[test]
fn no_text_of_the_workspace_names_its_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut variants = 0;
    for folder in ["src", "backends", "bindings", "extensions", "cli/src", "demos/src", "tests/support"] {
        for file in rust_files(&root.join(folder)) {
            let text = fs::read_to_string(&file).expect("a source file");
            for (message, field) in sources(&text) {
                variants += 1;
                let named =
                    message.contains(&format!("{{{field}")) || message.contains(&format!("match {field} "));
                assert!(!named, "{}: {message} includes its source `{field}`", file.display());
            }
        }
    }
    assert!(variants > 10, "only {variants} variants with a source were found");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_own = |path: &PathBuf| !path.ends_with("target") && !path.ends_with("node_modules");
    let below = folders.into_iter().filter(is_own).flat_map(|folder| rust_files(&folder));
    files.into_iter().filter(|path| path.extension().is_some_and(|name| name == "rs")).chain(below).collect()
}

/// The messages of variants that have a source, each with the name of that field.
fn sources(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in text.split("#[error(").skip(1) {
        let (message, declared) = part.split_once(")]").expect("an attribute");
        // Up to the end of the variant or of the item.
        let declared = declared.split("\n    },").next().unwrap_or(declared);
        let declared = declared.split("\n}").next().unwrap_or(declared);
        if message.trim() == "transparent" {
            continue;
        }
        let after = ["#[source]", "#[from]"].iter().find_map(|mark| declared.split_once(mark));
        let field = match after {
            Some((_, field)) => {
                field.split_once(':').filter(|_| !declared.contains("(#[")).map_or("0", |(name, _)| name)
            }
            None if declared.contains(" source: ") => "source",
            None => continue,
        };
        found.push((message.to_owned(), field.trim().trim_start_matches("pub ").to_owned()));
    }
    found
}
