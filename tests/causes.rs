//! An error's cause is in its text or is its `source()`, never both: so a chain names each cause once.

#![cfg(feature = "host")]

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use vrampool::arena::{ArenaError, DeviceArena};
use vrampool::errors::Cause;
use vrampool::host::HostDevice;
use vrampool::{Amount, Backend, BackendError, Error, Ledger, Pool, Source, any};
use vrampool_test_support::{assert_causes_once, has_virtual_memory};

const MIB: u64 = 1 << 20;

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
        assert_causes_once(&error);
        assert!(error.source().is_none(), "{error:?}");
    }
}

/// A common limit of several pools is reported as a limit, with its name, not as a full or fragmented device.
#[test]
fn a_refusal_names_what_refused() {
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let stream = device.create_stream().expect("a stream");
    if !has_virtual_memory(&device) {
        return;
    }
    let ledger = Ledger::named("tenants", 16 * MIB);
    let over = |arena: &DeviceArena<_>| Pool::builder(&device).arena(arena).build().expect("a pool");
    let arenas =
        [(); 2].map(|()| DeviceArena::builder(&device).growing().within(&ledger).build().expect("an arena"));
    let pool = || Pool::builder(&device).source(Source::Virtual);
    let root = pool().name("root").limit(16 * MIB).build().expect("a pool");
    let within = root.child("within").build().expect("a pool");
    for ([holder, other], text) in [
        (
            [over(&arenas[0]), over(&arenas[1])],
            "the limit of `tenants` is 16.0 MiB, of which 10.0 MiB are in use",
        ),
        ([root, within], "pool `root` holds 10.0 MiB"),
    ] {
        let _live = holder.allocate(10 * MIB, &stream).expect("memory");
        let error = other.allocate(10 * MIB, &stream).expect_err("more than is left");
        let cause = error.out_of_memory().map(|error| error.cause());
        assert_eq!(cause, Some(Cause::SharedLimit), "{error}");
        assert!(error.to_string().contains(text) && error.to_string().contains("raise"), "{error}");
        let failed = other.stats().failed;
        assert_eq!((failed.by_limit, failed.total()), (1, 1), "{failed:?}");
    }
    let initial = |limit, bytes| {
        let built = pool().limit(limit).initial(Amount::Bytes(bytes)).build();
        built.map(drop).expect_err("more than there is").to_string()
    };
    let error = initial(Some(8 * MIB), 16 * MIB);
    assert!(error.contains("is 8.0 MiB, of which 0 B are in use"), "{error}");
    let error = initial(None, 8 << 30);
    assert!(error.contains("the device is out of memory, ") && error.contains(" MiB are free"), "{error}");
}

/// Each arena reserves a multiple of its device's memory: at some number of them no addresses are left.
#[test]
#[cfg(target_pointer_width = "64")]
fn a_lack_of_addresses_is_none_of_memory() {
    let device = HostDevice::builder().memory_limit(4 << 40).build();
    if !has_virtual_memory(&device) {
        return;
    }
    let mut arenas = Vec::new();
    let error = loop {
        match DeviceArena::builder(&device).growing().build() {
            Ok(arena) => arenas.push(arena),
            Err(error) => break error,
        }
        if arenas.len() > 1000 {
            return vrampool_test_support::skipped(format_args!(
                "there are more addresses than the test uses"
            ));
        }
    };
    let cause = error.out_of_memory().map(|error| error.cause());
    assert_eq!(cause, Some(Cause::Addresses), "{error}");
    assert!(error.to_string().contains("ulimit -v"), "{error}");
}

/// A `main` that fails prints the text.
#[test]
fn an_error_is_its_text() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).limit(1024).build().expect("a pool");
    let refused = pool.allocate(4096, &stream).expect_err("more than the limit");
    let setting = "exactly:3".parse::<vrampool::SizeClasses>().expect_err("no rule");
    let errors = [Error::Closed, setting, refused];
    errors.iter().for_each(|error| assert_eq!(format!("{error:?}"), error.to_string()));
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
