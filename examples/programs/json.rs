//! Statistics as JSON, and live bytes by holder.
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(&HostDevice::new())?;
    let stats = serde_json::to_value(pool.stats())?;
    println!("{}\n{stats:#}", pool.report());
    Ok(())
}
