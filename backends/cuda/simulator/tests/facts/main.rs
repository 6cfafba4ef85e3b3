//! Small facts of the CUDA driver: what a call returns in which state.
//!
//! They are checked against the driver that the system finds, NVIDIA's or its simulation. Each runs in a process of its
//! own, because some lose their context. `facts [--json FILE] [--list] [part of a name]`.

mod capture;
mod contexts;
mod devices;
mod driver;
mod errors;
mod events;
mod fact;
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
        graphs::FACTS,
        launches::FACTS,
        waits::FACTS,
    ]
    .into_iter()
    .flatten()
    .collect()
}
