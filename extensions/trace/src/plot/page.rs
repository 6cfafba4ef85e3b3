//! The page with all charts.

use super::colours::{LIMIT, PALETTE, SERIES};
use super::columns::Columns;
use super::drawing::{Block, Drawing, FIGURES, Kept};
use super::segments;
use crate::file::origin::Origin;
use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::{Compression, write::GzEncoder};
use std::io::{self, Write};
use std::iter;

/// It reads the columns that [`html`] puts in the place of `DATA`.
const PAGE: &str = include_str!("page.html");

pub(super) fn html(drawing: &Drawing) -> io::Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&columns(drawing))?;
    let colours = format!("PALETTE = {PALETTE:?}, SERIES = {SERIES:?}, LIMIT = {LIMIT:?}");
    let data = BASE64_STANDARD.encode(packed.finish()?);
    // The data last: they may contain a name of what is replaced.
    Ok(PAGE.replacen("COLOURS", &colours, 1).replacen("DATA", &data, 1))
}

/// In the order in which the page reads them.
fn columns(drawing: &Drawing) -> Vec<u8> {
    let (blocks, samples) = (&drawing.blocks, &drawing.samples);
    let segments = drawing.segments();
    let mut columns = Columns::default();
    columns.text(&drawing.name);
    columns.text(&drawing.settings);
    columns.number(drawing.figures.len() as u64);
    for (name, value) in &drawing.figures {
        columns.text(name);
        columns.text(value);
    }
    columns.number(drawing.limit);
    columns.number(drawing.times.len() as u64);
    columns.differences(drawing.times.iter().copied());
    columns.number(blocks.len() as u64);
    columns.differences(blocks.iter().map(|block| block.start));
    let fields: [fn(&Block) -> u64; 5] =
        [|b| b.events, |b| b.size, |b| b.capacity, |b| b.stream, |b| b.origin.into()];
    for field in fields {
        blocks.iter().for_each(|block| columns.number(field(block)));
    }
    columns.number(drawing.origins.len() as u64 + 1);
    for Origin { pool, site } in iter::once(&Origin::default()).chain(&drawing.origins) {
        columns.text(pool);
        columns.text(site);
    }
    columns.number(u64::from(!segments.is_empty()));
    let place = |block: &Block| block.address.map_or(0, |address| segments::place(&segments, address));
    columns.differences(blocks.iter().map(place));
    columns.number(segments.len() as u64);
    for segment in &segments {
        columns.number(segment.address);
        columns.number(segment.place);
    }
    columns.number(drawing.pages.len() as u64);
    for (event, ranges) in &drawing.pages {
        columns.number(*event);
        columns.number(ranges.len() as u64);
        for &(address, bytes) in ranges {
            columns.number(segments::place(&segments, address));
            columns.number(bytes);
        }
    }
    let kept = drawing.kept.as_deref().unwrap_or_default();
    columns.number(kept.len() as u64);
    for Kept { is_pending, address, bytes } in kept {
        columns.number(1 + u64::from(*is_pending));
        columns.number(segments::place(&segments, *address));
        columns.number(*bytes);
    }
    columns.number(drawing.kept.is_some().into());
    columns.number(samples.len() as u64);
    for field in 0..FIGURES {
        columns.differences(samples.iter().map(|sample| sample[field]));
    }
    columns.finish()
}
