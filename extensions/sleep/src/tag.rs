//! Tags by name: which exist, and which wake together.

use crate::error::Error;
use std::collections::BTreeSet;

/// The tag of memory that no other tag is named for.
pub const DEFAULT_TAG: &str = "default";

/// Tags that a [wake of some tags](Wake::Tags) leaves asleep unless it names them. Memory of other
/// tags is internal to a program, and wakes with any part of it.
pub const DEFERRABLE_TAGS: &[&str] = &["weights", "kv_cache"];

/// Tags that exist before anything is allocated under them: those of vLLM too.
const CUSTOMARY_TAGS: &[&str] = &[DEFAULT_TAG, "weights", "kv_cache", "runtime", "cudagraph"];

/// The tags to wake.
///
/// ```
/// use vrampool_sleep::Wake;
/// let wakes = ["weights", "kv_cache", "mine"].map(|tag| Wake::Tags(&["weights"]).wakes(tag));
/// assert_eq!(wakes, [true, false, true]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake<'a> {
    /// All tags.
    All,
    /// These tags, and all that are not [deferrable](DEFERRABLE_TAGS), because internal memory of a
    /// program wakes with any part of it.
    Tags(&'a [&'a str]),
}

impl Wake<'_> {
    /// Whether it wakes this tag.
    #[must_use]
    pub fn wakes(&self, tag: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => tags.contains(&tag) || !DEFERRABLE_TAGS.contains(&tag),
        }
    }
}

/// Checks that each of these tags exists: that it is among the `used` ones, or one that programs have by custom.
///
/// ```
/// let used = ["adapters"];
/// assert!(vrampool_sleep::check_tags(&["adapters", "weights"], used.into_iter()).is_ok());
/// assert!(vrampool_sleep::check_tags(&["weigths"], used.into_iter()).is_err());
/// ```
///
/// # Errors
/// [`Error::UnknownTag`] with all tags that exist.
pub fn check_tags<'a>(tags: &[&str], used: impl Iterator<Item = &'a str> + Clone) -> Result<(), Error> {
    let all = || CUSTOMARY_TAGS.iter().copied().chain(used.clone());
    let exists = |tag: &str| all().any(|known| known == tag);
    match tags.iter().find(|tag| !exists(tag)) {
        None => Ok(()),
        Some(&tag) => {
            let known = all().collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect();
            Err(Error::UnknownTag { tag: tag.to_owned(), known })
        }
    }
}
