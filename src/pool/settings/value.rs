//! The types of settings, and how each is read from text.

use crate::error::Error;
use crate::heap::size_class::SizeClasses;
use crate::source::Source;
use vrampool_backend::{Amount, MemoryKind, Placement};

/// A type of settings.
pub(super) trait Value: Sized {
    /// What its text states.
    const KIND: &'static str;
    /// Texts that are valid, where they are few, and the beginnings of others.
    const NAMES: &'static [&'static str] = &[];

    /// # Errors
    /// The reason.
    fn read(text: &str) -> Result<Self, String>;

    fn text(&self) -> String;

    /// # Errors
    /// The reason.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Value for Amount {
    const KIND: &'static str = "amount";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|invalid: vrampool_backend::InvalidAmount| invalid.to_string())
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn check(&self) -> Result<(), String> {
        Amount::check(*self).map(drop).map_err(|invalid| invalid.to_string())
    }
}

impl Value for Option<u64> {
    const KIND: &'static str = "count";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(None),
            _ => u32::read(text).map(|count| Some(count.into())).map_err(|reason| reason + ", or unlimited"),
        }
    }

    fn text(&self) -> String {
        self.map_or_else(|| "unlimited".into(), |count| count.to_string())
    }
}

impl Value for u32 {
    const KIND: &'static str = "count";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("write a whole number from 0 to {}", Self::MAX))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const KIND: &'static str = "switch";
    const NAMES: &'static [&'static str] = &["true", "false"];

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "write true or false".into())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const KIND: &'static str = "text";

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl Value for Source {
    const KIND: &'static str = "source";
    const NAMES: &'static [&'static str] = &["direct", "arena", "virtual", "driver"];

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(reason)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for SizeClasses {
    const KIND: &'static str = "classes";
    const NAMES: &'static [&'static str] =
        &["fixed", "power-of-two", "geometric", "geometric:", "multiple:", "exact", "exact:", "tight"];

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(reason)
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn check(&self) -> Result<(), String> {
        self.validate().map_err(reason)
    }
}

impl Value for MemoryKind {
    const KIND: &'static str = "memory";
    const NAMES: &'static [&'static str] = &["device", "host", "managed"];

    fn read(text: &str) -> Result<Self, String> {
        let placement = match text {
            "device" => Placement::Device,
            "host" => Placement::HostVisible,
            "managed" => Placement::Managed,
            _ => return Err("use device, host or managed".into()),
        };
        Ok(placement.into())
    }

    fn text(&self) -> String {
        match self.placement {
            Placement::HostVisible => "host".into(),
            Placement::Managed => "managed".into(),
            _ => "device".into(),
        }
    }
}

fn reason(error: Error) -> String {
    match error {
        Error::Configuration(invalid) => invalid.reason,
        error => error.to_string(),
    }
}
