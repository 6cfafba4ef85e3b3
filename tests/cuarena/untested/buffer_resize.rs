//! A block of another length: with its data, or as it was.

use super::*;

#[test]
fn a_failure_keeps_the_old_block() {
    let setup = setup(MB);
    let (mut buffer, _wall) = (setup.filled(600_000, 1), setup.allocate(64));
    for bytes in [700_000, MB + 1, u64::MAX / 2] {
        assert!(buffer.resize(bytes, &setup.stream).expect_err("no hole").is_out_of_memory());
    }
    assert!(matches!(
        buffer.resize(u64::MAX, &setup.stream).as_ref().err().and_then(Error::arena),
        Some(ArenaError::Overflow { .. })
    ));
    assert!(holds(&buffer, &setup.stream, 1));
    assert_eq!(setup.arena.used(), buffer.capacity() + 64);
}
