//! The types of settings, and how each is read from text.

use crate::error::Error;
use crate::heap::size_class::SizeClasses;
use crate::source::Source;
use vrampool_backend::{Amount, InvalidAmount, MemoryKind, Placement};

/// A type of settings.
pub(super) trait Value: Sized {
    /// What its text states.
    const KIND: &'static str;
    /// Valid texts if there are few, and prefixes of others.
    const NAMES: &'static [&'static str];

    /// # Errors
    /// The reason.
    fn read(text: &str) -> Result<Self, String>;

    fn text(&self) -> String;

    /// # Errors
    /// The reason.
    fn check(&self) -> Result<(), String>;
}

/// Implements [`Value`]: the kind, the names, the functions that read, write and check it.
macro_rules! values {
    ($($type:ty: $kind:literal, $names:expr, $read:expr, $text:expr, $check:expr;)+) => {
        $(impl Value for $type {
            const KIND: &'static str = $kind;
            const NAMES: &'static [&'static str] = &$names;

            fn read(text: &str) -> Result<Self, String> {
                $read(text)
            }

            fn text(&self) -> String {
                $text(self)
            }

            fn check(&self) -> Result<(), String> {
                $check(self)
            }
        })+
    };
}

values! {
    Amount: "amount", [], |text: &str| text.parse().map_err(not_bytes), Self::to_string,
        |of: &Self| Amount::check(*of).map(drop).map_err(not_bytes);
    Option<u64>: "count", [], cap, |of: &Self| of.map_or("unlimited".into(), |count| count.to_string()), valid;
    u32: "count", [], count, Self::to_string, valid;
    bool: "switch", ["true", "false"], |text: &str| text.parse().map_err(|_| "write true or false".into()),
        Self::to_string, valid;
    String: "text", [], |text: &str| Ok(text.into()), Self::clone, valid;
    Source: "source", ["direct", "arena", "virtual", "driver"], |text: &str| text.parse().map_err(reason),
        Self::to_string, valid;
    SizeClasses: "classes",
        ["fixed", "power-of-two", "geometric", "geometric:", "multiple:", "exact", "exact:", "tight"],
        |text: &str| text.parse().map_err(reason), Self::to_string, |of: &Self| of.validate().map_err(reason);
    MemoryKind: "memory", ["device", "host", "managed"], memory, memory_text, valid;
}

fn valid<T>(_: &T) -> Result<(), String> {
    Ok(())
}

fn not_bytes(invalid: InvalidAmount) -> String {
    invalid.to_string()
}

fn reason(error: Error) -> String {
    match error {
        Error::Configuration(invalid) => invalid.reason,
        error => error.to_string(),
    }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {}", u32::MAX))
}

fn cap(text: &str) -> Result<Option<u64>, String> {
    match text {
        "unlimited" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| "write a whole number, or unlimited".into()),
    }
}

fn memory(text: &str) -> Result<MemoryKind, String> {
    let placements = [Placement::Device, Placement::HostVisible, Placement::Managed];
    let kinds = placements.map(MemoryKind::from);
    kinds.into_iter().find(|kind| memory_text(kind) == text).ok_or("use device, host or managed".into())
}

fn memory_text(kind: &MemoryKind) -> String {
    let name = match kind.placement {
        Placement::HostVisible => "host",
        Placement::Managed => "managed",
        _ => "device",
    };
    name.into()
}
