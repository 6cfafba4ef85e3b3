//! Texts of settings, by their name and kind.

/// Three valid texts of a setting as they are written, for an argument, a variable and a file; and one that is not
/// valid, if there is any.
#[must_use]
pub fn setting_texts(name: &str, kind: &str) -> ([&'static str; 3], Option<&'static str>) {
    match (name, kind) {
        ("limit" | "budget" | "max_cached_bytes", _) => (["64MiB", "96MiB", "128MiB"], Some("101%")),
        (_, "amount") => (["1MiB", "2MiB", "3MiB"], Some("much")),
        (_, "count") => (["7", "8", "9"], Some("-1")),
        (_, "switch") => (["true", "false", "true"], Some("maybe")),
        (_, "source") => (["virtual", "direct", "arena"], Some("moon")),
        (_, "memory") => (["managed", "host", "device"], Some("moon")),
        (_, "classes") => (["exact:4096", "tight", "power-of-two"], Some("exact:none")),
        _ => (["a name", "another name", "a third name"], None),
    }
}
