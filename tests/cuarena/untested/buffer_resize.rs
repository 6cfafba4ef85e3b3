//! A block of another length: with its data, in place or elsewhere, or as it was.

use super::*;

#[test]
fn it_grows_in_place_with_its_data() {
    let setup = setup(MB);
    let mut buffer = setup.filled(1000, 1);
    buffer.resize(500_000, &setup.stream).expect("memory");
    assert_eq!((buffer.offset().expect("live"), setup.device.faults().calls(Call::Copy)), (0, 0));
    assert!(contents(&buffer, &setup.stream)[..1000] == pattern(1, 1000));
    assert_eq!(setup.arena.used(), buffer.capacity());
    buffer.resize(MB, &setup.stream).expect("to the last byte");
    assert_eq!(setup.arena.available(Zone::Dynamic), 0);
}

#[test]
fn it_grows_by_moving_with_its_data() {
    let setup = setup(MB);
    let (mut buffer, wall) = (setup.filled(100_000, 1), setup.filled(64, 2));
    buffer.resize(200_000, &setup.stream).expect("memory");
    assert!(buffer.offset().expect("live") > wall.offset().expect("live"));
    assert!(contents(&buffer, &setup.stream)[..100_000] == pattern(1, 100_000));
    assert!(holds(&wall, &setup.stream, 2));
    assert_eq!(setup.arena.used(), buffer.capacity() + wall.capacity(), "the old block is free");
    check(&setup.arena);
}

#[test]
fn it_shrinks_and_grows_back_with_its_data() {
    let setup = setup(MB);
    let (mut buffer, _wall) = (setup.filled(100_000, 1), setup.allocate(1));
    buffer.resize(10, &setup.stream).expect("it fits");
    assert_eq!(buffer.len(), 10);
    assert!(contents(&buffer, &setup.stream) == pattern(1, 100_000)[..10]);
    buffer.resize(50_000, &setup.stream).expect("memory");
    assert!(contents(&buffer, &setup.stream)[..10] == pattern(1, 100_000)[..10]);
}

#[test]
fn a_failure_keeps_the_old_block() {
    let setup = setup(MB);
    let (mut buffer, _wall) = (setup.filled(600_000, 1), setup.allocate(64));
    for bytes in [700_000, MB + 1, u64::MAX / 2] {
        assert!(buffer.resize(bytes, &setup.stream).expect_err("no hole").is_out_of_memory());
        assert!(buffer.resize_discarding(bytes, &setup.stream).is_err());
    }
    assert!(matches!(
        buffer.resize(u64::MAX, &setup.stream).as_ref().err().and_then(Error::arena),
        Some(ArenaError::Overflow { .. })
    ));
    assert!(holds(&buffer, &setup.stream, 1));
    assert_eq!(setup.arena.used(), buffer.capacity() + 64);
}

#[test]
fn discarding_copies_nothing() {
    let setup = setup(MB);
    let (mut buffer, _wall) = (setup.filled(100_000, 1), setup.allocate(64));
    buffer.resize_discarding(200_000, &setup.stream).expect("memory");
    assert_eq!((buffer.len(), setup.device.faults().calls(Call::Copy)), (200_000, 0));
    assert_eq!(setup.arena.used(), buffer.capacity() + 64);
}
