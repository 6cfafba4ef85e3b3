//! Scenes of a broker and of a stager.

use crate::scene::{KIB, Outcome, Scene, after_a_fault, is_all, on_pool};
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Pool};
use vrampool_broker::{ArrayRequest, Broker, Client, Share, Stager};

/// All scenes.
pub(crate) const SCENES: [Scene; 2] =
    [Scene { name: "stager", run: stager }, Scene { name: "broker run", run: broker_run }];

fn stager(device: &CudaDevice) -> Outcome {
    let pool = Pool::builder(device).build()?;
    let stager = Stager::new(device);
    let staged = |value: u8, [one, two]: [&CudaStream; 2]| -> Outcome {
        let mut buffer = pool.allocate(32 * KIB, one)?;
        let bytes = vec![value; 32 * KIB as usize];
        let region = buffer.on_mut(one)?;
        let _ = stager.upload(&bytes, region, one)?;
        let mut read = vec![0; bytes.len()];
        buffer.read(&mut read, two)?;
        Ok(read == bytes)
    };
    let outcome = on_pool(&pool, |[one, two]| {
        let mut right = true;
        for value in 1..=4 {
            right &= staged(value, [&one, &two])?;
        }
        stager.trim();
        Ok(right)
    });
    if outcome.is_err() {
        let [stream] = after_a_fault(device);
        assert!(staged(5, [&stream, &stream]).expect("the stager serves on"));
    }
    outcome
}

fn broker_run(device: &CudaDevice) -> Outcome {
    let broker = Broker::builder(&Pool::new(device)?).staging(16 * KIB, 64 * KIB).build()?;
    // A granule for each of two streams; and more than goes through at once.
    let share = 2 * broker.granularity();
    let runs = share * 2 / 5;
    let client = broker.register(Client::new("client").share(Share::Bytes(share)))?;
    let array = client.queue(ArrayRequest::in_out("x", [runs], 4))?;
    let run = || -> Outcome {
        broker.set_streams("default", 2)?;
        let plan = broker.commit("default")?;
        let mut bytes = vec![9; 4 * runs as usize];
        let execution = plan.execution().exchange(array, &mut bytes[..]);
        execution.run(|chunk, stream| Ok(device.fill(stream, chunk.region_mut(array)?, 7)?))?;
        Ok(is_all(&bytes, 7))
    };
    let outcome = run();
    if outcome.is_err() {
        let _ = after_a_fault(device);
        assert!(run().expect("the broker serves on"));
    }
    outcome
}
