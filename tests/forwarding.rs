//! `AnyDevice` and the hooks that wrap others forward every method, those with a default too: a backend's own
//! version of a method is not lost behind the enums.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Methods of the `trait` or `impl` that begins with `head`.
fn methods(file: &str, head: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).expect(file);
    let body = text.split_once(head).unwrap_or_else(|| panic!("{file} has no `{head}`")).1;
    // All of them begin and end in the first column.
    let body = body.split_once("\n}").expect("an end").0;
    let declared = body.lines().filter_map(|line| line.strip_prefix("    fn "));
    declared.map(|line| line.split(['(', '<']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_method_of_the_contract_is_forwarded() {
    let hook = ("hook.rs", "pub trait Hook");
    for (contract, head, forwarding, forwarding_head) in [
        (hook.0, hook.1, "backends/api/src/hook.rs", "impl<H: Hook + ?Sized> Hook for Arc<H>"),
        (hook.0, hook.1, "backends/api/src/hooks.rs", "impl Hook for Hooks"),
        (hook.0, hook.1, "extensions/hooks/src/scoped.rs", "impl Hook for Scoped"),
        ("memory.rs", "pub trait Memory", "src/any/device.rs", "impl Memory for AnyMemory"),
        ("stream.rs", "pub trait Stream", "src/any/device.rs", "impl Stream for AnyStream"),
        ("stream.rs", "pub trait Event", "src/any/device.rs", "impl Event for AnyEvent"),
        ("device.rs", "pub trait Backend", "src/any/device.rs", "impl Backend for AnyDevice"),
        (
            "virtual_memory.rs",
            "pub trait VirtualMemory",
            "src/any/virtual_memory.rs",
            "impl VirtualMemory for AnyDevice",
        ),
    ] {
        let declared = methods(&format!("backends/api/src/{contract}"), head);
        let forwarded = methods(forwarding, forwarding_head);
        assert!(!declared.is_empty(), "{head}");
        let lost: Vec<_> = declared.difference(&forwarded).filter(|name| *name != "is_empty").collect();
        assert!(lost.is_empty(), "{forwarding_head} does not forward {lost:?}");
    }
}
