//! A report as a line of text with names and units, and as JSON.

use vrampool_sleep::SleepReport;

#[test]
fn a_report_is_a_line() {
    let mut sleep = SleepReport::default();
    (sleep.physical_bytes, sleep.copied_bytes) = (3 << 20, 1 << 20);
    assert_eq!(sleep.to_string(), "physical 3.0 MiB, copied 1.0 MiB, discarded 0 B");
    sleep.no_op = true;
    assert!(sleep.to_string().ends_with(" (already so)"));
}

#[cfg(feature = "serde")]
#[test]
fn a_report_is_a_record() {
    let json = serde_json::to_value(SleepReport::default()).expect("JSON");
    assert_eq!(json["physical_bytes"], 0, "{json}");
}
