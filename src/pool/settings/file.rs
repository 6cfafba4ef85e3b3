//! Settings in a file: lines `key = value`.

use super::Settings;
use crate::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

/// Bytes of a file of settings.
const MOST_BYTES: u64 = 64 << 10;

impl Settings {
    /// Returns what a file sets, which is its text as [`from_str`](Self::from_str) reads it, 64 KiB at most.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a file that cannot be read, and as `from_str`.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let wrong = |reason: String| Error::configuration("file", path.display().to_string(), reason);
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
        if read.map_err(|error| wrong(error.to_string()))? as u64 > MOST_BYTES {
            return Err(wrong(format!("it has more than {MOST_BYTES} bytes")));
        }
        text.parse()
    }
}

/// Lines `key = value`, the last of each key. A value may be in double quotes, with `\"`, `\\`, `\n` and `\r` in it.
/// Text after `#` outside of quotes is a comment. So a TOML file without tables may be read.
///
/// ```
/// # use vrampool::{Amount, Settings};
/// let settings: Settings = "limit = \"2GiB\"  # of an L4\nborrow_classes = 4".parse()?;
/// assert_eq!((settings.limit, settings.borrow_classes), (Some(Amount::Bytes(2 << 30)), Some(4)));
/// assert_eq!(settings.to_string().parse::<Settings>()?, settings);
/// # Ok::<(), vrampool::Error>(())
/// ```
impl FromStr for Settings {
    type Err = Error;

    /// # Errors
    /// [`Error::Configuration`] for a line of another form, and as [`set`](Self::set).
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let pair =
                line.split_once('=').and_then(|(key, value)| Some((key.trim(), unquoted(value.trim())?)));
            let invalid = || {
                Error::configuration(
                    "line",
                    line,
                    "write `key = value`, and a value with `#` in double quotes",
                )
            };
            let (key, value) = pair.ok_or_else(invalid)?;
            settings.set(key, &value)?;
        }
        Ok(settings)
    }
}

/// A line `key = value` for each that is set. [`from_str`](Self::from_str) reads it back, except a table of size
/// classes.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(name, text)| {
            let is_plain = text.trim() == text && !text.starts_with('"') && !text.contains(['#', '\n']);
            if is_plain {
                return writeln!(f, "{name} = {text}");
            }
            let text = [("\\", "\\\\"), ("\"", "\\\""), ("\n", "\\n"), ("\r", "\\r")]
                .iter()
                .fold(text, |text, (character, escape)| text.replace(character, escape));
            writeln!(f, "{name} = \"{text}\"")
        })
    }
}

/// The value of a line without its quotes and comment; `None` if no comment follows the quotes.
fn unquoted(value: &str) -> Option<String> {
    let Some(quoted) = value.strip_prefix('"') else {
        return Some(value.split('#').next().unwrap_or_default().trim_end().into());
    };
    let (mut text, mut rest) = (String::new(), quoted.chars());
    loop {
        text.push(match rest.next()? {
            '"' => break,
            '\\' => match rest.next()? {
                'n' => '\n',
                'r' => '\r',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            },
            character => character,
        });
    }
    let rest = rest.as_str().trim();
    (rest.is_empty() || rest.starts_with('#')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::size_class::SizeClasses;
    use proptest::prelude::*;
    use vrampool_backend::Amount;

    proptest! {
        #[test]
        fn settings_are_read_back_from_their_text(
            name in prop::option::of("[ a\"\\\\#\n\r=é]{0,6}"),
            chosen in prop::collection::vec((0..Settings::TABLE.len(), any::<u64>(), 0.0..=100.0f64), 0..8),
        ) {
            let mut settings = Settings { name, ..Settings::default() };
            for (at, number, percent) in chosen {
                let of = &Settings::TABLE[at];
                let text = match of.kind {
                    "amount" if number % 2 == 0 => Amount::from(number >> (number % 64)).to_string(),
                    "amount" => Amount::Percent(percent).to_string(),
                    "count" => (number >> 32).to_string(),
                    "classes" if number % 2 == 0 => SizeClasses::Multiple(number >> 40 | 1).to_string(),
                    "text" => continue,
                    _ => of.values[(number % of.values.len() as u64) as usize].trim_end_matches(':').into(),
                };
                // Names of classes that need a number.
                if settings.set(of.name, &text).is_err() {
                    prop_assert!(of.kind == "classes");
                }
            }
            prop_assert_eq!(settings.to_string().parse::<Settings>().expect("it is read back"), settings);
        }

        #[test]
        fn no_text_does_harm(text in "((limit|name|moon|#)? ?=?( ?\"?[a-z0-9\\\\#]{0,3}\"?)?\r?\n?){0,6}") {
            if let Ok(settings) = text.parse::<Settings>() {
                prop_assert_eq!(settings.to_string().parse::<Settings>().expect("it is read back"), settings);
            }
        }
    }

    #[test]
    fn quotes_and_comments_are_no_part_of_a_value() {
        for (line, name) in [
            ("name = one # comment", "one"),
            ("\u{feff}name = one", "one"),
            ("name=\"one # two\" # three", "one # two"),
            ("name = ", ""),
            ("name = \" a \\\"b\\\" \\\\ \\n\"", " a \"b\" \\ \n"),
            ("# name = no\r\n\r\nname = no\r\nname = a=b\r\n", "a=b"),
        ] {
            assert_eq!(line.parse::<Settings>().expect(line).name.as_deref(), Some(name), "{line}");
        }
        for line in
            ["limit", "[pool]", "name = \"one", "name = \"one\" two", "name = \"\\x\"", "= 1", "limt = 1"]
        {
            assert!(matches!(line.parse::<Settings>(), Err(Error::Configuration(_))), "{line}");
        }
        let error = Settings::from_file("/nowhere/settings").expect_err("no file").to_string();
        assert!(error.contains("`/nowhere/settings`"), "{error}");
        #[cfg(unix)]
        assert!(
            Settings::from_file("/dev/zero").is_err_and(|error| error.to_string().contains("65536 bytes"))
        );
    }
}
