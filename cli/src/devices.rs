//! `vrampool devices`: available devices, and why each other backend is unavailable.

use crate::stdout::print;
use crate::table::{human, table};
use clap::Args;
use serde::Serialize;
use std::error::Error;
use vrampool::any::{self, AnyDevice, Devices};
use vrampool::backend::DeviceKind;

/// The environment variable that names the device of `auto`.
const VARIABLE: &str = "VRAMPOOL_BACKEND";

/// Flags of `vrampool devices`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// The JSON object.
#[derive(Debug, Serialize)]
struct Listing {
    devices: Vec<Row>,
    unavailable: Vec<Unavailable>,
    /// The device that `auto` opens in this environment.
    auto: Option<String>,
    /// Why `auto` opens none.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_fails: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    backend: &'static str,
    device: String,
    kind: &'static str,
    total_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Unavailable {
    backend: &'static str,
    reason: String,
}

/// Prints the available devices.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let listing = Listing::new(any::devices(), any::from_environment());
    let text = if arguments.json { serde_json::to_string(&listing)? } else { listing.table() };
    print(text)
}

impl Listing {
    /// `chosen` is the device that the environment names.
    fn new(devices: Devices, chosen: Result<Option<AnyDevice>, vrampool::Error>) -> Self {
        let best = devices.best().map(|best| best.name.clone());
        let (auto, auto_fails) = match chosen {
            Ok(None) => (best, None),
            // It opened, so the variable is a name.
            Ok(Some(_)) => match std::env::var(VARIABLE).unwrap_or_default().trim() {
                "auto" => (best, None),
                name => (Some(name.to_owned()), None),
            },
            Err(error) => (None, Some(error.to_string())),
        };
        let row = |device: any::DeviceListing| Row {
            name: device.name,
            backend: device.backend,
            device: device.device,
            kind: match device.kind {
                DeviceKind::Discrete => "discrete",
                DeviceKind::Integrated => "integrated",
                DeviceKind::Cpu => "cpu",
                _ => "other",
            },
            total_bytes: device.total_bytes.unwrap_or(0),
        };
        let unavailable =
            |absent: any::Absent| Unavailable { backend: absent.backend, reason: absent.reason.to_string() };
        Self {
            devices: devices.there.into_iter().map(row).collect(),
            unavailable: devices.absent.into_iter().map(unavailable).collect(),
            auto,
            auto_fails,
        }
    }

    fn table(&self) -> String {
        let rows = self.devices.iter().map(|row| {
            let memory = if row.total_bytes == 0 { "unknown".into() } else { human(row.total_bytes) };
            [row.name.clone(), row.device.clone(), row.kind.into(), memory]
        });
        let mut text = table(Some(["name", "device", "kind", "memory"]), 0..3, rows) + "\n";
        match (&self.auto, &self.auto_fails) {
            (Some(auto), _) if std::env::var_os(VARIABLE).is_some_and(|name| !name.is_empty()) => {
                text += &format!("\n`auto` is {auto}, by {VARIABLE}.");
            }
            (Some(auto), _) => text += &format!("\n`auto` is {auto}."),
            (None, Some(reason)) => text += &format!("\n`auto` opens no device: {reason}"),
            (None, None) => {}
        }
        for absent in &self.unavailable {
            text += &format!("\n{}", absent.reason);
        }
        text
    }
}
