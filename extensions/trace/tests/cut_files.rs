//! A file that is cut is never taken as whole, wherever it ends; nor is one with more behind its end.

use vrampool::SizeTable;
use vrampool_trace::{Contradiction, Export, Format, Import, Trace, TraceFault, fitted};

const SNAPSHOT: &[u8] = include_bytes!("golden/snapshot.pickle");
const RMM: &[u8] = include_bytes!("golden/rmm.csv");

fn trace() -> Trace {
    Import::new().parse(SNAPSHOT).expect("a snapshot")
}

fn written(trace: &Trace, format: Format, is_compressed: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = match is_compressed {
        true => Export::new(format).write_gzip(trace, &mut bytes),
        false => Export::new(format).write(trace, &mut bytes),
    };
    written.expect("memory takes everything");
    bytes
}

/// Each valid file whose end is known from its content.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let windows =
        String::from_utf8(written(&trace(), Format::Csv, false)).expect("text").replace('\n', "\r\n");
    vec![
        ("csv", written(&trace(), Format::Csv, false)),
        ("csv with Windows' line ends", windows.into()),
        ("csv.gz", written(&trace(), Format::Csv, true)),
        ("rmm.gz", written(&trace(), Format::Rmm, true)),
        ("pickle", written(&trace(), Format::PyTorch, false)),
        ("pickle.gz", written(&trace(), Format::PyTorch, true)),
        ("PyTorch's pickle", SNAPSHOT.into()),
    ]
}

#[test]
fn a_cut_file_ends_early_wherever_it_is_cut() {
    for (name, file) in files() {
        assert!(Import::new().parse(&file[..]).is_ok(), "{name}");
        for end in 0..file.len() {
            let error = Import::new().parse(&file[..end]).expect_err(name);
            let words =
                if name.ends_with(".gz") && end > 1 { "in its gzip data; copy" } else { "ends early" };
            assert!(error.to_string().contains(words), "{name}, {end} bytes: {error}");
        }
    }
}

/// RMM's logs, and files of earlier versions, say nowhere how long they are.
#[test]
fn a_file_without_an_end_is_cut_at_the_end_of_a_line_or_noticed() {
    let old = String::from_utf8(written(&trace(), Format::Csv, false)).expect("text").replace(",v2\n", "\n");
    let old = &old[..old.find("end,").expect("a last line")];
    for file in [RMM, old.as_bytes()] {
        let whole = Import::new().parse(file).expect("a trace");
        for end in 0..file.len() {
            match Import::new().parse(&file[..end]) {
                Ok(part) => {
                    assert_eq!(file[end - 1], b'\n');
                    assert!(part.events().len() <= whole.events().len());
                }
                Err(error) => {
                    assert!(matches!(error.fault, TraceFault::CutOff(_)), "{end} bytes: {error}");
                }
            }
        }
    }
    let trace = Import::new().parse(old.as_bytes()).expect("a trace");
    assert!(matches!(trace.warnings(), [warning] if warning.contradiction == Contradiction::Uncounted));
    assert_eq!(Trace::parse(old.as_bytes()).expect("a trace").warnings(), trace.warnings());
    let error = Import::new().strict(true).parse(old.as_bytes()).expect_err("strict");
    assert!(matches!(error.fault, TraceFault::Contradiction(Contradiction::Uncounted, _)), "{error}");
    assert!(self::trace().warnings().is_empty());
}

#[test]
fn more_behind_the_end_is_an_error() {
    for (name, file) in files() {
        for more in [&b"\n"[..], b"junk", &file] {
            let twice = [&file[..], more].concat();
            let error = Import::new().parse(&twice[..]).expect_err(name);
            let is_reported =
                matches!(error.fault, TraceFault::Trailing | TraceFault::Gzip(_) | TraceFault::CutOff(_));
            // Of a compressed log twice all lines are one log, in which its header is no line.
            assert!(is_reported || name == "rmm.gz", "{name}: {error}");
        }
    }
    let member = written(&trace(), Format::PyTorch, true);
    let error = Import::new().parse(&[member.clone(), member].concat()[..]).expect_err("two snapshots");
    assert!(matches!(error.fault, TraceFault::Trailing), "{error}");
}

#[test]
fn one_flipped_bit_of_a_compressed_file_is_an_error() {
    for format in [Format::Csv, Format::PyTorch, Format::Rmm] {
        let (file, mut unused) = (written(&trace(), format, true), 0);
        let whole = Import::new().parse(&file[..]).expect("a trace");
        // Behind the ten bytes of gzip's header, whose time and system mean nothing.
        for bit in 80..8 * file.len() {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Few bits of compressed data mean nothing: those behind its end, and lengths of codes that are
            // not used.
            if let Ok(trace) = Import::new().parse(&flipped[..]) {
                assert_eq!(trace.events(), whole.events(), "{format}, bit {bit}");
                unused += 1;
            }
        }
        assert!(unused < file.len() / 8, "{format}: {unused}");
    }
}

#[test]
fn one_flipped_bit_of_a_csv_file_is_an_error() {
    let file = written(&trace(), Format::Csv, false);
    for bit in 0..8 * file.len() {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Import::new().parse(&flipped[..]).is_err(), "bit {bit}");
    }
}

#[test]
fn cut_classes_end_early() {
    for classes in [vec![512, 1 << 20, 77], (1..200).map(|number| number << 20 | number).collect()] {
        let text = fitted::text(&SizeTable::new(classes));
        for end in 0..text.len() {
            let error = fitted::parse(&text.as_bytes()[..end]).expect_err("it is cut");
            assert!(error.to_string().contains("ends early"), "{end} bytes: {error}");
        }
    }
    let error = fitted::parse("vrampool fitted classes 1\n512\n1048".as_bytes()).expect_err("it is cut");
    assert!(error.to_string().contains("line 3: the file ends early"), "{error}");
}
