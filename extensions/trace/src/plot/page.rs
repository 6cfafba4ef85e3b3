//! The page with all charts.

use super::colours::{LIMIT, PALETTE, SERIES};
use super::drawing::{Block, Drawing, FIGURES};
use super::segments;
use crate::file::origin::Origin;
use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use std::io::{self, Write};
use std::{iter, mem};

/// It reads the [`data`] that [`html`] puts in the place of `DATA`.
const PAGE: &str = include_str!("page.html");

/// Numbers of JavaScript are exact up to here.
const MOST: u64 = 1 << 53;

pub(super) fn html(drawing: &Drawing) -> io::Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&serde_json::to_vec(&data(drawing))?)?;
    let colours = format!("PALETTE = {PALETTE:?}, SERIES = {SERIES:?}, LIMIT = {LIMIT:?}");
    let data = BASE64_STANDARD.encode(packed.finish()?);
    // The data last: they may contain a name of what is replaced.
    Ok(PAGE.replacen("COLOURS", &colours, 1).replacen("DATA", &data, 1))
}

/// In the order in which the page reads them.
fn data(drawing: &Drawing) -> impl Serialize {
    let Drawing { name, settings, figures, limit, times, blocks, origins, pages, kept, samples, .. } =
        drawing;
    let segments = drawing.segments();
    let place = |address| segments::place(&segments, address);
    let placed = |&(address, bytes): &(u64, u64)| (place(address), bytes);
    let column = |of: fn(&Block) -> u64| blocks.iter().map(of).collect::<Vec<_>>();
    let origins = iter::once(const { &Origin::UNKNOWN }).chain(origins).map(|of| (&of.pool, &of.site));
    let pages = pages.iter().map(|(event, ranges)| (event, ranges.iter().map(placed).collect::<Vec<_>>()));
    // Idle memory is state 1, pending frees are 2.
    let states = kept.iter().flatten().zip(1..);
    let states = states.flat_map(|(of, state)| of.iter().map(placed).map(move |placed| (state, placed)));
    let samples = (0..FIGURES).map(|field| differences(samples.iter().map(|sample| sample[field])));
    (
        (name, settings, figures, limit, kept.is_some()),
        differences(times.iter().copied()),
        (
            differences(blocks.iter().map(|block| block.start)),
            column(|block| block.events),
            column(|block| block.size),
            column(|block| block.capacity),
            column(|block| block.stream),
            column(|block| block.origin.into()),
            differences(blocks.iter().map(|block| block.address.map_or(0, place))),
        ),
        origins.collect::<Vec<_>>(),
        segments.iter().map(|segment| (segment.address, segment.place)).collect::<Vec<_>>(),
        pages.collect::<Vec<_>>(),
        states.collect::<Vec<_>>(),
        samples.collect::<Vec<_>>(),
    )
}

/// Each number as its difference from the one before, in few digits. Larger numbers are 2⁵³.
fn differences(numbers: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut before = 0;
    let difference = |number: u64| {
        let number = number.min(MOST) as i64;
        number - mem::replace(&mut before, number)
    };
    numbers.map(difference).collect()
}
