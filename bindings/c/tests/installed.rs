//! The installed library: its files, its symbols, and programs that find it by pkg-config and by CMake.
#![cfg(target_os = "linux")]

mod declared;

use declared::{functions, number};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use vrampool_test_support::program;

/// A folder of libraries as distributions have it.
const LIBDIR: &str = "lib/triplet";
const HITS: &str = concat!(env!("CARGO_PKG_VERSION"), ": 2 hits\n");

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// An empty folder for a test's files.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("it goes");
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// `install.sh` with the folders that the tests use.
fn install(arguments: &[&str]) -> Command {
    let mut command = Command::new(here("install.sh"));
    // Cargo's variables for its tests are no settings of another cargo.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.args(arguments).args(["--prefix", "/opt/vrampool", "--libdir", LIBDIR, "--profile", "dev"]);
    // As small and as fast to build as can be.
    command.args(["--no-default-features"]).env("CARGO_NET_OFFLINE", "true");
    command.args(["--", "--config", "profile.dev.package.\"*\".opt-level=0"]);
    command
}

/// Where the library was installed, under a `DESTDIR`.
fn installed() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        program("cc")?;
        program("python3")?;
        let root = folder("installed");
        let listed = run(install(&[]).env("DESTDIR", &root));
        for file in listed.lines() {
            assert!(Path::new(file).starts_with(&root) && Path::new(file).exists(), "{file} is installed");
        }
        Some(root)
    });
    root.as_deref()
}

fn library(root: &Path) -> PathBuf {
    root.join("opt/vrampool").join(LIBDIR)
}

/// Names and versions that a library exports.
fn exported(nm: &Path, library: &Path) -> BTreeSet<String> {
    let listed = run(Command::new(nm).args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library));
    let symbols = listed.lines().map(|line| line.rsplit(' ').next().unwrap_or_default());
    // The versions are symbols, too.
    symbols.filter(|name| !name.starts_with("VRAMPOOL_")).map(str::to_owned).collect()
}

#[test]
fn the_shared_library_exports_the_header_with_versions_and_nothing_else() {
    let (Some(root), Some(nm)) = (installed(), program("nm")) else { return };
    let shared = library(root).join("libvrampool_c.so");
    let symbols = exported(&nm, &shared);
    let names: BTreeSet<_> = symbols.iter().filter_map(|symbol| symbol.split_once("@@VRAMPOOL_")).collect();
    assert_eq!(names.len(), symbols.len(), "each has a version: {symbols:?}");
    let names: BTreeSet<_> = names.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, functions().into_iter().collect());
    // And that of cargo, which has no versions.
    let test = std::env::current_exe().expect("its own path");
    let own = test.parent().expect("a folder").join("libvrampool_c.so");
    assert_eq!(exported(&nm, &own), functions().into_iter().map(str::to_owned).collect());
}

#[test]
fn the_shared_library_has_its_name_and_stays_loaded() {
    let (Some(root), Some(readelf)) = (installed(), program("readelf")) else { return };
    let shared = library(root).join("libvrampool_c.so");
    let dynamic = run(Command::new(readelf).args(["--dynamic", "--wide"]).arg(&shared));
    let name = format!("libvrampool_c.so.{}", number("VRAMPOOL_ABI_VERSION"));
    assert!(dynamic.contains(&format!("soname: [{name}]")), "{dynamic}");
    assert!(dynamic.contains("NODELETE") && dynamic.contains("BIND_NOW"), "{dynamic}");
    assert_eq!(std::fs::read_link(shared).expect("a link"), Path::new(&name));
}

/// A path of the machine that built it is of no use to others, and differs from build to build.
#[test]
fn no_path_of_the_build_is_in_an_installed_file() {
    let Some(root) = installed() else { return };
    let registry = std::env::var("CARGO_HOME")
        .map_or_else(|_| std::env::home_dir().expect("a home").join(".cargo"), PathBuf::from);
    let repository = here("../..").canonicalize().expect("it is there");
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).expect("a file");
            for part in [&registry, &repository, root] {
                let part = part.to_str().expect("UTF-8").as_bytes();
                let found = bytes.windows(part.len()).position(|window| window == part);
                let text = found.map(|at| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 200)]));
                assert!(found.is_none(), "{}: {text:?}", path.display());
            }
        }
    }
}

/// The project of C's, copied, so that it finds nothing of the repository.
fn project(name: &str) -> PathBuf {
    let folder = folder(name);
    for file in ["Makefile", "CMakeLists.txt", "main.c", "vector.c", "vector.h"] {
        std::fs::copy(here("tests/c/project").join(file), folder.join(file)).expect("a copy");
    }
    folder
}

fn needs_shared(readelf: &Path, program: &Path) -> bool {
    run(Command::new(readelf).args(["--dynamic", "--wide"]).arg(program)).contains("[libvrampool_c.so.")
}

#[test]
fn a_project_links_by_pkg_config_alone() {
    let Some(root) = installed() else { return };
    let (Some(make), Some(_), Some(readelf)) = (program("make"), program("pkg-config"), program("readelf"))
    else {
        return;
    };
    for package in ["vrampool", "vrampool-static"] {
        let folder = project(&format!("pkg-config-{package}"));
        run(Command::new(&make)
            .current_dir(&folder)
            .arg(format!("PACKAGE={package}"))
            .env_remove("MAKEFLAGS")
            .env("PKG_CONFIG_LIBDIR", library(root).join("pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", root));
        let program = folder.join("program");
        assert_eq!(needs_shared(&readelf, &program), package == "vrampool");
        assert_eq!(run(Command::new(program).env("LD_LIBRARY_PATH", library(root))), HITS);
    }
}

#[test]
fn a_project_links_by_cmake() {
    let Some(root) = installed() else { return };
    let (Some(cmake), Some(readelf)) = (program("cmake"), program("readelf")) else { return };
    let folder = project("cmake");
    let mut configure = Command::new(&cmake);
    configure.current_dir(&folder).args(["-S", ".", "-B", "build"]);
    run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", library(root).join("cmake").display())));
    run(Command::new(&cmake).current_dir(&folder).args(["--build", "build"]));
    for name in ["vrampool", "vrampool_static"] {
        let program = folder.join("build").join(format!("with_{name}"));
        assert_eq!(needs_shared(&readelf, &program), name == "vrampool");
        assert_eq!(run(&mut Command::new(program)), HITS);
    }
}

/// By the rule of semantic versions.
#[test]
fn cmake_takes_the_versions_that_are_compatible() {
    let (Some(root), Some(cmake)) = (installed(), program("cmake")) else { return };
    for (wanted, fits) in [
        ("", true),
        ("0.1", true),
        ("0.1.0", true),
        ("0.1.1", false),
        ("0.2", false),
        ("1", false),
        ("0.10", false),
    ] {
        let folder = folder("versions");
        let lists = format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(versions C)\nfind_package(vrampool {wanted} REQUIRED)\n"
        );
        std::fs::write(folder.join("CMakeLists.txt"), lists).expect("a file");
        let mut configure = Command::new(&cmake);
        configure.current_dir(&folder).args(["-S", ".", "-B", "build"]);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", library(root).join("cmake").display()));
        let found = configure.output().expect("it starts").status.success();
        assert_eq!(found, fits, "find_package(vrampool {wanted})");
    }
}

#[test]
fn the_licenses_of_all_linked_crates_are_installed() {
    let Some(root) = installed() else { return };
    let documents = root.join("opt/vrampool/share/doc/vrampool");
    let read = |name: &str| std::fs::read_to_string(documents.join(name)).expect("a file");
    assert!(read("LICENSE-MIT").contains("MIT License") && read("LICENSE-APACHE").contains("Apache License"));
    let licenses = read("THIRD_PARTY_LICENSES.txt");
    let (table, texts) = licenses.split_once("\n-----").expect("a table, then texts");
    let rows: BTreeSet<_> =
        table.lines().filter_map(|line| line.split_once(": ")).map(|(crate_, _)| crate_).collect();
    for linked in ["flate2 ", "vrampool ", "vrampool-c ", "libc "] {
        assert!(rows.iter().any(|row| row.starts_with(linked)), "{linked} is linked: {table}");
    }
    // A macro's, a feature's that is off, a test's.
    for absent in ["syn ", "tokio ", "cudarc ", "proptest "] {
        assert!(!rows.iter().any(|row| row.starts_with(absent)), "{absent} is not linked: {table}");
    }
    assert!(texts.contains("Copyright (c) 2014 Alex Crichton"));
    let bom: serde_json::Value = serde_json::from_str(&read("vrampool.cdx.json")).expect("JSON");
    assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = bom["components"].as_array().expect("components");
    let text =
        |component: &serde_json::Value, field: &str| component[field].as_str().expect("text").to_owned();
    let named = components
        .iter()
        .map(|component| format!("{} {}", text(component, "name"), text(component, "version")));
    assert_eq!(named.collect::<BTreeSet<_>>(), rows.into_iter().map(str::to_owned).collect());
    for component in components {
        let own = text(component, "name").starts_with("vrampool");
        assert!(
            own || component["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64),
            "{component}"
        );
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
}

#[test]
fn wrong_options_are_refused_before_anything_is_built() {
    for (arguments, reason) in [
        (&["--prefix", "relative"][..], "is not an absolute path"),
        (&["--libdir=/elsewhere"], "is not below the prefix"),
        (&["--libdir", "../lib"], "is not below the prefix"),
        (&["--includedir", "a b"], "has characters other than"),
        (&["--unknown", "1"], "unknown option --unknown"),
        (&["--prefix"], "--prefix needs a value"),
    ] {
        let output = Command::new(here("install.sh")).args(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(reason), "{arguments:?}: {text}");
    }
}
