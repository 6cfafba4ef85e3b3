//! Names of devices, and the default device.

use super::available::NotOpened;
use super::family::{FAMILIES, devices};
use super::variants::AnyDevice;
use crate::any::DeviceFamily;
use crate::environment;
use crate::environment::{BACKEND, Lookup};
use crate::error::Error;
use std::fmt;
use std::str::FromStr;
use vrampool_backend::{BackendError, logging};

/// A device's name. That it is one does not mean that the device is there.
///
/// ```
/// # use vrampool::any::Name;
/// assert_eq!("cuda:1".parse::<Name>()?.to_string(), "cuda:1");
/// assert!("abacus".parse::<Name>().unwrap_err().to_string().contains("known are auto, cuda"));
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

const AUTO: &str = "auto";

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parsed(text).map_err(|reason| Error::configuration("device", text, reason))
    }
}

impl Name {
    /// Returns the name, or the reason why it is none.
    fn parsed(text: &str) -> Result<Self, String> {
        let name = Self(text.into());
        let which = text.split_once(':').map(|(_, which)| which);
        let is_name = match name.family() {
            Some(family) => which.is_none_or(|which| family.has_several() && !which.is_empty()),
            None => text == AUTO,
        };
        if is_name {
            return Ok(name);
        }
        let forms: Vec<_> = FAMILIES.iter().flat_map(|family| family.forms).copied().collect();
        Err(format!("{text:?} does not name a device; known are {AUTO}, {}", forms.join(", ")))
    }

    /// Returns `None` for `auto`, which selects the best device.
    fn family(&self) -> Option<&'static DeviceFamily> {
        let name = self.0.split(':').next();
        FAMILIES.iter().find(|family| Some(family.name) == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Opens the device of this name, which the [module's table](super) explains. A device that is opened again
/// is the same.
///
/// ```no_run
/// let device = vrampool::any::open("auto")?;
/// # Ok::<(), vrampool::Error>(())
/// ```
///
/// # Errors
/// [`Error::NotOpened`], whose text lists available devices and why others are unavailable; for `auto` also those of
/// [`from_environment`].
pub fn open(name: &str) -> Result<AnyDevice, Error> {
    open_with(name, &environment::process)
}

/// The device that `VRAMPOOL_BACKEND` names, for a program's default: `None` where it is not set, or empty.
///
/// A name that is an argument of the program should override it, as in [`PoolBuilder`](crate::PoolBuilder):
/// argument, then environment, then default.
///
/// # Errors
/// [`Error::Environment`] when it does not name a device that opens.
pub fn from_environment() -> Result<Option<AnyDevice>, Error> {
    named_in(&environment::process)
}

fn open_with(name: &str, lookup: Lookup<'_>) -> Result<AnyDevice, Error> {
    let chosen = if name == AUTO { named_in(lookup)? } else { None };
    match chosen {
        Some(device) => Ok(device),
        None => Ok(open_named(name)?),
    }
}

fn named_in(lookup: Lookup<'_>) -> Result<Option<AnyDevice>, Error> {
    environment::read(&BACKEND, lookup, |name| open_named(name.trim()).map_err(|error| error.to_string()))
}

fn open_named(name: &str) -> Result<AnyDevice, Box<NotOpened>> {
    let parsed = Name::parsed(name).map_err(|reason| BackendError::invalid("device", reason));
    let opened = parsed.and_then(|name| match name.family() {
        Some(DeviceFamily { compiled: Some(compiled), .. }) => (compiled.open)(&name.0),
        Some(family) => Err(family.not_compiled()),
        None => best(),
    });
    opened.map_err(|cause| Box::new(NotOpened { name: name.into(), cause, devices: devices() }))
}

/// Opens the best device. A listed device that does not open is noted in the log.
fn best() -> Result<AnyDevice, BackendError> {
    for listed in devices().by_preference() {
        match open_named(&listed.name) {
            Ok(device) => return Ok(device),
            Err(error) => logging::warn!("{} is listed and does not open: {}", listed.name, error.cause),
        }
    }
    Err(BackendError::unavailable(AUTO, "no device opens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_the_environment_chooses() {
        let set = |value: &'static str| move |name: &str| (name == BACKEND[0].name).then(|| value.into());
        assert!(named_in(&set("")).expect("empty is unset").is_none());
        for value in ["abacus", "host:7", "cuda:4096"] {
            for error in [
                named_in(&set(value)).expect_err(value),
                open_with("auto", &set(value)).expect_err("it is asked first"),
            ] {
                assert!(
                    matches!(&error, Error::Environment(invalid) if invalid.variable == BACKEND[0].name),
                    "{error:?}"
                );
                assert!(error.to_string().contains(&format!("VRAMPOOL_BACKEND=`{value}`")), "{error}");
            }
            let named = open_with("host", &set(value));
            assert_eq!(named.is_ok(), cfg!(feature = "host"), "what has a name is not asked for elsewhere");
        }
        #[cfg(feature = "host")]
        for (name, value) in [("auto", "host"), ("auto", " host ")] {
            let device = open_with(name, &set(value)).expect("the host is there");
            assert!(device.as_host().is_ok(), "{device:?}");
        }
    }

    #[cfg(feature = "host")]
    #[test]
    fn there_is_always_a_best_and_it_is_the_same_when_opened_again() {
        use vrampool_backend::Backend;
        let open = || open_with("auto", &|_| None).expect("the host at the least").id();
        assert_eq!(open(), open());
        assert_eq!(open_named("auto").map(|device| device.id()), Ok(open()), "in the environment as well");
    }
}
