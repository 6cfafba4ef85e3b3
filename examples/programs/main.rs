//! Common first programs. Each file is complete: imports, device, stream, pool and checks.

mod coming;
mod defaults;
mod faults;
mod generic;
#[cfg(feature = "wgpu")]
mod interop;
mod json;
mod retry;
mod split;
mod step;
mod streams;
mod typed;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    defaults::main()?;
    step::main()?;
    typed::main()?;
    streams::main()?;
    retry::main()?;
    generic::main()?;
    split::main()?;
    #[cfg(feature = "wgpu")]
    interop::main()?;
    json::main()?;
    coming::main()?;
    faults::main()
}
