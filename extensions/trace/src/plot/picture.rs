//! The pictures of a plot, by name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A picture of a [`Plot`](super::Plot).
///
/// ```
/// use vrampool_trace::plot::Picture;
/// assert_eq!("addresses".parse::<Picture>()?, Picture::Addresses);
/// assert_eq!(Picture::of_name("run.svg"), Picture::Bytes);
/// assert_eq!(Picture::of_name("run.html"), Picture::Page);
/// # Ok::<(), vrampool_trace::plot::UnknownPicture>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Picture {
    /// `page`: HTML with all charts, which follow the pointer.
    Page,
    /// `bytes`: SVG of the requested, live, held and reserved bytes over the events, and the limit.
    Bytes,
    /// `addresses`: SVG with a rectangle for each block, events across and addresses upwards.
    Addresses,
}

impl Picture {
    const ALL: [Self; 3] = [Self::Page, Self::Bytes, Self::Addresses];

    /// The picture in a file of this name where none is named: [`Bytes`](Self::Bytes) if it ends with `.svg`, else
    /// [`Page`](Self::Page). Case does not matter.
    #[must_use]
    pub fn of_name(path: impl AsRef<Path>) -> Self {
        let is_svg = path.as_ref().extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
        if is_svg { Self::Bytes } else { Self::Page }
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_ascii_lowercase())
    }
}

impl FromStr for Picture {
    type Err = UnknownPicture;

    fn from_str(text: &str) -> Result<Self, UnknownPicture> {
        let named = Self::ALL.iter().copied().find(|picture| picture.to_string() == text);
        named.ok_or_else(|| UnknownPicture(text.into()))
    }
}

/// A name that no picture has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a picture; write page, bytes or addresses", .0.escape_debug())]
pub struct UnknownPicture(String);
