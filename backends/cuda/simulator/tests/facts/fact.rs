//! A fact, and the scene in which its process checks it.
//!
//! Each observation is printed at once, one line each, so that the observations before a crash or a hang are
//! kept.

use crate::driver::{Code, Driver, SUCCESS};
use std::fmt::Display;
use std::ops::Deref;

/// The state in which a fact's process begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    /// The library is loaded.
    Loaded,
    /// The driver is initialised.
    Initialised,
    /// The first device's primary context is current.
    Current,
}

/// Requirements of a fact, beyond a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Needs {
    Nothing,
    TwoDevices,
    /// The calls crash a real driver, or do harm there.
    Simulator,
}

/// The source of a fact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// Observed on a real device (H200, driver 580, CUDA 13.0).
    Hardware,
    /// Not yet observed on a real device: from the header's text, or a guess.
    Unseen,
}

pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) start: Start,
    pub(crate) needs: Needs,
    /// Whether it measures the device's free memory, so that no other fact may run at the same time.
    pub(crate) alone: bool,
    pub(crate) check: fn(&Scene) -> Check,
}

/// A fact whose checks are statements.
macro_rules! fact {
    ($name:expr, |$d:ident| $checks:block) => {
        $crate::fact::named($name, |$d| {
            $checks
            Ok(())
        })
    };
}
pub(crate) use fact;

pub(crate) const fn named(name: &'static str, check: fn(&Scene) -> Check) -> Fact {
    Fact { name, source: Source::Hardware, start: Start::Current, needs: Needs::Nothing, alone: false, check }
}

impl Fact {
    pub(crate) const fn loaded(self) -> Self {
        Self { start: Start::Loaded, ..self }
    }

    pub(crate) const fn initialised(self) -> Self {
        Self { start: Start::Initialised, ..self }
    }

    pub(crate) const fn two_devices(self) -> Self {
        Self { needs: Needs::TwoDevices, ..self }.unseen()
    }

    pub(crate) const fn simulator_only(self) -> Self {
        Self { needs: Needs::Simulator, ..self }.unseen()
    }

    pub(crate) const fn unseen(self) -> Self {
        Self { source: Source::Unseen, ..self }
    }

    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }
}

/// The rest of the fact cannot be checked; the reason was printed.
#[derive(Debug)]
pub(crate) struct Stop;

pub(crate) type Check = Result<(), Stop>;

/// The driver, and the state in which a fact's process began.
pub(crate) struct Scene {
    driver: Driver,
    pub(crate) device: i32,
    /// The primary context, or 0.
    pub(crate) context: usize,
}

impl Deref for Scene {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.driver
    }
}

impl Scene {
    pub(crate) fn begin(driver: Driver, start: Start) -> Result<Self, Stop> {
        let mut scene = Self { driver, device: 0, context: 0 };
        if start != Start::Loaded {
            scene.must("cuInit", scene.cuInit(0))?;
        }
        if start == Start::Current {
            let mut context = 0;
            scene.must("cuDevicePrimaryCtxRetain", scene.cuDevicePrimaryCtxRetain(&mut context, 0))?;
            scene.must("cuCtxSetCurrent", scene.cuCtxSetCurrent(context))?;
            scene.context = context;
        }
        Ok(scene)
    }

    /// Checks the result of a call.
    pub(crate) fn is(&self, call: &str, code: Code, expected: Code) {
        line(if code == expected { "ok" } else { "differs" }, call, &code, &expected);
    }

    /// Checks a value that a call returned.
    pub(crate) fn eq<T: Display + PartialEq>(&self, what: &str, value: T, expected: T) {
        line(if value == expected { "ok" } else { "differs" }, what, &value, &expected);
    }

    /// Prints a value that depends on the device or the version.
    pub(crate) fn note(&self, what: &str, value: impl Display) {
        line("note", what, &value, &"");
    }

    /// Requires a call to succeed; the rest of the fact depends on it.
    pub(crate) fn must(&self, call: &str, code: Code) -> Check {
        if code == SUCCESS {
            return Ok(());
        }
        line("differs", call, &code, &"SUCCESS (0), without which nothing more can be checked");
        Err(Stop)
    }
}

/// Prints one line for the parent: kind, what, value, expected value, separated by tabs.
pub(crate) fn line(kind: &str, what: &str, value: &dyn Display, expected: &dyn Display) {
    let clean = |text: String| text.replace(['\t', '\n'], " ");
    println!("{kind}\t{}\t{}\t{}", clean(what.into()), clean(value.to_string()), clean(expected.to_string()));
}
