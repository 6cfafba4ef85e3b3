//! `vrampool trace plot`: single charts, and viewers.

use std::path::Path;
use std::process::Command;
use vrampool_test_support::{command, outcome};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn single_charts_are_svg() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("{ROOT}/benches/traces/multistream.csv.gz");
    let draw = |name: &str, flags: &[&str]| {
        let path = folder.path().join(name);
        let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
        command.args(["trace", "plot", "--source", "virtual", "--limit", "300MiB", &file, "-o"]);
        let (code, _, err) = outcome(command.arg(&path).args(flags));
        assert_eq!(code, Some(0), "{err}");
        std::fs::read_to_string(path).expect("a picture")
    };
    let bytes = draw("bytes.svg", &[]);
    for text in
        ["reserved", "requested", "limit 300.0 MiB", "stroke-dasharray", ">256.0 MiB<", ">600<", "events"]
    {
        assert!(bytes.contains(text), "{text}: {bytes:.3000}");
    }
    let addresses = draw("chart", &["--picture", "addresses"]);
    for text in ["multistream: ", "stream 1", "rgb(66,133,214)"] {
        assert!(addresses.contains(text), "{text}: {addresses:.3000}");
    }
    let rectangles = addresses.matches("h-").count();
    assert!((300..=362).contains(&rectangles), "{rectangles} rectangles of 362 blocks");
    assert!(
        draw("bytes", &["--picture", "bytes"]) == bytes
            && draw("page.svg", &["--picture", "page"]).contains("<html")
    );
    let unknown =
        command(env!("CARGO_BIN_EXE_vrampool")).args(["trace", "plot", &file, "--picture", "moon"]).output();
    assert_eq!(unknown.expect("it starts").status.code(), Some(2));
}

#[test]
fn a_key_has_a_name_for_each_colour_and_the_number_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, chart) = (folder.path().join("streams.csv"), folder.path().join("chart"));
    let events: String = (0..12).map(|stream| format!("a,{stream},1000,{stream},0\n")).collect();
    std::fs::write(&file, format!("op,id,size,stream,t_us\n{events}")).expect("a file");
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.args(["trace", "plot", "--picture", "addresses"]).arg(&file).arg("-o").arg(&chart);
    assert_eq!(outcome(&mut command).0, Some(0));
    let svg = std::fs::read_to_string(chart).expect("a picture");
    assert!(svg.contains(">stream 9<") && !svg.contains(">stream 10<"), "{svg:.3000}");
    assert!(svg.contains(">and 2 more in colours that repeat<"), "{svg:.3000}");
}

/// With a viewer that reports the file that it opens; and without one.
#[cfg(target_os = "linux")]
#[test]
fn a_written_page_is_opened() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (viewer, seen) = (folder.path().join("xdg-open"), folder.path().join("seen"));
    std::fs::write(&viewer, "#!/bin/sh\necho \"$1\" >seen\n").expect("a file");
    std::fs::set_permissions(&viewer, std::fs::Permissions::from_mode(0o755)).expect("a program");
    assert!(Command::new("mkfifo").arg(&seen).status().expect("it starts").success());
    let open = |path: &Path| {
        let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
        let file = format!("{ROOT}/extensions/trace/tests/golden/rmm.csv");
        command
            .args(["trace", "plot", &file, "--open", "--output=-a.html"])
            .current_dir(&folder)
            .env("PATH", path);
        outcome(&mut command)
    };
    let (code, out, err) = open(folder.path());
    assert_eq!((code, out.as_str()), (Some(0), "-a.html\n"), "{err}");
    // Until the viewer has written.
    let opened = std::fs::read_to_string(&seen).expect("a path");
    assert_eq!(Path::new(opened.trim_end()), folder.path().join("-a.html"));
    let (code, out, err) = open(Path::new("/nonexistent"));
    assert_eq!((code, out.as_str()), (Some(1), "-a.html\n"));
    assert!(err.contains("error: no viewer opens -a.html; open it in a browser"), "{err}");
}
