//! The names of the benchmarks.

use clap::ValueEnum;
use std::fmt;

/// A benchmark. Those of cuArena have its sizes, counts and order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// One buffer of 8 MiB allocated and freed
    #[value(name = "cuarena_1")]
    Cuarena1,
    /// 512 of 1 KiB allocated, then freed in the same order
    #[value(name = "cuarena_2")]
    Cuarena2,
    /// 4 of 1 MiB live, one after the other freed and allocated again
    #[value(name = "cuarena_3")]
    Cuarena3,
    /// One buffer replaced by one of twice its size, 1 MiB to 128 MiB
    #[value(name = "cuarena_4")]
    Cuarena4,
    /// 8 of 32 MiB, every other one freed, the rest moved together; then 64 MiB allocated
    #[value(name = "cuarena_5")]
    Cuarena5,
    /// A pair in the stable region beside one in the dynamic region
    #[value(name = "cuarena_6")]
    Cuarena6,
    /// Buffers that the pool has idle, allocated and dropped by 1 to 16 threads at the same time
    #[value(name = "hit_pair")]
    HitPair,
    /// One of 4 KiB, 64 KiB, 1 MiB allocated and freed by everything there is, a pool's hit and its miss
    /// among them
    #[value(name = "pair")]
    Pair,
    /// Memory of some GiB put to sleep, with its contents on the host, and woken; only if named
    #[value(name = "sleep")]
    Sleep,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}
