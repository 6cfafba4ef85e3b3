//! One operation of a history.

use vrampool::arena::Zone;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Allocate { bytes: u64, region: Zone },
    Free { which: usize },
    FreeStale { which: usize },
    Begin { which: usize },
    Commit { which: usize },
    Cancel { which: usize },
    Pass { budget: u64, fails_at: usize },
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
            0..=23 => {
                Self::Allocate { bytes, region: if which % 8 == 0 { Zone::Stable } else { Zone::Dynamic } }
            }
            24..=44 => Self::Free { which },
            45 => Self::FreeStale { which },
            46..=53 => Self::Begin { which },
            54..=55 => Self::Commit { which },
            56 => Self::Cancel { which },
            57..=62 => Self::Pass { budget: bytes << (more % 8), fails_at: which % 32 },
            _ if more < 16 => Self::Reset,
            _ => Self::FreeStale { which },
        }
    }
}
