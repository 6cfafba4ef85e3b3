//! How large a range is, by what was asked for and what is free.

use super::*;

const GIB: u64 = 1 << 30;

fn arena(
    free: u64,
    limit: impl Into<Option<u64>>,
    placement: Placement,
) -> Result<DeviceArena<HostDevice>, Error> {
    let device = HostDevice::builder().kind(DeviceKind::Discrete).memory_limit(free).build();
    DeviceArena::builder(&device).limit(limit).memory(placement).build()
}

#[test]
fn without_a_limit_it_is_free_memory_less_a_margin() {
    for (placement, margin) in
        [(Placement::Device, 256), (Placement::Managed, 256), (Placement::HostVisible, 512)]
    {
        let capacity = |free| arena(free, None, placement).expect("memory").capacity();
        assert_eq!(capacity(GIB), GIB - margin * MB);
        // At the margin and below there is none.
        assert_eq!(capacity(margin * MB + 64), 64);
        assert_eq!(capacity(margin * MB), margin * MB);
        assert_eq!(capacity(MB), MB);
    }
}

#[test]
fn without_a_limit_no_free_memory_is_an_error() {
    assert!(arena(0, None, Placement::Device).is_err());
}

#[test]
fn above_what_is_free_is_an_error() {
    for (free, limit) in [(MB, MB + 1), (MB, u64::MAX), (GIB, 2 * GIB)] {
        let error = arena(free, limit, Placement::Device).expect_err("more than there is");
        assert!(error.is_out_of_memory(), "{error}");
        assert!(error.to_string().contains(&limit.to_string()), "{error}");
    }
}

#[test]
fn a_stable_region_that_leaves_nothing_is_an_error() {
    let device = discrete();
    for stable in [MB, MB - 1, 2 * MB, u64::MAX] {
        let error = DeviceArena::builder(&device).limit(MB).stable_bytes(stable).build();
        assert!(
            matches!(error.as_ref().err().and_then(Error::arena), Some(ArenaError::StableTooLarge { .. })),
            "{error:?}"
        );
    }
    assert_eq!(device.faults().calls(Call::Allocate), 0);
}
