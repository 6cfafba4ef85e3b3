//! Fitted classes as text.

use super::classes::FittedClasses;
use super::error::{Fault, FittedError};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

/// The first line of every file. The number is the format's, and that of the general rule for what was not learned.
pub(crate) const HEADER: &str = "vrampool fitted classes 1";

/// The most bytes that a file of classes may have: comments have room.
pub const MAX_FILE: usize = 1 << 16;

/// What errors call what is no file.
const UNNAMED: &str = "fitted classes";

/// How much of a line an error shows, bytes.
const SHOWN: usize = 64;

impl FittedClasses {
    /// Reads a file that [`save`](Self::save) wrote, or somebody by hand: see the [format](crate::fitted#the-file).
    ///
    /// # Errors
    /// [`FittedError`], which says where and what to do.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, FittedError> {
        let path = path.as_ref();
        let read = || -> Result<Self, (Option<u64>, Fault)> {
            let file = File::open(path).map_err(|error| (None, Fault::Open(error)))?;
            let mut text = Vec::new();
            // One more than allowed tells.
            let bounded = file.take(MAX_FILE as u64 + 1).read_to_end(&mut text);
            bounded.map_err(|error| (None, Fault::Read(error)))?;
            parse(&text)
        };
        read().map_err(|(line, fault)| FittedError { file: path.display().to_string(), line, fault })
    }

    /// Writes them to a file, in place of what is there.
    ///
    /// # Errors
    /// [`FittedError`] when it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FittedError> {
        let path = path.as_ref();
        std::fs::write(path, self.to_string()).map_err(|error| FittedError {
            file: path.display().to_string(),
            line: None,
            fault: Fault::Write(error),
        })
    }
}

/// The text of a file.
impl fmt::Display for FittedClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        self.sizes().iter().try_for_each(|size| writeln!(f, "{size}"))
    }
}

/// Reads the text of a file.
impl FromStr for FittedClasses {
    type Err = FittedError;

    fn from_str(text: &str) -> Result<Self, FittedError> {
        parse(text.as_bytes()).map_err(|(line, fault)| FittedError { file: UNNAMED.into(), line, fault })
    }
}

fn parse(text: &[u8]) -> Result<FittedClasses, (Option<u64>, Fault)> {
    if text.len() > MAX_FILE {
        return Err((None, Fault::FileTooLong));
    }
    let mut lines = (1..).zip(text.split(|&byte| byte == b'\n'));
    let first = lines.next().map_or(&b""[..], |(_, line)| line);
    if first.strip_suffix(b"\r").unwrap_or(first) != HEADER.as_bytes() {
        return Err((Some(1), Fault::Header { found: shown(first) }));
    }
    let mut sizes = Vec::new();
    for (number, line) in lines {
        let at = |fault| (Some(number), fault);
        let words = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if words.is_empty() {
            continue;
        }
        let size = size(words).map_err(at)?;
        match sizes.last() {
            Some(&before) if size <= before => return Err(at(Fault::Order { size, before })),
            _ if sizes.len() == FittedClasses::MAX_CLASSES => return Err(at(Fault::TooManyClasses)),
            _ => sizes.push(size),
        }
    }
    Ok(FittedClasses::of_sorted(sizes))
}

/// Digits alone: no sign, no unit.
fn size(text: &[u8]) -> Result<u64, Fault> {
    let digit = |sum: u64, &byte: &u8| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    };
    match text.iter().try_fold(0, digit) {
        Some(0) => Err(Fault::Zero),
        Some(size) => Ok(size),
        None => Err(Fault::NotASize { found: shown(text) }),
    }
}

/// For a message: short, and whatever is in a file does nothing to a terminal.
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
        let empty: FittedClasses = HEADER.parse().expect("no sizes");
        assert!(empty.sizes().is_empty() && empty.to_string() == format!("{HEADER}\n"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let many = (1..=FittedClasses::MAX_CLASSES + 1).map(|size| format!("{size}\n")).collect::<String>();
        for (body, line, words) in [
            ("512\n-1\n", 3, "`-1` is no size"),
            ("512 513", 2, "`512 513` is no size"),
            ("1KiB", 2, "`1KiB` is no size"),
            ("18446744073709551616", 2, "`18446744073709551616` is no size"),
            ("\u{1b}[2J", 2, "`\\x1b[2J` is no size"),
            ("0", 2, "a class of 0 bytes"),
            ("#\n\n00\n", 4, "a class of 0 bytes"),
            ("7\n7\n", 3, "7 is not larger than 7"),
            (&many, FittedClasses::MAX_CLASSES as u64 + 2, "more than 1024 sizes"),
        ] {
            let error = format!("{HEADER}\n{body}").parse::<FittedClasses>().expect_err(body);
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        for text in ["", "\n", "512\n", "vrampool fitted classes 2\n", " vrampool fitted classes 1\n"] {
            let error = text.parse::<FittedClasses>().expect_err(text);
            assert!(matches!((error.line, error.fault), (Some(1), Fault::Header { .. })));
        }
        let long = format!("{HEADER}\n{}", "#".repeat(MAX_FILE)).parse::<FittedClasses>().expect_err("long");
        assert!(matches!(long.fault, Fault::FileTooLong));
        let line = "x".repeat(10_000).parse::<FittedClasses>().expect_err("a long line");
        assert!(line.to_string().len() < 200, "{line}");
    }

    #[test]
    fn files_are_written_read_and_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.classes");
        let classes = FittedClasses::new([512, 1 << 40]).expect("sizes");
        classes.save(&path).expect("a file");
        assert_eq!(FittedClasses::load(&path).expect("what was written"), classes);
        // No text, and without end.
        std::fs::write(&path, [0xff, 0xfe, b'\n']).expect("a file");
        let error = FittedClasses::load(&path).expect_err("no header");
        assert!(error.to_string().contains("some.classes, line 1: `\\xff\\xfe` is not"), "{error}");
        if Path::new("/dev/zero").exists() {
            let error = FittedClasses::load("/dev/zero").expect_err("no end");
            assert!(matches!(error.fault, Fault::FileTooLong));
        }
        let nowhere = folder.path().join("no/such/file");
        let error = FittedClasses::load(&nowhere).expect_err("no file");
        assert!(matches!(error.fault, Fault::Open(_)) && std::error::Error::source(&error).is_some());
        assert!(matches!(classes.save(&nowhere).expect_err("no folder").fault, Fault::Write(_)));
        assert!(matches!(FittedClasses::load(folder.path()).expect_err("a folder").fault, Fault::Read(_)));
    }

    proptest! {
        #[test]
        fn what_is_saved_is_what_is_loaded(sizes in proptest::collection::btree_set(1..=u64::MAX, 0..100)) {
            let classes = FittedClasses::new(sizes).expect("sizes");
            prop_assert_eq!(classes.to_string().parse::<FittedClasses>().ok(), Some(classes));
            prop_assert!(classes.to_string().len() <= MAX_FILE);
        }

        #[test]
        fn no_bytes_do_harm(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = [HEADER.as_bytes(), b"\n", &body].concat();
            if let Ok(classes) = parse(&text) {
                prop_assert!(classes.sizes().windows(2).all(|two| two[0] < two[1]));
            }
            // Whatever it is.
            let _ = parse(&body);
        }
    }
}
