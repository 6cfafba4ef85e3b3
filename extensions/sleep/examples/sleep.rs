//! A model that sleeps between two bursts of work: its memory returns to the device, and its weights are copied to
//! the host and return to the same addresses.

use vrampool::{Backend, any};
use vrampool_sleep::{Error, Sleeper, Wake};

const WEIGHTS: u64 = 64 << 20;
const KV_CACHE: u64 = 256 << 20;

fn main() -> Result<(), Error> {
    let device = any::open("auto")?;
    let stream = device.create_stream()?;
    let sleeper = Sleeper::new(&device)?;
    println!("on {}", device.properties().name);

    // Memory has the tag of the innermost scope of its thread, or the tag that is named.
    let mut weights = {
        let _scope = sleeper.tag("weights");
        sleeper.allocate(WEIGHTS, &stream)?
    };
    let kv_cache = sleeper.allocate_tagged(KV_CACHE, "kv_cache", &stream)?;
    weights.write(&vec![7; WEIGHTS as usize], &stream)?;

    // Contents of `weights` are kept on the host, those of `kv_cache` are not. Waits for pending work.
    let report = sleeper.sleep(&["weights"])?;
    println!("{} bytes are free, {} are on the host", report.physical_bytes, report.copied_bytes);

    // The weights first, so that they can be checked or updated before the cache takes memory.
    let _report = sleeper.wake_up(Wake::Tags(&["weights"]))?;
    let mut first = [0; 16];
    weights.read(&mut first, &stream)?;
    assert_eq!(first, [7; 16]);
    let _report = sleeper.wake_up(Wake::All)?;
    drop(kv_cache);
    Ok(())
}
