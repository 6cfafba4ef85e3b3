//! The text format of fitted classes.

use super::classes::FittedClasses;
use crate::error::bounds::{
    CLASS_HEADER as HEADER, CLASS_HEADERS, MAX_CLASS_FILE_BYTES as MAX_FILE_BYTES,
    UNCOUNTED_CLASS_HEADER as UNCOUNTED,
};
use crate::error::position::Position;
use crate::error::shown::shown as shown_path;
use crate::error::{TraceError, TraceFault};
use crate::output::Output;
use flate2::Crc;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;
use vrampool::backend::logging;

/// The first word of the last line.
const END: &[u8] = b"end ";

/// The name of text that is not a file, in errors.
const UNNAMED: &str = "fitted classes";

/// The most bytes of a line that an error shows.
const SHOWN: usize = 64;

impl FittedClasses {
    /// Reads a file written by [`save`](Self::save) or by hand, in this
    /// [format](crate::fitted#the-file).
    ///
    /// A cut of a file without a last line `end` cannot always be detected; reading such a file logs a
    /// warning.
    ///
    /// # Errors
    /// [`TraceError`] with the position and the action to take.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| TraceError::of(path, TraceFault::Open(error)))?;
        Self::read(file, path)
    }

    /// As [`load`](Self::load), from what `reader` gives.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        Self::read(reader, Path::new("size classes"))
    }

    fn read(reader: impl Read, path: &Path) -> Result<Self, TraceError> {
        let read = || -> Result<Self, (Option<u64>, TraceFault)> {
            let mut text = Vec::new();
            // One more byte than allowed reveals a longer file.
            let bounded = reader.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut text);
            bounded.map_err(|error| (None, TraceFault::Read(error)))?;
            let (classes, is_counted) = parse(&text)?;
            if !is_counted {
                let path = shown_path(path);
                // The public path of this module.
                logging::warn!(
                    target: "vrampool_trace::fitted",
                    "{path}: the file has no last line that counts its sizes, so a cut cannot be noticed; save it again"
                );
            }
            Ok(classes)
        };
        read().map_err(|(line, fault)| place(line).error(path.display().to_string(), fault))
    }

    /// Writes them to a file, replacing the previous one.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be written; the previous file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), TraceError> {
        Output::create(path)?.save(self.to_string())
    }
}

/// Writes the text of a file.
impl fmt::Display for FittedClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        self.sizes().iter().try_for_each(|size| writeln!(f, "{size}"))?;
        writeln!(f, "end {} {:08x}", self.sizes().len(), checksum(self.sizes()))
    }
}

/// Returns the checksum of the sizes as written, one per line.
fn checksum(sizes: &[u64]) -> u32 {
    let mut sum = Crc::new();
    sizes.iter().for_each(|size| sum.update(format!("{size}\n").as_bytes()));
    sum.sum()
}

/// Parses the text of a file.
impl FromStr for FittedClasses {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let parsed = parse(text.as_bytes()).map(|(classes, _)| classes);
        parsed.map_err(|(line, fault)| place(line).error(UNNAMED, fault))
    }
}

/// A line of the file.
fn place(line: Option<u64>) -> Position {
    Position { line, ..Position::default() }
}

/// Parses the classes, and returns whether a last line counts them.
fn parse(text: &[u8]) -> Result<(FittedClasses, bool), (Option<u64>, TraceFault)> {
    if text.len() > MAX_FILE_BYTES {
        return Err((None, TraceFault::FileTooLong));
    }
    let mut lines = (1..).zip(text.split_inclusive(|&byte| byte == b'\n'));
    let (_, first) = lines.next().ok_or((None, TraceFault::CutOff { after: "in its first line" }))?;
    let is_counted = match ended(first) {
        Some(line) if line == HEADER.as_bytes() => true,
        Some(line) if line == UNCOUNTED.as_bytes() => false,
        None if [HEADER, UNCOUNTED]
            .iter()
            .any(|header| header.as_bytes().starts_with(first.trim_ascii_end())) =>
        {
            return Err((Some(1), TraceFault::CutOff { after: "in its first line" }));
        }
        _ => {
            return Err((Some(1), TraceFault::Header { found: shown(first).into(), headers: CLASS_HEADERS }));
        }
    };
    let (mut sizes, mut is_ended) = (Vec::new(), false);
    for (number, line) in lines {
        let at = |fault| (Some(number), fault);
        let line = ended(line).ok_or(at(TraceFault::CutOff { after: "in this line" }))?;
        let words = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if words.is_empty() {
            continue;
        }
        if is_ended {
            return Err(at(TraceFault::Trailing));
        }
        if is_counted && words.starts_with(END) {
            let expected = format!("end {} {:08x}", sizes.len(), checksum(&sizes));
            if words != expected.as_bytes() {
                return Err(at(TraceFault::Altered {
                    found: shown(words).into(),
                    expected: expected.into(),
                }));
            }
            is_ended = true;
            continue;
        }
        let size = size(words).map_err(at)?;
        match sizes.last() {
            Some(&before) if size <= before => return Err(at(TraceFault::Order { size, before })),
            _ if sizes.len() == FittedClasses::MAX_CLASSES => return Err(at(TraceFault::TooManyClasses)),
            _ => sizes.push(size),
        }
    }
    match is_counted && !is_ended {
        true => Err((None, TraceFault::CutOff { after: "without the last line `end`" })),
        false => Ok((FittedClasses::of_checked(sizes), is_counted)),
    }
}

/// Returns a line without its end; `None` if the file ends within it.
fn ended(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

/// Parses digits only, without sign or unit.
fn size(text: &[u8]) -> Result<u64, TraceFault> {
    // `parse` takes a sign.
    let digits = str::from_utf8(text).ok().filter(|digits| !digits.starts_with('+'));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(0) => Err(TraceFault::Zero),
        Some(size) => Ok(size),
        None => Err(TraceFault::NotASize { found: shown(text) }),
    }
}

/// Shortens and escapes text for a message, so that it is safe on a terminal.
fn shown(text: &[u8]) -> String {
    text[..text.len().min(SHOWN)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_may_write_it() {
        let text = "vrampool fitted classes 1\r\n# for the large model\n\n  512\t# biases\r\n4096\n\n";
        assert_eq!(text.parse::<FittedClasses>().expect(text).sizes(), [512, 4096]);
        let empty: FittedClasses = format!("{UNCOUNTED}\n").parse().expect("no sizes");
        assert!(empty.sizes().is_empty());
        assert_eq!(empty.to_string(), format!("{HEADER}\nend 0 00000000\n"));
        // A comment in a saved file is allowed.
        let saved = FittedClasses::new([512, 4096]).expect("sizes").to_string();
        let noted = saved.replace("4096", "# for the large model\r\n\t4096 # weights\r");
        assert_eq!(noted.parse::<FittedClasses>().expect("a comment").sizes(), [512, 4096]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let many = (1..=FittedClasses::MAX_CLASSES + 1).map(|size| format!("{size}\n")).collect::<String>();
        for (body, line, words) in [
            ("512\n-1\n", 3, "`-1` is not a size"),
            ("512 513", 2, "`512 513` is not a size"),
            ("1KiB", 2, "`1KiB` is not a size"),
            ("18446744073709551616", 2, "`18446744073709551616` is not a size"),
            ("\u{1b}[2J", 2, "`\\x1b[2J` is not a size"),
            ("0", 2, "a class of 0 bytes"),
            ("#\n\n00\n", 4, "a class of 0 bytes"),
            ("7\n7\n", 3, "7 is not larger than 7"),
            (&many, FittedClasses::MAX_CLASSES as u64 + 2, "more than 1024 sizes"),
        ] {
            let error = format!("{UNCOUNTED}\n{body}\n").parse::<FittedClasses>().expect_err(body);
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        for text in ["\n", "512\n", "vrampool fitted classes 3\n", " vrampool fitted classes 1\n"] {
            let error = text.parse::<FittedClasses>().expect_err(text);
            assert!(matches!((error.line, error.fault), (Some(1), TraceFault::Header { .. })));
        }
        let long =
            format!("{HEADER}\n{}", "#".repeat(MAX_FILE_BYTES)).parse::<FittedClasses>().expect_err("long");
        assert!(matches!(long.fault, TraceFault::FileTooLong));
        for (body, line) in [("512\nend 2 0\n", 3), ("512\nend 1 00000000\n", 3), ("end x\n", 2)] {
            let error = format!("{HEADER}\n{body}").parse::<FittedClasses>().expect_err(body);
            assert!(
                matches!((error.line, &error.fault), (Some(at), TraceFault::Altered { .. }) if at == line),
                "{error}"
            );
        }
        let saved = FittedClasses::new([512]).expect("a size").to_string();
        let error = format!("{saved}{saved}").parse::<FittedClasses>().expect_err("twice");
        assert!(matches!((error.line, &error.fault), (Some(4), TraceFault::Trailing)), "{error}");
        let line = "x".repeat(10_000).parse::<FittedClasses>().expect_err("a long line");
        assert!(line.to_string().len() < 250, "{line}");
    }

    #[test]
    fn files_are_written_read_and_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.classes");
        let classes = FittedClasses::new([512, 1 << 40]).expect("sizes");
        classes.save(&path).expect("a file");
        assert_eq!(FittedClasses::load(&path).expect("what was written"), classes);
        // Not text, and without a line end.
        std::fs::write(&path, [0xff, 0xfe, b'\n']).expect("a file");
        let error = FittedClasses::load(&path).expect_err("no header");
        assert!(error.to_string().contains("some.classes, line 1: `\\xff\\xfe\\n` is not"), "{error}");
        if Path::new("/dev/zero").exists() {
            let error = FittedClasses::load("/dev/zero").expect_err("no end");
            assert!(matches!(error.fault, TraceFault::FileTooLong));
        }
        let nowhere = folder.path().join("no/such/file");
        let error = FittedClasses::load(&nowhere).expect_err("no file");
        assert!(matches!(error.fault, TraceFault::Open(_)) && std::error::Error::source(&error).is_some());
        let error = classes.save(&nowhere).expect_err("no folder");
        assert!(matches!(error.fault, TraceFault::Create(_)), "{error}");
        // Windows does not open a folder.
        let error = FittedClasses::load(folder.path()).expect_err("a folder");
        assert!(matches!(error.fault, TraceFault::Read(_) | TraceFault::Open(_)), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_saved_is_what_is_loaded(sizes in proptest::collection::btree_set(1..=u64::MAX, 0..100)) {
            let classes = FittedClasses::new(sizes).expect("sizes");
            prop_assert!(classes.to_string().len() <= MAX_FILE_BYTES);
            prop_assert_eq!(classes.to_string().parse::<FittedClasses>().ok(), Some(classes));
        }

        #[test]
        fn a_cut_file_is_refused_wherever_it_ends(sizes in proptest::collection::btree_set(1..=u64::MAX, 0..9)) {
            let text = FittedClasses::new(sizes).expect("sizes").to_string();
            for end in 0..text.len() {
                let error = text[..end].parse::<FittedClasses>().expect_err("it is cut");
                prop_assert!(error.to_string().contains("ends early"), "{}: {}", end, error);
            }
        }

        #[test]
        fn no_bytes_do_harm(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = [UNCOUNTED.as_bytes(), b"\n", &body].concat();
            if let Ok((classes, _)) = parse(&text) {
                prop_assert!(classes.sizes().windows(2).all(|two| two[0] < two[1]));
            }
            // It must not panic.
            let _ = parse(&body);
        }
    }
}
