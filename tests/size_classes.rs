//! Size classes: requests round up to netcl's sizes, in order, with bounded padding; texts are read as they are written.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vrampool::{SizeClasses, SizeTable};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn golden_vectors_of_netcl() {
    let table: [(u64, [u64; 4]); 9] = [
        (0, [1024, 1024, 1024, 1]),
        (1025, [4096, 4096, 4096, 2048]),
        (65537, [262_144, 262_144, 262_144, 131_072]),
        (1_048_577, [1_179_648, 4_194_304, 4_194_304, 2_097_152]),
        (2_097_153, [2_359_296, 4_194_304, 4_194_304, 4_194_304]),
        (40_000_000, [41_943_040, 67_108_864, 67_108_864, 67_108_864]),
        (102_760_448, [109_051_904, 268_435_456, 134_217_728, 134_217_728]),
        (268_435_457, [301_989_888, 536_870_912, 301_989_888, 536_870_912]),
        (1_073_741_825, [1_207_959_552, 2_147_483_648, 1_107_296_256, 2_147_483_648]),
    ];
    let modes = [
        SizeClasses::GEOMETRIC,
        SizeClasses::Fixed,
        SizeClasses::Multiple(32 * MIB),
        SizeClasses::PowerOfTwo,
    ];
    for (bytes, classes) in table {
        for (mode, class) in modes.iter().zip(classes) {
            assert_eq!(mode.round(bytes), Some(class), "{bytes} bytes, {mode}");
        }
    }
}

#[test]
fn the_ten_fixed_buckets() {
    let mut buckets: Vec<u64> = (0..=28).filter_map(|shift| SizeClasses::Fixed.round(1 << shift)).collect();
    buckets.dedup();
    assert_eq!(buckets, (0..10).map(|n| KIB << (2 * n)).collect::<Vec<_>>());
}

#[test]
fn rules_without_classes_round_to_nothing() {
    for classes in
        [SizeClasses::Geometric { per_doubling: 0, from: 1 }, SizeClasses::Multiple(0), SizeClasses::Exact(0)]
    {
        assert_eq!(classes.round(100), None, "{classes}");
    }
}

#[test]
fn rules_without_classes_are_refused() {
    for text in [
        "exact:0",
        "multiple:0",
        "geometric:0",
        "geometric:3",
        "geometric:8:4",
        "",
        "fixed:1",
        "exact:x",
        "table:64",
    ] {
        let error = text.parse::<SizeClasses>().expect_err(text);
        assert!(error.to_string().contains("size_classes"), "{error}");
    }
}

/// Sizes that no size of the table serves have 8 classes a power of two, and multiples of 512 bytes below 4 KiB.
#[test]
fn the_general_rule_of_a_table() {
    let table = SizeClasses::Table(SizeTable::new([]));
    for (bytes, class) in [(0, 512), (513, 1024), (4096, 4096), (4097, 4608), (40_000_000, 41_943_040)] {
        assert_eq!(table.round(bytes), Some(class));
    }
    assert_eq!((table.round(u64::MAX), table.round(15 << 60)), (None, Some(15 << 60)));
}

#[test]
fn the_same_sizes_are_the_same_table_and_clones_share_them() {
    let one = SizeTable::new([4096, 512, 4096]);
    let two = SizeTable::new([512, 4096]);
    assert_eq!(one, two);
    assert_eq!(one.sizes(), [512, 4096]);
    assert_ne!(one, SizeTable::new([512]));
    assert_eq!(format!("{one:?}"), "SizeTable([512, 4096])");
    assert!(std::ptr::eq(one.sizes(), one.clone().sizes()) && !std::ptr::eq(one.sizes(), two.sizes()));
}

fn any_table() -> impl Strategy<Value = BTreeSet<u64>> {
    let size = prop_oneof![any_bytes(), 1u64..100_000];
    proptest::collection::btree_set(size.prop_map(|size| size.max(1)), 0..40)
}

fn any_classes() -> impl Strategy<Value = SizeClasses> {
    prop_oneof![
        Just(SizeClasses::Fixed),
        Just(SizeClasses::PowerOfTwo),
        Just(SizeClasses::Tight),
        (0u32..6, 6u32..32)
            .prop_map(|(n, from)| SizeClasses::Geometric { per_doubling: 1 << n, from: 1 << from }),
        (1u64..1 << 34).prop_map(|from| SizeClasses::Geometric { per_doubling: 1, from }),
        (1u64..1 << 34).prop_map(SizeClasses::Multiple),
        (1u64..1 << 34).prop_map(SizeClasses::Exact),
        proptest::collection::vec(1u64..1 << 34, 0..20)
            .prop_map(|sizes| SizeClasses::Table(SizeTable::new(sizes))),
    ]
}

fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift),
        Just(u64::MAX)
    ]
}

proptest! {
    #[test]
    fn a_class_holds_its_request_and_rounding_keeps_order(
        classes in any_classes(), one in any_bytes(), two in any_bytes(),
    ) {
        let (small, large) = (one.min(two), one.max(two));
        match (classes.round(small), classes.round(large)) {
            (Some(a), Some(b)) => prop_assert!(small <= a && large <= b && a <= b),
            (None, Some(_)) => prop_assert!(false, "{} has no class but {} has", small, large),
            _ => {}
        }
    }

    #[test]
    fn a_class_is_its_own_class(classes in any_classes(), bytes in any_bytes()) {
        if let Some(class) = classes.round(bytes) {
            prop_assert_eq!(classes.round(class), Some(class));
        }
    }

    #[test]
    fn the_padding_is_bounded(bytes in 1u64..1 << 50) {
        let ratio = |classes: SizeClasses| classes.round(bytes).map(|class| class as f64 / bytes as f64);
        if bytes > MIB {
            prop_assert!(ratio(SizeClasses::GEOMETRIC) <= Some(1.125));
        }
        if bytes > KIB {
            prop_assert!(ratio(SizeClasses::Fixed) < Some(4.0));
        }
        prop_assert!(ratio(SizeClasses::PowerOfTwo) < Some(2.0));
        if bytes > 8 * KIB {
            prop_assert!(ratio(SizeClasses::Tight) <= Some(1.125));
        }
        if bytes > MIB {
            prop_assert!(SizeClasses::Tight.round(bytes) < Some(bytes + 512));
        }
    }

    /// Checked against a linear search.
    #[test]
    fn a_request_gets_the_smallest_size_of_a_table_within_reach(sizes in any_table(), bytes in any_bytes()) {
        let general = SizeClasses::Table(SizeTable::new([])).round(bytes);
        let expected = match (sizes.iter().copied().find(|&size| size >= bytes), general) {
            (Some(size), Some(general)) if u128::from(size) > 4 * u128::from(general) => Some(general),
            (None, general) => general,
            (size, _) => size,
        };
        prop_assert_eq!(SizeClasses::Table(SizeTable::new(sizes)).round(bytes), expected);
    }

    #[test]
    fn sizes_of_a_table_fit_and_the_padding_of_others_is_bounded(sizes in any_table(), bytes in any_bytes()) {
        let table = SizeClasses::Table(SizeTable::new(sizes.iter().copied()));
        for size in &sizes {
            prop_assert_eq!(table.round(*size), Some(*size));
        }
        if let Some(class) = table.round(bytes) {
            // 4 times 9/8.
            prop_assert!(u128::from(class) * 2 <= 9 * u128::from(bytes.max(4096)));
        }
    }

    #[test]
    fn display_and_parse_agree(classes in any_classes()) {
        prop_assume!(!matches!(classes, SizeClasses::Table(_)), "whose text is only the number of its sizes");
        prop_assert_eq!(classes.to_string().parse::<SizeClasses>().ok(), Some(classes));
    }
}
