//! The colours of all pictures.

/// Of streams and classes, in turn.
pub(super) const PALETTE: [[u8; 3]; 10] = [
    [66, 133, 214],
    [233, 138, 52],
    [70, 163, 92],
    [205, 77, 77],
    [142, 104, 190],
    [38, 166, 164],
    [219, 110, 166],
    [158, 140, 52],
    [110, 130, 150],
    [160, 98, 64],
];

/// Of lines of bytes, in the order in which they are drawn.
pub(super) const SERIES: [[&str; 2]; 4] =
    [["reserved", "#97a1ab"], ["held", "#e98a34"], ["live", "#46a35c"], ["requested", "#4285d6"]];

/// Of the limit.
pub(super) const LIMIT: &str = "#cd4d4d";
