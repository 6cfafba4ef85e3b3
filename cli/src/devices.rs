//! `vrampool devices`: available devices, and why each other backend is unavailable.

use crate::stdout::print;
use crate::table::{human, table};
use clap::Args;
use serde_json::{Value, json};
use std::error::Error;
use vrampool::any::{self, Devices};

/// The environment variable that names the device of `auto`.
const VARIABLE: &str = "VRAMPOOL_BACKEND";

/// Flags of `vrampool devices`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Prints the available devices.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let devices = any::devices();
    let auto = auto(&devices);
    let text = if arguments.json { json(&devices, &auto).to_string() } else { table_of(&devices, &auto) };
    print(text)
}

/// The device that `auto` opens in this environment, if there is one; or why it opens none.
type Auto = Result<Option<String>, vrampool::Error>;

fn auto(devices: &Devices) -> Auto {
    let best = devices.best().map(|best| best.name.clone());
    Ok(match any::from_environment()? {
        None => best,
        // It opened, so the variable is a name.
        Some(_) => match std::env::var(VARIABLE).unwrap_or_default().trim() {
            "auto" => best,
            name => Some(name.to_owned()),
        },
    })
}

fn json(devices: &Devices, auto: &Auto) -> Value {
    let there = devices.there.iter().map(|device| {
        json!({
            "name": device.name,
            "backend": device.backend,
            "device": device.device,
            "kind": format!("{:?}", device.kind).to_lowercase(),
            "total_bytes": device.total_bytes.unwrap_or(0),
        })
    });
    let absent = devices.absent.iter();
    let absent =
        absent.map(|absent| json!({ "backend": absent.backend, "reason": absent.reason.to_string() }));
    let mut listing = json!({
        "devices": there.collect::<Vec<_>>(),
        "unavailable": absent.collect::<Vec<_>>(),
        "auto": auto.as_ref().ok(),
    });
    if let Err(error) = auto {
        listing["auto_fails"] = error.to_string().into();
    }
    listing
}

fn table_of(devices: &Devices, auto: &Auto) -> String {
    let rows = devices.there.iter().map(|device| {
        let kind = format!("{:?}", device.kind).to_lowercase();
        let memory = device.total_bytes.filter(|bytes| *bytes > 0).map_or_else(|| "unknown".into(), human);
        [device.name.clone(), device.device.clone(), kind, memory]
    });
    let mut text = table(Some(["name", "device", "kind", "memory"]), 0..3, rows) + "\n";
    match auto {
        Ok(Some(auto)) if std::env::var_os(VARIABLE).is_some_and(|name| !name.is_empty()) => {
            text += &format!("\n`auto` is {auto}, by {VARIABLE}.");
        }
        Ok(Some(auto)) => text += &format!("\n`auto` is {auto}."),
        Ok(None) => {}
        Err(reason) => text += &format!("\n`auto` opens no device: {reason}"),
    }
    for absent in &devices.absent {
        text += &format!("\n{}", absent.reason);
    }
    text
}
