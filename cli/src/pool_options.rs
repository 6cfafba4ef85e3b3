//! The flags for a pool's device and settings, common to all commands with a pool: one for each of the table.

use crate::completed::{Completed, device};
use crate::trace_options::{STDIN, read};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use vrampool::any::Name;
use vrampool::errors::chain;
use vrampool::settings::{Scope, Setting};
use vrampool::{Amount, Backend, Pool, PoolBuilder, Settings, SizeClasses, Source};
use vrampool_trace::{Import, TraceError, fitted};

/// The settings that are flags, with the flag and the name of its value. A pool of the program has the program's name,
/// and is below no other one.
pub(crate) static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| flags(Settings::TABLE));

type Flag = (&'static Setting, String, String);

fn flags(table: &'static [Setting]) -> Vec<Flag> {
    let settings = table.iter().filter(|of| of.scope != Scope::Child && !of.variables.is_empty());
    settings.map(|of| (of, of.name.replace('_', "-"), of.kind.to_uppercase())).collect()
}

fn with_flags(command: Command, flags: &'static [Flag]) -> Command {
    flags.iter().fold(command, |command, (setting, flag, kind)| {
        let file = file_of(setting.name);
        let variable = setting.variables.first().map_or("", |of| of.name);
        let more = file.map(|file| format!("; or {file}FILE")).unwrap_or_default();
        let help = format!(
            "{}{more} [default: {variable}, or {}]",
            setting.help.trim_end_matches('.'),
            setting.default
        );
        let names = setting.values.iter().copied().chain(file).collect();
        let names = if setting.values.is_empty() { Vec::new() } else { names };
        let parser = Completed { names, parse: |text: &str| parse(setting.name, text) };
        let flag = Arg::new(setting.name).long(flag.as_str()).value_name(kind.as_str()).value_parser(parser);
        command.arg(flag.help(help).hide_possible_values(true))
    })
}

/// Flags of every command with a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The device to run on.
    pub backend: Option<Name>,
    settings: Box<Settings>,
    files: Vec<PathBuf>,
}

impl Args for PoolOptions {
    fn augment_args(command: Command) -> Command {
        let backend = Arg::new("backend").long("backend").value_name("DEVICE").value_parser(device());
        let help = "The device to run on, by a name that `devices` shows, or `auto` [default: VRAMPOOL_BACKEND, or host]";
        let command = command.arg(backend.help(help).hide_possible_values(true));
        with_flags(command, &FLAGS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PoolOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let backend = matches.get_one::<Name>("backend").cloned();
        let set = FLAGS.iter().filter_map(|(of, ..)| matches.get_one::<Parsed>(of.name).cloned());
        let (settings, files): (Vec<_>, Vec<_>) = set.unzip();
        let settings = settings.into_iter().fold(Settings::default(), Settings::with);
        Ok(Self { backend, settings: Box::new(settings), files: files.into_iter().flatten().collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PoolOptions {
    /// Files that were read.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The source, if its flag is set.
    pub(crate) fn source(&self) -> Option<Source> {
        self.settings.source
    }

    /// The size classes, if their flag is set.
    pub(crate) fn size_classes(&self) -> Option<&SizeClasses> {
        self.settings.size_classes.as_ref()
    }

    /// Applies the flags that are set; defaults and environment variables apply to the others.
    pub fn apply<B: Backend>(&self, builder: PoolBuilder<B>) -> PoolBuilder<B> {
        builder.settings((*self.settings).clone())
    }
}

/// Makes a pool, whose source may take memory or addresses at once.
///
/// # Errors
/// The text of the pool's error, with the flag to change if memory is out.
pub fn build<B: Backend>(builder: PoolBuilder<B>) -> Result<Pool<B>, String> {
    builder.build().map_err(|error| match error.is_out_of_memory() {
        true => format!("{error}; give a smaller --limit, or raise that of the address space (ulimit -v)"),
        false => error.to_string(),
    })
}

/// A setting, and the file that it was read from, if any.
type Parsed = (Settings, Option<PathBuf>);

/// Returns the prefix of a setting's file in its text.
fn file_of(setting: &str) -> Option<&'static str> {
    match setting {
        "size_classes" => Some("fitted:"),
        "initial" => Some("peak:"),
        _ => None,
    }
}

/// Parses a setting, or reads it from the file that its text names.
fn parse(name: &str, text: &str) -> Result<Parsed, String> {
    let mut settings = Settings::default();
    let Some(path) = file_of(name).and_then(|prefix| text.strip_prefix(prefix)).map(Path::new) else {
        settings.set(name, text).map_err(|error| error.to_string())?;
        return Ok((settings, None));
    };
    let failed = |error: TraceError| chain(&error).to_string();
    if name == "initial" {
        let peak = read(path, Import::new()).map_err(failed)?.peak_requested();
        settings.initial = Some(Amount::Bytes(peak));
    } else {
        let classes = match path.as_os_str() == STDIN {
            true => fitted::parse(io::stdin().lock()),
            false => fitted::load(path),
        };
        settings.size_classes = Some(SizeClasses::Table(classes.map_err(failed)?));
    }
    Ok((settings, Some(path.into())))
}

/// Parses `64KiB`, `4GiB`, `1000`, or `unlimited`.
///
/// # Errors
/// A text that names the valid forms.
pub fn bytes_or_unlimited(text: &str) -> Result<u64, String> {
    Amount::parse_bytes(text).map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use vrampool::host::HostDevice;

    #[test]
    fn a_row_that_is_added_to_the_table_is_a_flag() {
        let mut added = Settings::TABLE[2].clone();
        (added.name, added.help, added.default) = ("added_setting", "Added for a test.", "as it was");
        let flags = flags(Vec::leak([Settings::TABLE, &[added]].concat()));
        let help = with_flags(Command::new("test"), Vec::leak(flags)).render_help().to_string();
        assert!(help.contains("--added-setting <AMOUNT>") && help.contains("Added for a test"), "{help}");
        assert!(help.contains("or as it was]"), "{help}");
    }

    /// Each flag is the setting of its name: the same value, and the same error.
    #[test]
    fn a_flag_is_the_setting_of_its_name() {
        let device = HostDevice::builder().memory_limit(256 << 20).build();
        let parse = |flag: &str, text: &str| {
            let command = PoolOptions::augment_args(Command::new("test"));
            let matches = command.try_get_matches_from(["test", &format!("--{flag}={text}")])?;
            PoolOptions::from_arg_matches(&matches)
        };
        for (setting, flag, _) in FLAGS.iter() {
            let (text, invalid) = match setting.kind {
                "amount" => ("1MiB", "101%"),
                "count" => ("7", "-1"),
                "memory" => ("host", "moon"),
                "source" => ("arena", "moon"),
                _ => ("exact:4096", "exact:none"),
            };
            let options = parse(flag, text).expect(text);
            // Initial memory needs a source that not every system has.
            if setting.name != "initial" {
                let builder = Pool::builder(&device);
                let pools = [options.apply(builder.clone()), builder.set(setting.name, text).expect(text)];
                let [of_flag, of_rust] = pools.map(|builder| {
                    let pool = builder.name("pool").build().expect(text);
                    pool.settings().iter().map(ToString::to_string).collect::<Vec<_>>()
                });
                assert_eq!(of_flag, of_rust);
            }
            let error = parse(flag, invalid).expect_err(invalid);
            assert_eq!(error.kind(), ErrorKind::ValueValidation);
            let reason = Settings::default().set(setting.name, invalid).expect_err(invalid).to_string();
            assert!(error.to_string().contains(&reason), "{error}");
        }
    }
}
