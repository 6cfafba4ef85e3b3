//! A plot of chunks over time: the copies and the work of each stream.

use plotters::prelude::*;
use std::error::Error;
use vrampool_broker::{RunReport, Stage, StageSpan};
use vrampool_trace::output::Output;

/// Width, and height without and of a stream.
const SIZE: (u32, u32, u32) = (1100, 130, 70);

/// A color for each stage: a copy to the device, work, a copy from it.
const STAGES: [(Stage, &str, RGBColor); 3] = [
    (Stage::Upload, "copies to the device", RGBColor(0x4C, 0x9F, 0xD4)),
    (Stage::Compute, "computes", RGBColor(0xE0, 0x7B, 0x39)),
    (Stage::Download, "copies from the device", RGBColor(0x5B, 0xA8, 0x5B)),
];

/// Writes an SVG with a bar for each stage of each chunk, a line of them a stream.
pub(crate) fn write(report: &RunReport, output: Output) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    draw(report, &mut svg)?;
    Ok(output.save(svg)?)
}

fn draw(report: &RunReport, svg: &mut String) -> Result<(), Box<dyn Error>> {
    let streams = report.streams.max(1);
    let area =
        SVGBackend::with_string(svg, (SIZE.0, SIZE.1 + SIZE.2 * (streams as u32 + 1))).into_drawing_area();
    area.fill(&WHITE)?;
    let end = report.spans.iter().map(|span| milliseconds(span).1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!("{} runs in {} chunks on {streams} streams", report.runs, report.chunks),
            ("sans-serif", 20),
        )
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end.max(f64::MIN_POSITIVE), 0.0..(streams + 1) as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("milliseconds")
        // Every half, of which those in the middle of a line are shown; above the lines is room for the
        // legend.
        .y_labels(2 * streams + 3)
        .y_label_formatter(&|y| match y.fract() == 0.5 && *y < streams as f64 {
            true => format!("stream {}", y.floor()),
            false => String::new(),
        })
        .draw()?;
    for (stage, name, color) in STAGES {
        let spans = report.spans.iter().filter(|span| span.stage == stage);
        let bars = spans.map(|span| {
            let ((start, end), line) = (milliseconds(span), span.stream as f64);
            Rectangle::new([(start, line + 0.15), (end, line + 0.85)], color.filled())
        });
        chart
            .draw_series(bars)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    // Numbers, where there is room for them.
    let wide = report.spans.iter().filter(|span| {
        let (start, end_of) = milliseconds(span);
        span.stage == Stage::Compute && end_of - start > end / 60.0
    });
    chart.draw_series(wide.map(|span| {
        let (start, end) = milliseconds(span);
        let at = ((start + end) / 2.0, span.stream as f64 + 0.55);
        Text::new(span.chunk.to_string(), at, ("sans-serif", 12))
    }))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.4))
        .draw()?;
    Ok(area.present()?)
}

fn milliseconds(span: &StageSpan) -> (f64, f64) {
    (1e3 * span.start.as_secs_f64(), 1e3 * span.end.as_secs_f64())
}
