//! Every command that writes a file, where the disk is full, the folder is read-only, or the program is
//! killed: the previous file or the next one is there, whole, and nothing else. `VRAMPOOL_KILLS` says how
//! often each is killed, if more than a few times.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use vrampool::SizeTable;
use vrampool_test_support::skip;
use vrampool_trace::{Export, Format, Import, Trace, fitted};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vrampool-demos");
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/resnet50.csv.gz");
const OLD: &str = "the previous file";

/// A command, and the name of its output, which is its last argument.
struct Writer {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Whether it prints a report, which comes even if the file cannot be written.
    has_report: bool,
}

const WRITERS: [Writer; 9] = [
    Writer { name: "a.csv", arguments: &["trace", "convert", TRACE], has_report: false },
    Writer { name: "a.csv.gz", arguments: &["trace", "convert", TRACE], has_report: false },
    Writer { name: "a.pickle", arguments: &["trace", "convert", TRACE], has_report: false },
    Writer { name: "a.log", arguments: &["trace", "convert", "--to", "rmm", TRACE], has_report: false },
    Writer { name: "a.html", arguments: &["trace", "plot", TRACE, "-o"], has_report: false },
    Writer { name: "a.classes", arguments: &["fit", TRACE, "--classes", "4", "--output"], has_report: true },
    Writer {
        name: "a.csv",
        arguments: &["train", "--epochs", "1", "--batch-size", "500", "--record"],
        has_report: true,
    },
    Writer { name: "a.pickle", arguments: &["replay", TRACE, "--passes", "1", "--record"], has_report: true },
    Writer { name: "a.svg", arguments: &["solve", "--runs", "4096", "--plot"], has_report: true },
];

impl Writer {
    fn command(&self, output: &Path) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(self.arguments).arg(output).env("XDG_RUNTIME_DIR", std::env::temp_dir());
        command
    }

    /// Whether the report was printed does not depend on the file.
    fn assert_report(&self, output: &Output) {
        let report = text(&output.stdout);
        assert_eq!(!report.is_empty(), self.has_report, "{:?}: {report}", self.arguments);
    }

    /// Whether it is a complete file.
    fn is_whole(&self, path: &Path) -> bool {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("classes") => fitted::load(path).is_ok(),
            Some("html") => fs::read_to_string(path).is_ok_and(|page| page.trim_end().ends_with("</html>")),
            Some("svg") => fs::read_to_string(path).is_ok_and(|svg| svg.trim_end().ends_with("</svg>")),
            // A log does not say how long it is.
            Some("log") => Import::new().read(path).is_ok_and(|trace| trace.events().len() == 13_237),
            _ => Import::new().strict(true).read(path).is_ok(),
        }
    }
}

/// A folder with the previous file in it.
fn folder(writer: &Writer) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(writer.name);
    fs::write(&path, OLD).expect("a file");
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_old(path: &Path, output: &Output) {
    let error = text(&output.stderr);
    assert_eq!(fs::read_to_string(path).expect("a file"), OLD, "{error}");
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(names(path.parent().expect("a folder")), std::slice::from_ref(&name), "{error}");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&name) && error.contains("; "), "it names the file, and what to do: {error}");
}

#[test]
fn written_files_are_whole_and_keep_links_and_permissions() {
    for writer in WRITERS {
        let (folder, path) = folder(&writer);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        let link = folder.path().join(format!("link-{}", writer.name));
        symlink(&path, &link).expect("a link");
        let output = writer.command(&link).output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(writer.is_whole(&path), "{:?}", writer.arguments);
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()).len(), 2);
    }
}

/// The limit on the size of files, over which the program does not write.
#[test]
fn a_limit_on_the_size_of_files_leaves_the_previous_file_and_the_report() {
    for writer in WRITERS {
        let (_folder, path) = folder(&writer);
        let own = writer.command(&path);
        let mut command = Command::new("sh");
        // No byte of any file. The signal that comes with such a write ends a process that does not look
        // before.
        command.args(["-c", "ulimit -f 0; exec \"$@\"", "sh", PROGRAM]).args(own.get_args());
        let output = command.output().expect("it starts");
        assert_old(&path, &output);
        assert!(text(&output.stderr).contains("cannot be written"), "{}", text(&output.stderr));
        writer.assert_report(&output);
    }
}

/// Runs a command in the folder `$1`, on a file system of four pages that has the previous file and `$4` free
/// pages, and copies what is there afterwards to the folder `$2`. `$3` is the previous file.
const ON_A_FULL_DISK: &str = r#"
disk=$1 after=$2 previous=$3 free=$4
shift 4
mount -t tmpfs -o size=16k none "$disk" && cp "$previous" "$disk" && head -c "${free}k" /dev/zero >"$disk/room" || exit 99
cat /dev/zero >"$disk/filling" 2>/dev/null && exit 99
rm "$disk/room"
"$@"
code=$?
rm "$disk/filling"
cp -R "$disk/." "$after" || exit 99
exit $code
"#;

/// A command that may mount a file system of its own; `None`, with a line that says so, where the system
/// forbids it.
fn with_own_mounts() -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    let probe = unshare().args(["mount", "-t", "tmpfs", "none", "/tmp"]).output();
    let is_allowed = probe.is_ok_and(|probe| probe.status.success());
    if !is_allowed {
        skip("unshare", "this user cannot mount a file system");
    }
    is_allowed.then(unshare)
}

fn run_on_a_full_disk(writer: &Writer, free_kilobytes: u64, after: &Path) -> Option<Output> {
    let (_folder, previous) = folder(writer);
    let disk = tempfile::tempdir().expect("a folder");
    let own = writer.command(&disk.path().join(writer.name));
    let mut command = with_own_mounts()?;
    command.args(["sh", "-c", ON_A_FULL_DISK, "sh"]).args([disk.path(), after, &previous]);
    command.arg(free_kilobytes.to_string()).arg(PROGRAM).args(own.get_args());
    let output = command.output().expect("it starts");
    assert_ne!(output.status.code(), Some(99), "the script works: {}", text(&output.stderr));
    Some(output)
}

#[test]
fn a_full_disk_leaves_the_previous_file_and_the_report() {
    for writer in WRITERS {
        let after = tempfile::tempdir().expect("a folder");
        let Some(output) = run_on_a_full_disk(&writer, 0, after.path()) else { return };
        assert_old(&after.path().join(writer.name), &output);
        let error = text(&output.stderr);
        assert!(error.contains("No space left on device") && error.contains("its disk has room"), "{error}");
        writer.assert_report(&output);
    }
}

#[test]
fn a_disk_that_becomes_full_leaves_the_previous_file_or_the_next_one() {
    let (mut failed, mut written) = (0, 0);
    for writer in WRITERS {
        let after = tempfile::tempdir().expect("a folder");
        let Some(output) = run_on_a_full_disk(&writer, 4, after.path()) else { return };
        let path = after.path().join(writer.name);
        if output.status.success() {
            assert!(writer.is_whole(&path), "{:?}", writer.arguments);
            assert_eq!(names(after.path()), [writer.name]);
            written += 1;
        } else {
            assert_old(&path, &output);
            assert!(text(&output.stderr).contains("No space left on device"), "{}", text(&output.stderr));
            failed += 1;
        }
        writer.assert_report(&output);
    }
    assert!(failed > 0 && written > 0, "{failed} files are larger than a page, {written} are not");
}

#[test]
fn a_read_only_folder_is_reported_before_the_work() {
    for writer in WRITERS {
        let (folder, path) = folder(&writer);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).expect("ours");
        let is_writable = fs::write(folder.path().join("probe"), "").is_ok();
        let own = writer.command(&path);
        let mut command = match is_writable {
            // The user that runs the test has all permissions; the program runs without them.
            true => {
                fs::remove_file(folder.path().join("probe")).expect("ours");
                let mut command = Command::new("setpriv");
                command.args([
                    "--bounding-set",
                    "-dac_override",
                    "--inh-caps",
                    "-dac_override",
                    "--",
                    PROGRAM,
                ]);
                command
            }
            false => Command::new(PROGRAM),
        };
        let Ok(output) = command.args(own.get_args()).output() else {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "setpriv"), "VRAMPOOL_REQUIRE names setpriv");
            return vrampool_test_support::skipped("no setpriv, and this user may write everywhere");
        };
        assert_old(&path, &output);
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    }
    for writer in WRITERS {
        let output = writer.command(Path::new("/nonexistent/folder").join(writer.name).as_path()).output();
        let output = output.expect("it starts");
        assert!(output.stdout.is_empty() && output.status.code() == Some(1));
        assert!(text(&output.stderr).contains("/nonexistent/folder/a"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_killed_program_leaves_the_previous_file_or_the_next_one() {
    let kills = std::env::var("VRAMPOOL_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(6);
    let mut random = fastrand::Rng::with_seed(30);
    for writer in WRITERS {
        let (folder, path) = folder(&writer);
        let start = Instant::now();
        assert!(writer.command(&path).output().expect("it starts").status.success());
        let lasts = start.elapsed();
        for _ in 0..kills {
            fs::write(&path, OLD).expect("a file");
            let mut command = writer.command(&path);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
            // A random moment, not one at which anything is known to have happened.
            std::thread::sleep(Duration::from_micros(random.u64(..=lasts.as_micros() as u64)));
            let _ = child.kill();
            child.wait().expect("it ends");
            let is_old = fs::read(&path).expect("a file") == OLD.as_bytes();
            assert!(is_old || writer.is_whole(&path), "{:?}", writer.arguments);
            assert_eq!(names(folder.path()), [writer.name]);
        }
    }
}

#[test]
fn an_output_that_is_an_input_is_refused_by_whatever_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (trace, classes) = (at("t.csv.gz"), at("t.classes"));
    fs::copy(TRACE, &trace).expect("a copy");
    fitted::save(&SizeTable::new([512]), &classes).expect("a file");
    symlink(&trace, at("link.csv")).expect("a link");
    fs::hard_link(&trace, at("hard.csv")).expect("a link");
    let before = fs::read(&trace).expect("a file");
    let fitted = format!("fitted:{}", classes.display());
    let dotted = folder.path().join(".").join("t.csv.gz");
    for output in [&trace, &at("link.csv"), &at("hard.csv"), &dotted] {
        for arguments in [&["trace", "convert"][..], &["replay", "--record"], &["fit", "--output"]] {
            let mut command = Command::new(PROGRAM);
            match arguments[0] {
                "trace" => command.args(arguments).arg(&trace).arg(output),
                _ => command.arg(arguments[0]).arg(&trace).arg(arguments[1]).arg(output),
            };
            let output = command.output().expect("it starts");
            let error = text(&output.stderr);
            assert!(
                output.status.code() == Some(1) && error.contains("the output is also the input"),
                "{error}"
            );
            assert!(output.stdout.is_empty());
        }
    }
    let classes_too = ["train", "--epochs", "1", "--size-classes", &fitted, "--record"];
    let output = Command::new(PROGRAM).args(classes_too).arg(&classes).output().expect("it starts");
    assert!(text(&output.stderr).contains("the output is also the input"), "{}", text(&output.stderr));
    assert_eq!(fs::read(&trace).expect("a file"), before);
    assert_eq!(names(folder.path()).len(), 4);
}

#[test]
fn a_failing_conversion_or_export_leaves_the_previous_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bad, out) = (folder.path().join("bad.csv"), folder.path().join("out.csv"));
    fs::write(&bad, "op,id,size,stream,t_us\na,0,1,0,0\nx\n").expect("a file");
    fs::write(&out, OLD).expect("a file");
    let convert = Command::new(PROGRAM).args(["trace", "convert"]).args([&bad, &out]).output();
    assert_eq!(convert.expect("it starts").status.code(), Some(1));
    assert_eq!(fs::read_to_string(&out).expect("a file"), OLD);
    // More is live than there are addresses: known only while it is written.
    let large = "op,id,size,stream,t_us\na,0,1000000000000000000,0,0\na,1,1000000000000000000,0,0\n";
    let large = Trace::parse(large.as_bytes()).expect("a trace");
    Export::new(Format::PyTorch).save(&large, &out).expect_err("too large");
    assert_eq!(fs::read_to_string(&out).expect("a file"), OLD);
    assert_eq!(names(folder.path()), ["bad.csv", "out.csv"]);
}

#[test]
fn two_programs_with_one_output_leave_one_of_the_two_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.csv");
    for _ in 0..4 {
        let start = |trace: &str| {
            let trace = format!("{}/../benches/traces/{trace}.csv.gz", env!("CARGO_MANIFEST_DIR"));
            Command::new(PROGRAM).args(["trace", "convert", &trace]).arg(&path).stdout(Stdio::null()).spawn()
        };
        let both = ["multistream", "resnet50"].map(|trace| start(trace).expect("it starts"));
        for mut child in both {
            assert!(child.wait().expect("it ends").success());
        }
        let events = Import::new().strict(true).read(&path).expect("whole").events().len();
        assert!([723, 13_237].contains(&events), "{events}");
        assert_eq!(names(folder.path()), ["a.csv"]);
    }
}

#[test]
fn an_interrupted_training_keeps_what_was_recorded_and_says_so() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        let mut command = Command::new(PROGRAM);
        command.args(["train", "--epochs", "1000000", "--record"]).arg(&path);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        // It listens before it opens its output.
        let descriptors = format!("/proc/{}/fd", child.id());
        let is_open = || {
            let links = fs::read_dir(&descriptors).into_iter().flatten().flatten();
            links
                .filter_map(|link| fs::read_link(link.path()).ok())
                .any(|target| target.starts_with(folder.path()))
        };
        while !is_open() {
            std::thread::yield_now();
        }
        let killed = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        let output = child.wait_with_output().expect("it ends");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        let trace = Import::new().strict(true).read(&path).expect("whole");
        let events = trace.events().len();
        assert!(
            events > 0 && error.contains(&format!("the {events} events recorded so far are in")),
            "{error}"
        );
        assert_eq!(names(folder.path()), ["a.csv"]);
    }
}
