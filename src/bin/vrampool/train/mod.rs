//! Replay.
use crate::pool_options::PoolOptions;
use clap::Args;
/// Flags.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pool: PoolOptions,
}
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let _ = &arguments.pool;
    Ok(())
}
