//! Small facts of the CUDA driver: the result of a call in a given state.
//!
//! They are checked against the driver that the loader finds, NVIDIA's or the simulated one. Each runs in a
//! process of its own, because some of them lose their context.
//! `facts [--list] [part of a name]`.

mod capture;
mod contexts;
mod devices;
mod driver;
mod errors;
mod events;
mod fact;
mod forks;
mod graphs;
mod host_memory;
mod launches;
mod memory;
mod pools;
mod run;
mod scene;
mod sharing;
mod streams;
mod virtual_memory;
mod waits;

use fact::Fact;
use std::process::ExitCode;

fn main() -> ExitCode {
    run::main()
}

fn all() -> Vec<&'static Fact> {
    [
        errors::FACTS,
        devices::FACTS,
        contexts::FACTS,
        streams::FACTS,
        events::FACTS,
        memory::FACTS,
        host_memory::FACTS,
        pools::FACTS,
        virtual_memory::FACTS,
        sharing::FACTS,
        capture::FACTS,
        forks::FACTS,
        graphs::FACTS,
        launches::FACTS,
        waits::FACTS,
    ]
    .into_iter()
    .flatten()
    .collect()
}
