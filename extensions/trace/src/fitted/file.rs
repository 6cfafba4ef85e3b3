//! The text format of fitted classes.

use crate::error::bounds::{
    CLASS_HEADER as HEADER, CLASS_HEADERS, MAX_CLASS_FILE_BYTES as MAX_FILE_BYTES, MAX_CLASSES,
    UNCOUNTED_CLASS_HEADER as UNCOUNTED,
};
use crate::error::place::Place;
use crate::error::shown::shown as shown_path;
use crate::error::{TraceError, TraceFault};
use crate::output::Output;
use flate2::Crc;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use vrampool::SizeTable;
use vrampool::backend::logging;

/// The first word of the last line.
const END: &[u8] = b"end ";

/// The most bytes of a line that an error shows.
const SHOWN: usize = 64;

/// Reads a file written by [`save`] or by hand, in this [format](crate::fitted#the-file).
///
/// A cut of a file without a last line `end` cannot always be detected; reading such a file logs a warning.
///
/// # Errors
/// [`TraceError`] with the position and the action to take.
pub fn load(path: impl AsRef<Path>) -> Result<SizeTable, TraceError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| TraceError::of(path, TraceFault::Open(error)))?;
    read(file, path)
}

/// As [`load`], from the content of `reader`.
///
/// ```
/// use vrampool::SizeClasses;
/// use vrampool_trace::fitted;
/// let classes = fitted::parse("vrampool fitted classes 1\n300032\n40000000\n".as_bytes())?;
/// assert_eq!(SizeClasses::Table(classes).round(300_000), Some(300_032));
/// # Ok::<(), vrampool_trace::TraceError>(())
/// ```
///
/// # Errors
/// As [`load`].
pub fn parse(reader: impl Read) -> Result<SizeTable, TraceError> {
    read(reader, Path::new("size classes"))
}

fn read(reader: impl Read, path: &Path) -> Result<SizeTable, TraceError> {
    let mut place = Place::default();
    let (classes, is_counted) =
        parse_text(reader, &mut place).map_err(|fault| place.error(path.display().to_string(), fault))?;
    if !is_counted {
        let path = shown_path(path);
        // The public path of this module.
        logging::warn!(
            target: "vrampool_trace::fitted",
            "{path}: the file has no last line that counts its sizes, so a cut cannot be noticed; save it again"
        );
    }
    Ok(classes)
}

/// Writes the classes to a file, replacing the previous one.
///
/// # Errors
/// [`TraceError`] if [`load`] would refuse the file, or if it cannot be written; the previous file is then unchanged.
pub fn save(classes: &SizeTable, path: impl AsRef<Path>) -> Result<(), TraceError> {
    let text = text(classes);
    read(text.as_bytes(), path.as_ref())?;
    Output::create(path)?.save(text)
}

/// Returns the text of a file.
#[must_use]
pub fn text(classes: &SizeTable) -> String {
    let sizes = classes.sizes();
    let lines: String = sizes.iter().map(|size| format!("{size}\n")).collect();
    format!("{HEADER}\n{lines}end {} {:08x}\n", sizes.len(), checksum(sizes))
}

/// Returns the checksum of the sizes as written, one per line.
fn checksum(sizes: &[u64]) -> u32 {
    let mut sum = Crc::new();
    sizes.iter().for_each(|size| sum.update(format!("{size}\n").as_bytes()));
    sum.sum()
}

/// Parses the classes, and returns whether a last line counts them. `place` is the one being read.
fn parse_text(reader: impl Read, place: &mut Place) -> Result<(SizeTable, bool), TraceFault> {
    let mut text = Vec::new();
    // One more byte than allowed reveals a longer file.
    reader.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut text).map_err(TraceFault::Read)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(TraceFault::invalid(format!(
            "the file is longer than {MAX_FILE_BYTES} bytes; fitted classes are a header and one size per line"
        )));
    }
    let mut lines = (1..).zip(text.split_inclusive(|&byte| byte == b'\n'));
    let (number, first) = lines.next().ok_or(TraceFault::CutOff("in its first line"))?;
    place.line = Some(number);
    let is_counted = match ended(first) {
        Some(line) if line == HEADER.as_bytes() => true,
        Some(line) if line == UNCOUNTED.as_bytes() => false,
        None if [HEADER, UNCOUNTED]
            .iter()
            .any(|header| header.as_bytes().starts_with(first.trim_ascii_end())) =>
        {
            return Err(TraceFault::CutOff("in its first line"));
        }
        _ => return Err(TraceFault::header(&shown(first), CLASS_HEADERS)),
    };
    let (mut sizes, mut is_ended) = (Vec::new(), false);
    for (number, line) in lines {
        place.line = Some(number);
        let line = ended(line).ok_or(TraceFault::CutOff("in this line"))?;
        let words = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if words.is_empty() {
            continue;
        }
        if is_ended {
            return Err(TraceFault::Trailing);
        }
        if is_counted && words.starts_with(END) {
            let expected = format!("end {} {:08x}", sizes.len(), checksum(&sizes));
            if words != expected.as_bytes() {
                return Err(TraceFault::altered(&shown(words), &expected, UNCOUNTED));
            }
            is_ended = true;
            continue;
        }
        let size = size(words)?;
        match sizes.last() {
            Some(&before) if size <= before => {
                return Err(TraceFault::invalid(format!(
                    "{size} is not larger than {before} in the previous line; write each size once, smallest first"
                )));
            }
            _ if sizes.len() == MAX_CLASSES => return Err(TraceFault::TooManyClasses),
            _ => sizes.push(size),
        }
    }
    place.line = None;
    match is_counted && !is_ended {
        true => Err(TraceFault::CutOff("without the last line `end`")),
        false => Ok((SizeTable::new(sizes), is_counted)),
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
    let found = match digits.and_then(|digits| digits.parse().ok()) {
        Some(0) => "a class of 0 bytes is invalid".into(),
        Some(size) => return Ok(size),
        None => format!("`{}` is not a size", shown(text)),
    };
    Err(TraceFault::invalid(format!("{found}; write a whole number of bytes from 1 to {}", u64::MAX)))
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
        assert_eq!(parse(text.as_bytes()).expect(text).sizes(), [512, 4096]);
        let empty = parse(format!("{UNCOUNTED}\n").as_bytes()).expect("no sizes");
        assert!(empty.sizes().is_empty());
        assert_eq!(super::text(&empty), format!("{HEADER}\nend 0 00000000\n"));
        // A comment in a saved file is allowed.
        let saved = super::text(&SizeTable::new([512, 4096]));
        let noted = saved.replace("4096", "# for the large model\r\n\t4096 # weights\r");
        assert_eq!(parse(noted.as_bytes()).expect("a comment").sizes(), [512, 4096]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let many = (1..=MAX_CLASSES + 1).map(|size| format!("{size}\n")).collect::<String>();
        for (body, line, words) in [
            ("512\n-1\n", 3, "`-1` is not a size"),
            ("512 513", 2, "`512 513` is not a size"),
            ("1KiB", 2, "`1KiB` is not a size"),
            ("18446744073709551616", 2, "`18446744073709551616` is not a size"),
            ("\u{1b}[2J", 2, "`\\x1b[2J` is not a size"),
            ("0", 2, "a class of 0 bytes"),
            ("#\n\n00\n", 4, "a class of 0 bytes"),
            ("7\n7\n", 3, "7 is not larger than 7"),
            (&many, MAX_CLASSES as u64 + 2, "more than 1024 sizes"),
        ] {
            let error = parse(format!("{UNCOUNTED}\n{body}\n").as_bytes()).expect_err(body);
            assert_eq!(error.place.line, Some(line), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        for text in ["\n", "512\n", "vrampool fitted classes 3\n", " vrampool fitted classes 1\n"] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(
                error.place.line == Some(1) && error.to_string().contains("is not the header"),
                "{error}"
            );
        }
        let long = format!("{HEADER}\n{}", "#".repeat(MAX_FILE_BYTES));
        let long = parse(long.as_bytes()).expect_err("long");
        assert!(long.to_string().contains("longer than 65536 bytes"), "{long}");
        for (body, line) in [("512\nend 2 0\n", 3), ("512\nend 1 00000000\n", 3), ("end x\n", 2)] {
            let error = parse(format!("{HEADER}\n{body}").as_bytes()).expect_err(body);
            assert!(
                error.place.line == Some(line) && error.to_string().contains("the file is altered"),
                "{error}"
            );
        }
        let saved = text(&SizeTable::new([512]));
        let error = parse(format!("{saved}{saved}").as_bytes()).expect_err("twice");
        assert!(matches!((error.place.line, &error.fault), (Some(4), TraceFault::Trailing)), "{error}");
        let line = parse("x".repeat(10_000).as_bytes()).expect_err("a long line");
        assert!(line.to_string().len() < 250, "{line}");
    }

    #[test]
    fn files_are_written_read_and_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.classes");
        let classes = SizeTable::new([512, 1 << 40]);
        save(&classes, &path).expect("a file");
        for refused in [SizeTable::new([0]), SizeTable::new(1..=MAX_CLASSES as u64 + 1)] {
            save(&refused, &path).expect_err("a file that is refused later");
        }
        assert_eq!(load(&path).expect("what was written"), classes);
        // Not text, and without a line end.
        std::fs::write(&path, [0xff, 0xfe, b'\n']).expect("a file");
        let error = load(&path).expect_err("no header");
        assert!(error.to_string().contains("some.classes, line 1: `\\xff\\xfe\\n` is not"), "{error}");
        if Path::new("/dev/zero").exists() {
            let error = load("/dev/zero").expect_err("no end");
            assert!(error.to_string().contains("longer than 65536 bytes"), "{error}");
        }
        let nowhere = folder.path().join("no/such/file");
        let error = load(&nowhere).expect_err("no file");
        assert!(matches!(error.fault, TraceFault::Open(_)) && std::error::Error::source(&error).is_some());
        let error = save(&classes, &nowhere).expect_err("no folder");
        assert!(matches!(error.fault, TraceFault::Create(_)), "{error}");
        // Windows does not open a folder.
        let error = load(folder.path()).expect_err("a folder");
        assert!(matches!(error.fault, TraceFault::Read(_) | TraceFault::Open(_)), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_saved_is_what_is_loaded(sizes in proptest::collection::btree_set(1..=u64::MAX, 0..100)) {
            let classes = SizeTable::new(sizes);
            prop_assert!(text(&classes).len() <= MAX_FILE_BYTES);
            prop_assert_eq!(parse(text(&classes).as_bytes()).ok(), Some(classes));
        }
    }
}
