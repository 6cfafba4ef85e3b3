//! What a pool reads of the environment.

use crate::environment::{
    BUDGET_FRACTION, GIB, INITIAL, LARGE_BUCKET, LIMIT, Lookup, MAX_BUFFERS, MAX_CACHED, MIB, OVERLAP,
    SIZE_CLASSES, SOURCE, count, parsed, share, size,
};
use crate::error::Error;
use crate::heap::size_class::SizeClasses;
use crate::initial::Initial;
use crate::overlap::Overlap;
use crate::source::Source;

/// Makes the settings of a table. A row is the field, its type, the variable that an error names, and how it is read.
macro_rules! settings {
    ($($(#[$note:meta])* $field:ident: $type:ty, $variable:expr, $read:expr;)+) => {
        /// The settings. A number is decimal, not negative and finite; a share is at most 1; a count is whole; a size
        /// is 0 or at least one byte, and one that no `u64` holds is [`UNLIMITED`](crate::environment::UNLIMITED). An
        /// empty value is unset. All of them are checked whenever one may be needed, so that a mistake is found on any
        /// device and with any arguments. A second name is not read where the first is set: it is another program's.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(super) struct PoolSettings {
            $($(#[$note])* pub(super) $field: Option<$type>,)+
        }

        impl PoolSettings {
            /// # Errors
            /// [`Error::Environment`] for the first value that is not valid.
            pub(super) fn read(lookup: Lookup<'_>) -> Result<Self, Error> {
                Ok(Self { $($field: $read(lookup)?,)+ })
            }

            /// The name of a setting that is another one in `later`.
            pub(super) fn changed_in(&self, later: &Self) -> Option<&'static str> {
                let all = [$(($variable, self.$field != later.$field)),+];
                all.into_iter().find(|(_, is_changed)| *is_changed).map(|(name, _)| name)
            }
        }
    };
}

settings! {
    max_cached_bytes: u64, MAX_CACHED[0], |lookup| size(MAX_CACHED, GIB, lookup);
    budget_fraction: f64, BUDGET_FRACTION[0], |lookup| share(BUDGET_FRACTION, lookup);
    /// 0 = fixed buckets.
    large_bucket: u64, LARGE_BUCKET[0], |lookup| size(LARGE_BUCKET, MIB, lookup);
    limit: u64, LIMIT[0], |lookup| size(LIMIT, GIB, lookup);
    max_buffers_per_bucket: u64, MAX_BUFFERS[0], |lookup| count(MAX_BUFFERS, lookup);
    source: Source, SOURCE, |lookup| parsed(SOURCE, lookup);
    size_classes: SizeClasses, SIZE_CLASSES, |lookup| parsed(SIZE_CLASSES, lookup);
    overlap: Overlap, OVERLAP, |lookup| parsed(OVERLAP, lookup);
    initial: Initial, INITIAL, |lookup| parsed(INITIAL, lookup);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Names, UNLIMITED};
    use std::ffi::OsString;

    const ALL: [(Names, f64); 4] =
        [(MAX_CACHED, GIB), (BUDGET_FRACTION, 1.0), (LARGE_BUCKET, MIB), (LIMIT, GIB)];

    fn read(variables: &[(&str, &str)]) -> Result<PoolSettings, Error> {
        PoolSettings::read(&|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn sizes_are_decimal_numbers_of_their_unit() {
        let gib = 1u64 << 30;
        for (text, bytes) in [
            ("4", 4 * gib),
            ("0.5", gib / 2),
            (" 2 ", 2 * gib),
            ("1e-1", gib / 10),
            ("0", 0),
            ("-0", 0),
            ("1e300", UNLIMITED),
        ] {
            let settings = read(&[("VRAMPOOL_MAX_CACHED_GB", text)]).expect(text);
            assert_eq!(settings.max_cached_bytes, Some(bytes), "{text}");
        }
        assert_eq!(read(&[("VRAMPOOL_MAX_CACHED_GB", "")]).expect("empty is unset"), PoolSettings::default());
    }

    #[test]
    fn every_variable_is_checked_by_one_rule() {
        for (names, unit) in ALL {
            for &name in names {
                for text in ["four", "4GB", "nan", "inf", "-inf", "--1", " ", "-1", "-1e-300", "0x10"] {
                    let error = read(&[(name, text)]).expect_err(text).to_string();
                    assert!(error.contains(name) && error.contains(text), "{error}");
                }
                assert!(read(&[(name, "0")]).is_ok() && read(&[(name, "1")]).is_ok(), "{name}");
                assert_eq!(read(&[(name, "1e-12")]).is_ok(), unit == 1.0, "less than a byte: {name}");
                assert_eq!(read(&[(name, "1.01")]).is_ok(), unit > 1.0, "more than all: {name}");
            }
        }
    }

    #[test]
    fn counts_are_whole() {
        let count = |text| read(&[(MAX_BUFFERS[0], text)]);
        assert_eq!(count("7").expect("a count").max_buffers_per_bucket, Some(7));
        for text in ["1.5", "-1"] {
            let error = count(text).expect_err(text).to_string();
            assert!(error.contains(MAX_BUFFERS[0]) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn our_name_comes_before_netcls() {
        let (ours, netcl) = ("VRAMPOOL_MAX_CACHED_GB", "NETCL_MAX_CACHED_GB");
        let max_cached = |variables: &[_]| read(variables).expect("numbers").max_cached_bytes;
        assert_eq!(max_cached(&[(ours, "1"), (netcl, "2")]), Some(1 << 30));
        assert_eq!(max_cached(&[(netcl, "2")]), Some(2 << 30));
        assert_eq!(max_cached(&[(ours, ""), (netcl, "2")]), Some(2 << 30));
        assert_eq!(max_cached(&[(ours, "1"), (netcl, "garbage")]), Some(1 << 30), "it is another program's");
        let error = read(&[(netcl, "garbage")]).expect_err("garbage").to_string();
        assert!(error.contains(netcl), "{error}");
    }

    #[test]
    fn names_are_parsed_and_checked() {
        let settings = read(&[(SOURCE, " virtual "), (SIZE_CLASSES, "multiple:32MiB"), (OVERLAP, " 25% ")])
            .expect("all are valid");
        assert_eq!(settings.source, Some(Source::Virtual));
        assert_eq!(settings.size_classes, Some(SizeClasses::Multiple(32 << 20)));
        assert_eq!(settings.overlap, Some(Overlap::Percent(25)));
        let wrong = [
            (SOURCE, "virtuall"),
            (SIZE_CLASSES, "multiple:zero"),
            (OVERLAP, "25%%"),
            (INITIAL, "101%"),
            (INITIAL, "much"),
        ];
        for (name, text) in wrong {
            let error = read(&[(name, text)]).expect_err(text);
            assert!(matches!(&error, Error::Environment(invalid) if invalid.variable == name), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_change_is_named() {
        let before = read(&[(SOURCE, "direct")]).expect("it is valid");
        for (name, text) in [
            (SOURCE, "arena"),
            (SIZE_CLASSES, "tight"),
            (OVERLAP, "0"),
            (INITIAL, "1GiB"),
            ("VRAMPOOL_LIMIT_GB", "1"),
            (MAX_BUFFERS[0], "7"),
            (MAX_CACHED[0], "1"),
            (BUDGET_FRACTION[0], "1"),
            (LARGE_BUCKET[0], "1"),
        ] {
            let mut variables = vec![(name, text)];
            if name != SOURCE {
                variables.push((SOURCE, "direct"));
            }
            assert_eq!(before.changed_in(&read(&variables).expect("it is valid")), Some(name));
        }
        assert_eq!(before.changed_in(&before), None);
    }
}
