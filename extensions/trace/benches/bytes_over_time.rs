//! Bytes requested and bytes taken from the device, over the time of a recorded trace: one line of JSON for each of
//! a thousand intervals, with the most of both in it. `plots/bytes_over_time.py` draws them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use vrampool::host::HostDevice;

use vrampool::{Backend, Pool, Source};
use vrampool_trace::{Op, Trace};

const INTERVALS: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/traces");
    for name in ["gpt2", "multistream"] {
        let trace = Trace::read(format!("{folder}/{name}.csv.gz"))?;
        let device = HostDevice::builder().memory_limit(1 << 40).build();
        let pool = Pool::builder(&device).source(Source::Virtual).build()?;
        let (mut streams, mut live) = (HashMap::new(), HashMap::new());
        let end = trace.events().iter().map(|event| event.t_us).max().unwrap_or(0);
        let mut most = HashMap::<u64, (u64, u64)>::new();
        for event in trace.events() {
            let stream = match streams.entry(event.stream) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(device.create_stream()?),
            };
            match event.op {
                Op::Allocate => drop(live.insert(event.id, pool.allocate(event.size, stream)?)),
                Op::Free => {
                    if let Some(buffer) = live.remove(&event.id) {
                        buffer.record_stream(stream)?;
                    }
                }
                _ => {}
            }
            let stats = pool.stats();
            let (requested, reserved) = most.entry(event.t_us * INTERVALS / end.max(1)).or_default();
            *requested = stats.requested_bytes.max(*requested);
            *reserved = stats.reserved_bytes.max(*reserved);
        }
        let mut intervals: Vec<_> = most.into_iter().collect();
        intervals.sort_unstable();
        for (interval, (requested, reserved)) in intervals {
            let t_ms = interval * end / INTERVALS / 1000;
            println!(r#"{{"trace":"{name}","t_ms":{t_ms},"requested":{requested},"reserved":{reserved}}}"#);
        }
    }
    Ok(())
}
