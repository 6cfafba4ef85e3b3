//! The functions of the header.

pub(crate) const HEADER: &str = include_str!("../../include/vrampool.h");

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Their names, in its order.
pub(crate) fn functions() -> Vec<&'static str> {
    documented().into_iter().map(|(name, _)| name).collect()
}

/// Their names, each with the comment before it.
pub(crate) fn documented() -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    // Where the last comment began, and where it ended.
    let (mut comment, mut begins, mut at) = ("", 0, 0);
    for line in HEADER.split_inclusive('\n') {
        if line.starts_with("/*") {
            begins = at;
        }
        at += line.len();
        if line.starts_with(" */") || line.starts_with("/*") && line.trim_end().ends_with("*/") {
            comment = &HEADER[begins..at];
        }
        let is_declaration = !line.starts_with([' ', '/', '#', '}']) && !line.contains("(*");
        if let Some((before, _)) = line.split_once('(').filter(|_| is_declaration) {
            let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
            if name.starts_with("vrampool_") {
                // Each has a separate comment.
                found.push((name, std::mem::take(&mut comment)));
            }
        }
    }
    found
}

/// The number behind a macro of the header.
#[allow(dead_code, reason = "not every test that takes this module needs it")]
pub(crate) fn number(name: &str) -> u32 {
    let line = HEADER.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name} is a number"))
}
