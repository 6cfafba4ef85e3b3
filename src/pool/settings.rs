//! What a pool reads of the environment.

use crate::cache::size_class::SizeClasses;
use crate::environment::{Lookup, SIZE_CLASSES, SOURCE, Settings, parsed};
use crate::error::Error;
use crate::source::Source;

/// The numbers, and what has a name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PoolSettings {
    pub(super) numbers: Settings,
    pub(super) source: Option<Source>,
    pub(super) size_classes: Option<SizeClasses>,
}

impl PoolSettings {
    /// # Errors
    /// [`Error::Environment`] for the first value that is not valid.
    pub(super) fn read(lookup: Lookup<'_>) -> Result<Self, Error> {
        Ok(Self {
            numbers: Settings::read(lookup)?,
            source: parsed(SOURCE, lookup)?,
            size_classes: parsed(SIZE_CLASSES, lookup)?,
        })
    }

    /// The name of a setting that is another one in `later`.
    pub(super) fn changed_in(&self, later: &Self) -> Option<&'static str> {
        let of_names =
            [(SOURCE, self.source != later.source), (SIZE_CLASSES, self.size_classes != later.size_classes)];
        let changed = of_names.into_iter().find(|(_, is_changed)| *is_changed).map(|(name, _)| name);
        self.numbers.changed_in(&later.numbers).or(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn read(variables: &[(&str, &str)]) -> Result<PoolSettings, Error> {
        PoolSettings::read(&|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn names_are_parsed_and_checked() {
        let settings =
            read(&[(SOURCE, " virtual "), (SIZE_CLASSES, "multiple:32MiB")]).expect("both are valid");
        assert_eq!(settings.source, Some(Source::Virtual));
        assert_eq!(settings.size_classes, Some(SizeClasses::Multiple(32 << 20)));
        for (name, text) in [(SOURCE, "virtuall"), (SIZE_CLASSES, "multiple:zero")] {
            let error = read(&[(name, text)]).expect_err(text);
            assert!(matches!(&error, Error::Environment(invalid) if invalid.variable == name), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_change_is_named() {
        let before = read(&[(SOURCE, "direct")]).expect("it is valid");
        for (name, text) in [(SOURCE, "arena"), (SIZE_CLASSES, "tight"), ("VRAMPOOL_LIMIT_GB", "1")] {
            let mut variables = vec![(name, text)];
            if name != SOURCE {
                variables.push((SOURCE, "direct"));
            }
            assert_eq!(before.changed_in(&read(&variables).expect("it is valid")), Some(name));
        }
        assert_eq!(before.changed_in(&before), None);
    }
}
