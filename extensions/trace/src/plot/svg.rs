//! Single charts as SVG.

use super::colours::{LIMIT, PALETTE, SERIES};
use super::drawing::{Block, Drawing};
use super::segments;
use bytesize::ByteSize;
use std::collections::HashSet;
use std::fmt::Write;

/// Width and height, and where the chart begins and ends in them.
const SIZE: (u64, u64) = (1100, 460);
const LEFT: u64 = 80;
const RIGHT: u64 = 1080;
const TOP: u64 = 66;
const BOTTOM: u64 = 420;

/// Quarters of a unit are the smallest step of a rectangle.
const STEPS: u64 = 4;

/// A chart with its axes: events across, bytes upwards.
struct Chart {
    svg: String,
    events: u64,
    most: u64,
}

impl Chart {
    fn new(plot: &Drawing, title: &str, most: u64) -> Self {
        let (wide, tall) = SIZE;
        let mut chart =
            Self { svg: String::new(), events: (plot.times.len() as u64).max(1), most: most.max(1) };
        chart.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {tall}\" width=\"{wide}\" height=\"{tall}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#1b1f24\">\n\
             <rect width=\"{wide}\" height=\"{tall}\" fill=\"#fff\"/>\n"
        ));
        chart.text(LEFT, 24, "start", &format!("{}: {title}", plot.name));
        // A power of two of bytes, and one, two or five of a power of ten events, so that numbers are short.
        let step = chart.most.div_ceil(4).next_power_of_two().max(1);
        for bytes in (0..=chart.most).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let y = chart.y(bytes);
            chart.put(format_args!("<path d=\"M{LEFT} {y}H{RIGHT}\" stroke=\"#d8dde3\"/>\n"));
            chart.text(LEFT - 8, y + 4, "end", &ByteSize(bytes).to_string());
        }
        let tens = 10u64.pow((chart.events / 5).checked_ilog10().unwrap_or(0));
        let step = [1, 2, 5, 10].map(|times| times * tens).into_iter().find(|step| chart.events / step <= 8);
        for event in (0..=chart.events).step_by(step.unwrap_or(chart.events) as usize) {
            chart.text(chart.x(event), BOTTOM + 18, "middle", &whole(event));
        }
        chart.text((LEFT + RIGHT) / 2, BOTTOM + 34, "middle", "events");
        chart
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // A string takes all.
        let _ = self.svg.write_fmt(text);
    }

    fn text(&mut self, x: u64, y: u64, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace(char::is_control, "\u{fffd}");
        self.put(format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n"));
    }

    /// Names beside their colours, in one line.
    fn key(&mut self, names: impl IntoIterator<Item = (String, String)>) {
        let mut x = LEFT;
        for (name, colour) in names {
            self.put(format_args!(
                "<rect x=\"{x}\" y=\"38\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n"
            ));
            self.text(x + 15, 48, "start", &name);
            x += 40 + 7 * name.chars().count() as u64;
        }
    }

    fn x(&self, event: u64) -> u64 {
        LEFT + scaled(event, self.events, RIGHT - LEFT)
    }

    fn y(&self, bytes: u64) -> u64 {
        BOTTOM - scaled(bytes, self.most, BOTTOM - TOP)
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// Bytes over events: a line for each series, with the most and the least of each column.
pub(super) fn bytes(plot: &Drawing) -> String {
    // A sample has the others in the opposite order, after its event.
    let of_samples = |at: usize| plot.samples.iter().map(|sample| (sample[0], sample[3 - at])).collect();
    let series: [Vec<_>; SERIES.len()] =
        [of_samples(0), of_samples(1), of_samples(2), (0..).zip(plot.requested.iter().copied()).collect()];
    let most = series.iter().flatten().map(|point| point.1).max().unwrap_or(0);
    // A limit that is far above would press the lines together.
    let limit = (plot.limit > 0 && plot.limit / 2 < most).then_some(plot.limit);
    let mut chart = Chart::new(plot, &plot.settings, most.max(limit.unwrap_or(0)));
    let named = |text: &str, colour: &str| (text.to_owned(), colour.to_owned());
    let of_limit = (plot.limit > 0).then(|| named(&format!("limit {}", ByteSize(plot.limit)), LIMIT));
    chart.key(SERIES.iter().map(|[name, colour]| named(name, colour)).chain(of_limit));
    if let Some(limit) = limit {
        let y = chart.y(limit);
        chart.put(format_args!(
            "<path d=\"M{LEFT} {y}H{RIGHT}\" stroke=\"{LIMIT}\" stroke-dasharray=\"6 4\"/>\n"
        ));
    }
    for ([_, colour], points) in SERIES.iter().zip(&series) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
        let mut at = chart.y(first.1);
        let mut path = format!("M{} {at}", chart.x(first.0));
        for column in points.chunk_by(|one, next| chart.x(one.0) == chart.x(next.0)) {
            let heights: Vec<_> = column.iter().map(|point| chart.y(point.1)).collect();
            for y in [heights.iter().min(), heights.iter().max(), heights.last()].into_iter().flatten() {
                if *y != at {
                    let _ = write!(path, "H{}V{y}", chart.x(column[0].0));
                    at = *y;
                }
            }
        }
        let _ = write!(path, "H{}", chart.x(last.0));
        chart.put(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.4\"/>\n"
        ));
    }
    chart.finish()
}

/// A rectangle for each block. Those that would look alike are drawn once.
pub(super) fn addresses(plot: &Drawing) -> String {
    let segments = plot.segments();
    let placed = |block: &Block| Some(segments::place(&segments, block.address?));
    let most = plot.blocks.iter().filter_map(|block| Some(placed(block)? + block.capacity)).max();
    let mut chart = Chart::new(plot, &plot.settings, most.unwrap_or(0));
    if most.is_none() {
        chart.text(LEFT, TOP, "start", "The device has no addresses.");
    }
    let streams = plot.blocks.iter().map(|block| block.stream).max().unwrap_or(0);
    let mut classes: Vec<_> = plot.blocks.iter().map(|block| block.capacity).collect();
    classes.sort_unstable();
    classes.dedup();
    let colour_of = |block: &Block| match streams {
        0 => classes.partition_point(|class| *class < block.capacity) % PALETTE.len(),
        _ => block.stream as usize % PALETTE.len(),
    };
    let names: Vec<_> = match streams {
        0 => classes.iter().map(|class| ByteSize(*class).to_string()).collect(),
        _ => (0..=streams).map(|stream| format!("stream {stream}")).collect(),
    };
    let more = names.len().saturating_sub(PALETTE.len());
    let more = (more > 0).then(|| (format!("and {more} more in colours that repeat"), "none".to_owned()));
    chart.key(names.into_iter().zip(PALETTE.map(rgb)).chain(more));
    let (mut paths, mut drawn) = (PALETTE.map(|_| String::new()), HashSet::new());
    let (wide, tall) = (STEPS * (RIGHT - LEFT), STEPS * (BOTTOM - TOP));
    for block in &plot.blocks {
        let Some(from) = placed(block) else { continue };
        let end = if block.events > 0 { block.start + block.events } else { chart.events };
        let [left, right] = [block.start, end].map(|event| scaled(event, chart.events, wide));
        let [low, high] = [from, from + block.capacity].map(|bytes| scaled(bytes, chart.most, tall));
        let rectangle @ (x, y, w, h) = (left, tall - high, (right - left).max(1), (high - low).max(1));
        if drawn.insert(rectangle) {
            let _ = write!(paths[colour_of(block)], "M{x} {y}h{w}v{h}h-{w}z");
        }
    }
    for (path, colour) in paths.iter().zip(PALETTE) {
        let (place, scale) = (format!("translate({LEFT} {TOP})"), 1.0 / STEPS as f64);
        let colour = rgb(colour);
        chart.put(format_args!(
            "<path transform=\"{place} scale({scale})\" fill=\"{colour}\" fill-opacity=\"0.8\" d=\"{path}\"/>\n"
        ));
    }
    chart.finish()
}

/// The part of `length` that `value` is of `whole`.
fn scaled(value: u64, whole: u64, length: u64) -> u64 {
    (u128::from(value) * u128::from(length) / u128::from(whole.max(1))) as u64
}

fn rgb([red, green, blue]: [u8; 3]) -> String {
    format!("rgb({red},{green},{blue})")
}

/// A number with commas.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    parts.collect::<Vec<_>>().join(",")
}
