//! The output of the demonstrations fits terminals, pipes and plain ASCII.

use vrampool_test_support::{assert_help_fits, assert_tables_fit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vrampool-demos");

#[test]
fn help_is_wrapped_at_words() {
    // With those of the program.
    assert!(assert_help_fits(PROGRAM) >= 2 * 15);
}

#[test]
fn tables_have_at_most_80_columns() {
    let small = ["solve", "--runs", "52000", "--samples", "16", "--steps", "2", "--share", "512KiB"];
    for arguments in [&["train", "--epochs", "1"][..], &small] {
        assert_tables_fit(PROGRAM, arguments, |_| false);
    }
}
