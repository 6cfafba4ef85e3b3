//! Settings of a pool by their names, as a configuration file, an option or a variable of the environment states them.

mod file;
mod value;

use crate::environment::{self, Lookup, Unit, Variable};
use crate::error::Error;
use crate::heap::size_class::SizeClasses;
use crate::settings_table::rows;
use crate::source::Source;
use std::fmt;
use value::Value;
use vrampool_backend::{Amount, MemoryKind};

/// The pools that have a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Every pool.
    Any,
    /// A pool that is no child of another one, for all below it.
    Root,
    /// A [child](crate::Pool::child).
    Child,
}

/// A row of [the table of settings](Settings::TABLE).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name: the method of [`PoolBuilder`](crate::PoolBuilder), the key of [`Settings::set`] and of C, the argument
    /// of Python.
    pub name: &'static str,
    /// What its text states.
    pub kind: &'static str,
    /// Valid texts if there are few, and prefixes of others.
    pub values: &'static [&'static str],
    /// Its value if nothing sets it.
    pub default: &'static str,
    /// The pools that have it.
    pub scope: Scope,
    /// The version that was the first with it.
    pub since: &'static str,
    /// Its variables. The first that is set is read.
    pub variables: &'static [Variable],
    /// Its meaning.
    pub help: &'static str,
}

/// The origin of a pool's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The program.
    Argument,
    /// A variable of the environment.
    Environment,
    /// A [file](crate::PoolBuilder::from_file).
    File,
    /// The pool above it.
    Parent,
    /// The default of vrampool.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// A setting as a pool was built with it; as text, `limit = 2GiB (argument)`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effective {
    /// The setting.
    pub setting: &'static Setting,
    /// Its text, with percentages of memory as bytes.
    pub text: String,
    /// Its origin.
    pub origin: Origin,
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.setting.name, self.text, self.origin)
    }
}

/// An object of `name`, `value` and `origin`.
#[cfg(feature = "serde")]
impl serde::Serialize for Effective {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let origin = self.origin.to_string();
        serializer.collect_map([("name", self.setting.name), ("value", &self.text), ("origin", &origin)])
    }
}

macro_rules! settings {
    ($(
        $(#[$doc:meta])* $name:ident($argument:ty): $type:ty, $default:literal, $scope:ident, $since:literal,
        [$(($variable:literal, $unit:ident)),*], $help:literal;
    )+) => {
        /// Settings of a pool, each of which may be unset. [`PoolBuilder::settings`](crate::PoolBuilder::settings)
        /// applies them.
        ///
        /// ```
        /// # use vrampool::{Amount, Pool, Settings, host::HostDevice};
        /// let mut settings = Settings::default();
        /// for line in ["limit = 2GiB", "size_classes = tight"] {
        ///     let (key, text) = line.split_once('=').expect("a pair");
        ///     settings.set(key.trim(), text)?;
        /// }
        /// assert_eq!(settings.limit, Some(Amount::Bytes(2 << 30)));
        /// let pool = Pool::builder(&HostDevice::new()).settings(settings).build()?;
        /// assert_eq!(pool.limit(), Some(2 << 30));
        /// # Ok::<(), vrampool::Error>(())
        /// ```
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            $(#[doc = $help] pub $name: Option<$type>,)+
        }

        impl Settings {
            /// All settings.
            pub const TABLE: &'static [Setting] = &[$(Setting {
                name: stringify!($name),
                kind: <$type as Value>::KIND,
                values: <$type as Value>::NAMES,
                default: $default,
                scope: Scope::$scope,
                since: $since,
                variables: &[$(Variable { name: $variable, unit: Unit::$unit }),*],
                help: $help,
            }),+];

            /// Sets a setting from text.
            ///
            /// # Errors
            /// [`Error::Configuration`] for an unknown key, and for an invalid value.
            pub fn set(&mut self, key: &str, text: &str) -> Result<(), Error> {
                match key {
                    $(stringify!($name) => {
                        // Spaces may be part of a name.
                        let text = if <$type as Value>::KIND == "text" { text } else { text.trim() };
                        let value = Value::read(text);
                        let invalid = |reason: String| Error::configuration(stringify!($name), text, reason);
                        self.$name = Some(value.map_err(invalid)?);
                    })+
                    _ => return Err(unknown(key)),
                }
                Ok(())
            }

            /// Returns the names and texts of the settings that are set.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> {
                [$((stringify!($name), self.$name.as_ref().map(Value::text))),+]
                    .into_iter()
                    .filter_map(|(name, text)| Some((name, text?)))
            }

            /// Sets what `other` sets.
            #[must_use]
            pub fn with(self, other: Self) -> Self {
                Self { $($name: other.$name.or(self.$name)),+ }
            }

            /// Checks values that are not from text.
            pub(crate) fn check(&self) -> Result<(), Error> {
                $(if let Some(value) = &self.$name {
                    let invalid = |reason| Error::configuration(stringify!($name), value.text(), reason);
                    value.check().map_err(invalid)?;
                })+
                Ok(())
            }
        }
    };
}
rows!(settings);

impl Settings {
    /// Returns what variables of the environment set, all of which are checked.
    ///
    /// # Errors
    /// [`Error::Environment`] for the first value that is not valid.
    pub(crate) fn read(lookup: Lookup<'_>) -> Result<Self, Error> {
        let mut all = Self::default();
        for setting in Self::TABLE {
            environment::read(setting.variables, lookup, |text| match all.set(setting.name, text) {
                Err(Error::Configuration(invalid)) => Err(invalid.reason),
                set => Ok(set),
            })?
            .transpose()?;
        }
        Ok(all)
    }

    /// Returns the first setting that differs in `later`.
    pub(crate) fn changed_in(&self, later: &Self) -> Option<&'static Setting> {
        Self::TABLE.iter().find(|setting| self.text(setting) != later.text(setting))
    }

    fn text(&self, setting: &Setting) -> Option<String> {
        self.iter().find(|(name, _)| *name == setting.name).map(|(_, text)| text)
    }

    /// All of them, each from the first of `origins` that sets it.
    pub(crate) fn with_origins(&self, origins: [(&Self, Origin); 4]) -> Vec<Effective> {
        let origin = |setting| {
            let set = origins.iter().find(|(settings, _)| settings.text(setting).is_some());
            set.map_or(Origin::Default, |(_, origin)| *origin)
        };
        let all = Self::TABLE.iter().filter_map(|setting| Some((setting, self.text(setting)?)));
        all.map(|(setting, text)| Effective { setting, text, origin: origin(setting) }).collect()
    }
}

/// Settings with a row that is added to the table.
#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "as it is outside of tests")]
pub(crate) mod added {
    use crate::pool::settings::*;

    rows! { settings
        added(impl Into<Amount>): Amount, "1MiB", Any, "0.2", [("VRAMPOOL_ADDED", Text)], "Added for a test.";
    }
}

fn unknown(key: &str) -> Error {
    let names: Vec<_> = Settings::TABLE.iter().map(|setting| setting.name).collect();
    Error::configuration(
        "setting",
        key,
        format!("there is none of this name; use one of {}", names.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::read(&|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_row_that_is_added_is_a_setting() {
        let (added, all) = added::Settings::TABLE.split_last().expect("rows");
        assert_eq!(all, Settings::TABLE);
        assert_eq!((added.name, added.kind, added.help), ("added", "amount", "Added for a test."));
        let mut settings = added::Settings::default();
        settings.set("added", "2MiB").expect("valid");
        assert_eq!(settings.added, Some(Amount::Bytes(2 << 20)));
        assert_eq!(settings.iter().collect::<Vec<_>>(), [("added", "2MiB".into())]);
        assert!(added::Settings::default().with(settings).check().is_ok());
        assert!(Settings::default().set("added", "2MiB").is_err());
    }

    /// All variables with a unit.
    fn numbers() -> impl Iterator<Item = &'static Variable> {
        let all = Settings::TABLE.iter().flat_map(|setting| setting.variables);
        all.filter(|variable| variable.unit != Unit::Text)
    }

    #[test]
    fn a_setting_has_a_variable_of_its_name_or_none() {
        for setting in Settings::TABLE {
            let own = format!("VRAMPOOL_{}", setting.name.to_uppercase());
            assert!(
                setting.variables.first().is_none_or(|of| of.name == own && of.unit == Unit::Text),
                "{own}"
            );
        }
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
            ("1e300", u64::MAX),
        ] {
            let settings = read(&[("VRAMPOOL_MAX_CACHED_GB", text)]).expect(text);
            assert_eq!(settings.max_cached_bytes, Some(bytes.into()), "{text}");
        }
        assert_eq!(read(&[("VRAMPOOL_MAX_CACHED_GB", "")]).expect("empty is unset"), Settings::default());
    }

    #[test]
    fn every_number_is_checked_by_one_rule() {
        assert_eq!(numbers().count(), 7);
        for Variable { name, unit } in numbers() {
            for text in ["four", "4GB", "nan", "inf", "-inf", "--1", " ", "-1", "-1e-300", "0x10"] {
                let error = read(&[(name, text)]).expect_err(text).to_string();
                assert!(error.contains(name) && error.contains(text), "{error}");
            }
            assert!(read(&[(name, "0")]).is_ok() && read(&[(name, "1")]).is_ok(), "{name}");
            let is_share = *unit == Unit::Share;
            assert_eq!(read(&[(name, "1e-12")]).is_ok(), is_share, "less than a byte: {name}");
            assert_eq!(read(&[(name, "1.01")]).is_ok(), !is_share, "more than all: {name}");
        }
    }

    #[test]
    fn our_name_comes_before_netcls() {
        let (own, ours, netcl) =
            ("VRAMPOOL_MAX_CACHED_BYTES", "VRAMPOOL_MAX_CACHED_GB", "NETCL_MAX_CACHED_GB");
        let max_cached = |variables: &[_]| read(variables).expect("amounts").max_cached_bytes;
        assert_eq!(max_cached(&[(ours, "1"), (netcl, "2"), (own, "50%")]), Some(Amount::Percent(50.0)));
        assert_eq!(max_cached(&[(ours, "1"), (netcl, "2")]), Some(Amount::Bytes(1 << 30)));
        assert_eq!(max_cached(&[(netcl, "2")]), Some(Amount::Bytes(2 << 30)));
        assert_eq!(max_cached(&[(ours, ""), (netcl, "2")]), Some(Amount::Bytes(2 << 30)));
        let kept = max_cached(&[(ours, "1"), (netcl, "garbage")]);
        assert_eq!(kept, Some(Amount::Bytes(1 << 30)), "it is another program's");
        let error = read(&[(netcl, "garbage")]).expect_err("garbage").to_string();
        assert!(error.contains(netcl), "{error}");
        let bucket = |text| read(&[("NETCL_POOL_LARGE_BUCKET_MB", text)]).expect("a number").size_classes;
        assert_eq!(
            [bucket("0"), bucket("32")],
            [Some(SizeClasses::Fixed), Some(SizeClasses::Multiple(32 << 20))]
        );
    }

    /// Of each setting: texts that are valid, as they are written, and one that is not.
    #[test]
    fn text_variable_and_its_own_text_are_the_same() {
        for setting in Settings::TABLE {
            let (valid, invalid): (&[_], _) = match setting.kind {
                "amount" => (&["0B", "64KiB", "2GB", "12.5%", "unlimited"], Some("101%")),
                "count" => (&["0", "7"], Some("-1")),
                "switch" => (&["true", "false"], Some("maybe")),
                "source" => (setting.values, Some("virtuall")),
                "memory" => (setting.values, Some("moon")),
                "classes" => (&["fixed", "tight", "multiple:33554432", "geometric"], Some("multiple:zero")),
                _ => (&["a name"], None),
            };
            for &text in valid {
                let mut settings = Settings::default();
                settings.set(setting.name, text).expect(text);
                assert!(settings.check().is_ok() && settings != Settings::default(), "{text}");
                assert_eq!(settings.iter().collect::<Vec<_>>(), [(setting.name, text.to_owned())]);
                assert_eq!(settings.to_string(), format!("{} = {text}\n", setting.name));
                let Some(Variable { name, .. }) = setting.variables.first() else { continue };
                assert_eq!(read(&[(name, text)]).expect(text), settings);
                assert_eq!(read(&[(name, &format!(" {text} "))]).expect(text), settings);
                let changed = Settings::default().changed_in(&settings).expect("a change");
                assert!(changed.name == setting.name && settings.changed_in(&settings).is_none());
            }
            let Some(text) = invalid else { continue };
            let Err(Error::Configuration(error)) = Settings::default().set(setting.name, text) else {
                panic!("{} takes {text}", setting.name)
            };
            assert_eq!((error.field, &*error.value), (setting.name, text));
            let Some(Variable { name, .. }) = setting.variables.first() else { continue };
            let Err(Error::Environment(of_variable)) = read(&[(name, text)]) else {
                panic!("{name} takes {text}")
            };
            assert_eq!((of_variable.variable, &*of_variable.value), (*name, text));
            assert_eq!(of_variable.reason, error.reason);
        }
        let error = Settings::default().set("limt", "1").expect_err("no key").to_string();
        assert!(error.contains("`limt`") && error.contains("max_cached_bytes"), "{error}");
    }
}
