//! Figures as text, a line each with names and units, and as JSON.

use vrampool_sleep::{SleepReport, SleepUsage};

#[test]
fn figures_are_a_line() {
    let (mut sleep, mut usage) = (SleepReport::default(), SleepUsage::default());
    (sleep.physical_bytes, sleep.copied_bytes, usage.live_bytes) = (3 << 20, 1 << 20, 5);
    assert_eq!(sleep.to_string(), "physical 3.0 MiB, copied 1.0 MiB, discarded 0 B");
    sleep.no_op = true;
    assert!(sleep.to_string().ends_with(" (already so)"));
    assert_eq!(usage.to_string(), "mapped 0 B, live 5 B, asleep 0 B, backups 0 B, addresses 0 B");
}

#[cfg(feature = "serde")]
#[test]
fn a_report_is_a_record() {
    let json = serde_json::to_value(SleepReport::default()).expect("JSON");
    assert_eq!(json["physical_bytes"], 0, "{json}");
}
