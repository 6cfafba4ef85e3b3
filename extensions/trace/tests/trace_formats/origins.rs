//! Pools and call sites of allocations: read, written, kept or named as lost.

use super::{Export, Format, Import, SNAPSHOT, Trace, program, written};
use std::process::Command;
use vrampool_trace::output::Output;

/// The pool and the site of each event.
fn origins(trace: &Trace) -> Vec<(&str, &str)> {
    let of = |event| {
        let origin = trace.origin(event);
        (&*origin.pool, &*origin.site)
    };
    trace.events().iter().map(of).collect()
}

#[test]
fn the_site_of_a_snapshots_block_is_its_innermost_frame() {
    let (known, unknown) = (("", "forward at model.py:12"), ("", ""));
    let trace = Import::new().parse(SNAPSHOT).expect("a snapshot");
    // A free names no site, so what was there before and is freed has none.
    assert_eq!(origins(&trace), [unknown, known, known, known, unknown, unknown, known]);
    assert_eq!(trace.origins().len(), 1);
}

/// As pickles have frames: shared, not shared, in every protocol, with names that are keys of snapshots, of other
/// sizes.
#[test]
fn frames_of_every_pickle_are_read() {
    let Some(python) = program("python3") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = r#"
import copy, pickle, sys
own = [{"name": "c10::malloc(unsigned long)", "filename": "CUDACachingAllocator.cpp", "line": 7},
       {"name": "c10::copy(" + "unsigned long, " * 99 + "int)", "filename": "copy.cpp", "line": 9},
       {"name": "_PyEval_EvalFrameDefault", "filename": "??", "line": 0}]
frames = lambda *python: own + [{"name": name, "filename": file, "line": line} for name, file, line in python]
sites = [frames(("size", "size.py", 3), ("main", "main.py", 1)), frames(("f" * 300, "/a" * 300 + "/b.py", 2)), own, []]
events = [{"action": "alloc", "addr": 4096 * at, "size": 512, "stream": 0, "time_us": at, "frames": site}
          for at, site in enumerate(sites + [sites[0]])]
snapshot = {"segments": [], "device_traces": [events]}
for protocol in range(2, 6):
    pickle.dump(snapshot, open(f"{sys.argv[1]}/{protocol}", "wb"), protocol=protocol)
fast = pickle.Pickler(open(f"{sys.argv[1]}/6", "wb"), protocol=4)
fast.fast = True
fast.dump(copy.deepcopy(snapshot))
"#;
    let made = Command::new(python).args(["-c", program]).arg(folder.path()).status();
    assert!(made.expect("it starts").success());
    for file in 2..=6 {
        let trace = Import::new().read(folder.path().join(file.to_string())).expect("a snapshot");
        let sites: Vec<_> = origins(&trace).into_iter().map(|(_, site)| site).collect();
        assert_eq!(
            (sites[0], sites[2], sites[3], sites[4]),
            ("size at size.py:3", "", "", sites[0]),
            "{file}"
        );
        assert!(
            sites[1].starts_with("fff") && sites[1].ends_with("/a/b.py:2") && sites[1].len() < 180,
            "{sites:?}"
        );
    }
}

#[test]
fn csv_keeps_origins_and_other_formats_name_their_loss() {
    let text = "op,id,size,stream,t_us\no,tenant é,load, then wait at a.py:7\no,,b.py:9\n\
                a,0,10,0,0,1\na,1,20,0,1,2\na,2,30,0,2\nf,0,10,0,3\na,3,10,0,4,0\n";
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let expected = [("tenant é", "load, then wait at a.py:7"), ("", "b.py:9"), ("", ""), ("", ""), ("", "")];
    assert_eq!(origins(&trace), expected);
    let back = Import::new().parse(&written(&trace, Format::Csv)[..]).expect("a trace");
    assert_eq!((origins(&back), back.events()), (expected.to_vec(), trace.events()));
    assert!(back.warnings().is_empty());
    let folder = tempfile::tempdir().expect("a folder");
    for (format, lost) in [(Format::Csv, 0), (Format::Rmm, 2), (Format::PyTorch, 2)] {
        let output = Output::create(folder.path().join("converted")).expect("a file");
        let losses = Export::new(format).convert(&trace, output).expect("it is read back");
        assert_eq!(losses.origins, lost, "{format}");
        assert_eq!(losses.to_string().contains("2 allocations with their pools and call sites"), lost > 0);
    }
}

#[test]
fn wrong_origins_are_refused_where_they_are() {
    let parse = |lines: &str| Trace::parse(format!("op,id,size,stream,t_us\n{lines}").as_bytes()).map(drop);
    for (lines, line, field) in [
        ("o,p,s\na,0,1,0,0,2\n", 3, "origin"),
        ("a,0,1,0,0,1\no,p,s\n", 2, "t_us"),
        ("o,p,s\na,0,1,0,0,1,1\n", 3, "origin"),
        ("o,p,s\na,0,1,0,0\nf,0,1,0,0,1\n", 4, "t_us"),
        ("o,p\n", 2, "site"),
        ("o,p,s\na,0,1,0,0,-1\n", 3, "origin"),
    ] {
        let error = parse(lines).expect_err(lines);
        assert_eq!((error.place.line, error.place.field), (Some(line), Some(field)), "{lines}: {error}");
    }
    let error = parse("o,p,s\na,0,1,0,0,2\n").expect_err("no such origin");
    assert!(error.to_string().contains("above is number 2; define the origin first"), "{error}");
    let error = parse(&"o,p,s\n".repeat(1 << 16)).expect_err("too many");
    assert!(error.to_string().contains("more than 65535 lines `o`"), "{error}");
    assert!(parse(&"o,p,s\n".repeat((1 << 16) - 1)).is_ok());
}
