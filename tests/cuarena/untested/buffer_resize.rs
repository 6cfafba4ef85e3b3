//! A block of another length: with its data, in place or elsewhere, or as it was.

use super::*;

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
