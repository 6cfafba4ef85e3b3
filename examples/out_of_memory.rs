//! A graceful answer to out-of-memory: halve the batch, and refuse the work only when a single item does not fit.

use vrampool::any::{self, AnyDevice, AnyStream};
use vrampool::{Backend, Error, Pool};

const ITEM: u64 = 4 << 20;

fn main() -> Result<(), Error> {
    let device = any::open("auto")?;
    let stream = device.create_stream()?;
    // A hard cap: bytes taken from the device never exceed it.
    let pool = Pool::builder(&device).limit(64 << 20).build()?;
    let batches = serve(&pool, &stream, 64)?;
    println!("64 items in {batches} batches; {} bytes held at most", pool.stats().peak.held_bytes);

    let refused = serve(&Pool::builder(&device).limit(ITEM / 2).build()?, &stream, 1);
    match refused {
        Err(error) if error.is_out_of_memory() => println!("refused: {error}"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}

/// Computes all items, as many at a time as fit. Returns the number of batches.
fn serve(pool: &Pool<AnyDevice>, stream: &AnyStream, items: u64) -> Result<u64, Error> {
    let (mut left, mut batch, mut batches) = (items, items, 0);
    while left > 0 {
        batch = batch.min(left);
        match compute(pool, stream, batch) {
            Ok(()) => {
                left -= batch;
                batches += 1;
            }
            // The pool has released its idle memory already; a failed call changes nothing.
            Err(error) if error.is_out_of_memory() && batch > 1 => batch /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(batches)
}

/// One batch: its memory is back in the pool when it returns, and on the device in the order of the stream.
fn compute(pool: &Pool<AnyDevice>, stream: &AnyStream, batch: u64) -> Result<(), Error> {
    let mut input = pool.allocate(batch * ITEM, stream)?;
    pool.device().fill(stream, input.on_mut(stream)?, 1)?;
    Ok(())
}
