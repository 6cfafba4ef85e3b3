//! Size classes that are learned from a program's first steps, saved, and loaded by the next run.

use std::error::Error;
use std::path::Path;
use vrampool::any::{self, AnyDevice, AnyStream};
use vrampool::{Backend, Pool, SizeClasses, SizeTable};
use vrampool_trace::{Recorder, fitted};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("step-{}.classes", std::process::id()));
    let device = any::open("auto")?;
    let stream = device.create_stream()?;

    let classes = learn(&device, &stream)?;
    fitted::save(&classes, &path)?;

    let pool = pool(&device, &path)?;
    train_one_step(&pool, &stream)?;
    println!("classes {:?}: {} bytes held", classes.sizes(), pool.stats().held_bytes);
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Runs the first steps on a pool that is recorded. Its memory is released at the end.
fn learn(device: &AnyDevice, stream: &AnyStream) -> Result<SizeTable, Box<dyn Error>> {
    let recorder = Recorder::new();
    let pool = Pool::builder(device).hook(recorder.hook()).build()?;
    for _ in 0..3 {
        train_one_step(&pool, stream)?;
    }
    Ok(fitted::fit(&recorder.trace("first steps")?.demand(), fitted::DEFAULT_CLASSES))
}

/// The pool of a later run, from the file alone.
fn pool(device: &AnyDevice, path: &Path) -> Result<Pool<AnyDevice>, Box<dyn Error>> {
    let classes = SizeClasses::Table(fitted::load(path)?);
    Ok(Pool::builder(device).size_classes(classes).build()?)
}

/// What the program allocates.
fn train_one_step(pool: &Pool<AnyDevice>, stream: &AnyStream) -> Result<(), vrampool::Error> {
    let weights = pool.allocate(300_000, stream)?;
    let activations = pool.allocate(40_000_000, stream)?;
    drop((weights, activations));
    Ok(())
}
