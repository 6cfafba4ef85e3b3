//! One operation of a history.

use vrampool::arena::Zone;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Allocate { bytes: u64, alignment: u64, region: Zone },
    Free { which: usize },
    FreeStale { which: usize },
    Resize { which: usize, bytes: u64 },
    Begin { which: usize },
    Commit { which: usize },
    Cancel { which: usize },
    Pass { budget: u64, fails_at: usize },
    Release,
    SetCapacity { bytes: u64 },
    Reset,
}

impl Operation {
    /// Any 6 bytes are an operation.
    pub(crate) fn decode([kind, low, high, mantissa, shift, more]: [u8; 6]) -> Self {
        let which = usize::from(low) | usize::from(high) << 8;
        // Of all magnitudes, or so close together that an arena has to search among them.
        let bytes = match shift {
            0..128 => (u64::from(mantissa) + 1) << (shift % 12),
            _ => (1 << (13 + shift % 4)) + u64::from(mantissa),
        };
        match kind % 64 {
            0..=23 => Self::Allocate {
                bytes,
                // Seldom above the arena's alignment, seldom wrong.
                alignment: match more % 16 {
                    0..=3 => 1 << (more / 16),
                    4 => u64::from(more),
                    _ => 1,
                },
                region: if which % 8 == 0 { Zone::Stable } else { Zone::Dynamic },
            },
            24..=41 => Self::Free { which },
            42 => Self::FreeStale { which },
            43..=45 => Self::Resize { which, bytes },
            46..=53 => Self::Begin { which },
            54..=55 => Self::Commit { which },
            56 => Self::Cancel { which },
            57..=58 => Self::Pass { budget: bytes << (more % 8), fails_at: which % 32 },
            59..=60 => Self::Release,
            61..=62 => Self::SetCapacity { bytes: bytes << (more % 8) },
            _ if more < 16 => Self::Reset,
            _ => Self::Release,
        }
    }
}
