//! A fact, and the scene in which its process checks it.
//!
//! What a scene sees is printed at once, a line for each observation, so that a process that crashes or hangs has told
//! what it saw before.

use crate::driver::{Code, Driver, SUCCESS};
use std::fmt::Display;
use std::ops::Deref;

/// What a fact's process has before the fact begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    /// The library is loaded.
    Loaded,
    /// The driver is initialised.
    Initialised,
    /// The first device's primary context is current.
    Current,
}

/// What a fact needs, beyond a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Needs {
    Nothing,
    TwoDevices,
    /// It would crash a real driver.
    Simulator,
}

/// Where a fact is from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// Seen on a real device.
    Hardware,
    /// Nobody has seen it on a real device: it is from the header's text, or a guess.
    Unseen,
}

pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) start: Start,
    pub(crate) needs: Needs,
    /// Whether nothing else may run at the same time: it measures the device's free memory.
    pub(crate) alone: bool,
    pub(crate) check: fn(&Scene) -> Check,
}

pub(crate) const fn fact(name: &'static str, check: fn(&Scene) -> Check) -> Fact {
    Fact { name, source: Source::Unseen, start: Start::Current, needs: Needs::Nothing, alone: false, check }
}

impl Fact {
    pub(crate) const fn loaded(self) -> Self {
        Self { start: Start::Loaded, ..self }
    }

    pub(crate) const fn initialised(self) -> Self {
        Self { start: Start::Initialised, ..self }
    }

    pub(crate) const fn two_devices(self) -> Self {
        Self { needs: Needs::TwoDevices, ..self }
    }

    pub(crate) const fn simulator_only(self) -> Self {
        Self { needs: Needs::Simulator, ..self }
    }

    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }
}

/// The fact cannot be checked further; the reason was printed.
#[derive(Debug)]
pub(crate) struct Stop;

pub(crate) type Check = Result<(), Stop>;

/// The driver, and what a fact's process began with.
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

    /// What a call returns.
    pub(crate) fn is(&self, call: &str, code: Code, expected: Code) {
        line(if code == expected { "ok" } else { "differs" }, call, &code, &expected);
    }

    /// A value that a call returns.
    pub(crate) fn eq<T: Display + PartialEq>(&self, what: &str, value: T, expected: T) {
        line(if value == expected { "ok" } else { "differs" }, what, &value, &expected);
    }

    /// A value that differs by device or version.
    pub(crate) fn note(&self, what: &str, value: impl Display) {
        line("note", what, &value, &"");
    }

    /// What the fact needs before it can be checked.
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
