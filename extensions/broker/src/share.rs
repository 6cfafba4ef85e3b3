//! Shares: the part of the device that each client may hold. Numbers only.

use crate::id::ClientId;
use std::collections::BTreeMap;

/// The fraction that fixed shares must leave to automatic clients, as in CuBIE.
pub(crate) const FLOOR: f64 = 0.05;
/// Tolerance for sums of fractions.
const SLACK: f64 = 1e-9;

/// The part of a device that a client may hold.
///
/// While all clients are automatic, each may take all free memory of the device. While a client has another share, a
/// group holds no more than the shares of its clients together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Share {
    /// An equal part of the rest beside fixed shares, together with the other automatic clients.
    #[default]
    Auto,
    /// This part of the device's memory, greater than 0 and at most 1. 0 means automatic, as in CuBIE.
    Fixed(f64),
    /// This many bytes, from 1 to the device's total.
    Bytes(u64),
}

/// The reason that a share is rejected.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// Not a valid part of a device.
    #[error(
        "a share of {share} is invalid; give a fraction of the device between 0 and 1, or 1 byte up to the whole device"
    )]
    #[non_exhaustive]
    OutOfRange {
        /// The share, as a fraction of the device.
        share: f64,
    },
    /// More than the remaining part.
    #[error("fixed shares would add up to {sum:.3} of the device, which exceeds 1; give smaller shares")]
    #[non_exhaustive]
    ExceedsTotal {
        /// The sum of fixed shares, including the requested one.
        sum: f64,
    },
    /// Fixed shares would leave less than 5 % of the device to automatic clients.
    #[error(
        "fixed shares of {sum:.3} in total leave automatic clients less than {FLOOR} of the device; give smaller fixed shares, or \
         register no automatic clients"
    )]
    #[non_exhaustive]
    BelowFloor {
        /// The sum of fixed shares, including the requested one.
        sum: f64,
    },
}

/// All shares of a device.
#[derive(Debug)]
pub(crate) struct Shares {
    total: u64,
    /// As fractions of the device; 0 means automatic.
    shares: BTreeMap<ClientId, f64>,
}

impl Shares {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, shares: BTreeMap::new() }
    }

    /// Sets the share of `client`; an error has no effect. Returns the sum of fixed shares if they leave less
    /// than the floor and that is allowed.
    pub(crate) fn set(&mut self, client: ClientId, share: Share) -> Result<Option<f64>, ShareError> {
        let fraction = self.fraction(share);
        // 0 bytes are invalid, while a fraction of 0 means automatic in CuBIE.
        if !(0.0..=1.0).contains(&fraction) || share == Share::Bytes(0) {
            return Err(ShareError::OutOfRange { share: fraction });
        }
        let others = || self.shares.iter().filter(|&(&id, _)| id != client).map(|(_, &share)| share);
        let other_automatic = others().any(|share| share == 0.0);
        let sum = others().sum::<f64>() + fraction;
        let is_automatic = fraction == 0.0;
        if sum > 1.0 + SLACK {
            return Err(ShareError::ExceedsTotal { sum });
        }
        // An automatic client needs more than the floor; fixed shares may leave exactly the floor.
        let leaves_too_little =
            if is_automatic { sum >= 1.0 - FLOOR - SLACK } else { sum > 1.0 - FLOOR + SLACK };
        if leaves_too_little && (is_automatic || other_automatic) {
            return Err(ShareError::BelowFloor { sum });
        }
        self.shares.insert(client, fraction);
        Ok((leaves_too_little && !is_automatic).then_some(sum))
    }

    /// Whether `client` has exactly this share.
    pub(crate) fn has(&self, client: ClientId, share: Share) -> bool {
        self.shares.get(&client) == Some(&self.fraction(share)) && share != Share::Bytes(0)
    }

    /// Returns a share as a fraction of the device; 0 means automatic.
    fn fraction(&self, share: Share) -> f64 {
        match share {
            Share::Auto => 0.0,
            Share::Fixed(fraction) => fraction,
            Share::Bytes(bytes) => bytes as f64 / self.total.max(1) as f64,
        }
    }

    pub(crate) fn remove(&mut self, client: ClientId) {
        self.shares.remove(&client);
    }

    pub(crate) fn fixed_sum(&self) -> f64 {
        self.shares.values().sum()
    }

    /// Whether a client has a share that is not automatic, so that shares are enforced.
    pub(crate) fn are_enforced(&self) -> bool {
        self.fixed_sum() > 0.0
    }

    pub(crate) fn automatic_sum(&self) -> f64 {
        (1.0 - self.fixed_sum()).max(0.0)
    }

    /// Returns the part of the device that `client` may hold; 0 without a share.
    pub(crate) fn proportion(&self, client: ClientId) -> f64 {
        match self.shares.get(&client) {
            Some(0.0) => {
                let automatic = self.shares.values().filter(|share| **share == 0.0);
                self.automatic_sum() / automatic.count() as f64
            }
            share => share.copied().unwrap_or(0.0),
        }
    }

    /// Returns the same in bytes.
    pub(crate) fn cap(&self, client: ClientId) -> u64 {
        // A share in bytes is returned exactly.
        let bytes = self.proportion(client) * self.total as f64;
        let nearest = bytes.round();
        (if (bytes - nearest).abs() < 1e-3 { nearest } else { bytes }) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn id(number: u64) -> ClientId {
        ClientId(number)
    }

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn test_pool_proportions() {
        let mut shares = Shares::new(GIB);
        assert_eq!(shares.set(id(1), Share::Auto), Ok(None));
        close(shares.proportion(id(1)), 1.0);
        assert_eq!(shares.set(id(2), Share::Auto), Ok(None));
        close(shares.proportion(id(1)), 0.5);
        close(shares.proportion(id(2)), 0.5);
        assert_eq!(shares.set(id(3), Share::Fixed(0.5)), Ok(None));
        close(shares.proportion(id(3)), 0.5);
        close(shares.proportion(id(1)), 0.25);
        assert_eq!(shares.set(id(3), Share::Fixed(0.4)), Ok(None));
        close(shares.automatic_sum(), 0.6);
        // To automatic and back.
        assert_eq!(shares.set(id(3), Share::Auto), Ok(None));
        close(shares.proportion(id(3)), 1.0 / 3.0);
        assert_eq!(shares.set(id(1), Share::Fixed(0.3)), Ok(None));
        close(shares.proportion(id(2)), 0.35);
        assert!(matches!(shares.set(id(4), Share::Fixed(0.8)), Err(ShareError::ExceedsTotal { .. })));
        close(shares.fixed_sum(), 0.3);
    }

    /// CuBIE's #567: a client's previous share was counted in addition to its new one.
    #[test]
    fn test_set_manual_proportion_from_auto_pool() {
        let mut shares = Shares::new(GIB);
        shares.set(id(1), Share::Fixed(0.6)).expect("a share");
        shares.set(id(2), Share::Auto).expect("a share");
        shares.set(id(2), Share::Fixed(0.3)).expect("it leaves the automatic ones");
        close(shares.fixed_sum(), 0.9);
        shares.set(id(1), Share::Fixed(0.65)).expect("its own 0.6 do not count beside");
        close(shares.fixed_sum(), 0.95);
    }

    #[test]
    fn test_rebalance_auto_pool() {
        let mut shares = Shares::new(GIB);
        for number in 1..=4 {
            shares.set(id(number), Share::Auto).expect("a share");
        }
        shares.set(id(5), Share::Fixed(0.2)).expect("a share");
        close(shares.proportion(id(1)), 0.2);
        shares.remove(id(5));
        close(shares.proportion(id(1)), 0.25);
        shares.remove(id(4));
        close(shares.proportion(id(1)), 1.0 / 3.0);
    }

    #[test]
    fn test_add_manual_proportion_exceeds_total() {
        let mut shares = Shares::new(GIB);
        shares.set(id(1), Share::Fixed(0.7)).expect("a share");
        assert!(matches!(shares.set(id(2), Share::Fixed(0.4)), Err(ShareError::ExceedsTotal { .. })));
        close(shares.fixed_sum(), 0.7);
    }

    #[test]
    fn test_add_manual_proportion_warns_low_autopool() {
        let mut shares = Shares::new(GIB);
        shares.set(id(1), Share::Fixed(0.5)).expect("a share");
        assert_eq!(shares.set(id(2), Share::Fixed(0.45)), Ok(None), "just the floor is left");
        let warned = shares.set(id(2), Share::Fixed(0.47)).expect("no client is automatic");
        assert!(warned.is_some());
        let mut shares = Shares::new(GIB);
        shares.set(id(1), Share::Auto).expect("a share");
        assert!(matches!(shares.set(id(2), Share::Fixed(0.97)), Err(ShareError::BelowFloor { .. })));
        close(shares.proportion(id(1)), 1.0);
    }

    #[test]
    fn test_add_auto_proportion_raises_when_pool_too_small() {
        for fixed in [0.95, 0.99, 1.0] {
            let mut shares = Shares::new(GIB);
            shares.set(id(1), Share::Fixed(fixed)).expect("a share");
            assert!(matches!(shares.set(id(2), Share::Auto), Err(ShareError::BelowFloor { .. })), "{fixed}");
            close(shares.proportion(id(2)), 0.0);
        }
    }

    /// CuBIE added the client before it raised the error.
    #[test]
    fn test_register_proportion_out_of_range() {
        let mut shares = Shares::new(GIB);
        for share in [
            Share::Fixed(-0.1),
            Share::Fixed(1.1),
            Share::Fixed(f64::NAN),
            Share::Bytes(0),
            Share::Bytes(GIB + 1),
        ] {
            assert!(matches!(shares.set(id(1), share), Err(ShareError::OutOfRange { .. })), "{share:?}");
        }
        assert!(shares.shares.is_empty());
    }

    #[test]
    fn test_cap() {
        let mut shares = Shares::new(1000);
        shares.set(id(1), Share::Fixed(0.3)).expect("a share");
        shares.set(id(2), Share::Auto).expect("a share");
        assert_eq!((shares.cap(id(1)), shares.cap(id(2)), shares.cap(id(3))), (300, 700, 0));
        let mut shares = Shares::new(80 * GIB - 7);
        shares.set(id(1), Share::Bytes(12_345_678_901)).expect("a share");
        assert_eq!(shares.cap(id(1)), 12_345_678_901);
        shares.set(id(2), Share::Fixed(0.0)).expect("0 is automatic");
        assert!(shares.cap(id(2)) > 60 * GIB);
    }
}
