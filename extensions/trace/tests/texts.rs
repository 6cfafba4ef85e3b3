//! Errors as text: an error's cause is in its text or is its `source()`, never both.

use std::error::Error as _;
use std::path::Path;
use vrampool::errors::chain;
use vrampool_test_support::assert_causes_once;
use vrampool_trace::output::Output;
use vrampool_trace::{Trace, fitted};

#[test]
fn errors_of_files_name_a_cause_once() {
    let nowhere = Path::new("/no/such/folder/file");
    let output = Output::create(nowhere).and_then(|output| output.save(b"")).expect_err("no folder");
    let classes = fitted::load(nowhere).expect_err("no file");
    let trace = Trace::read(nowhere).map(drop).expect_err("no file");
    assert_causes_once(&output);
    assert_causes_once(&classes);
    assert_causes_once(&trace);
    let causes = [output.source(), classes.source(), trace.source()];
    for cause in causes {
        let cause = cause.expect("the system's error");
        assert!(cause.is::<std::io::Error>(), "{cause}");
    }
    assert!(chain(&classes).to_string().ends_with("(os error 2)"), "{}", chain(&classes));
}
