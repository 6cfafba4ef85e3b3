//! A plot of throughput over threads.

use super::name::Name;
use super::row::Row;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use vrampool_trace::output::Output;

const SIZE: (u32, u32) = (900, 560);

/// A line through so many million pairs a second, in all, by threads.
type Line = Vec<(f64, f64)>;

/// Writes an SVG of what `hit_pair` measured, each case a line; both axes are logarithmic.
pub(crate) fn write(rows: &[Row], output: Output) -> Result<(), Box<dyn Error>> {
    let mut svg = String::new();
    draw(rows, &mut svg)?;
    Ok(output.save(svg)?)
}

fn draw(rows: &[Row], svg: &mut String) -> Result<(), Box<dyn Error>> {
    let lines = lines(rows);
    let points = || lines.values().flatten();
    let (Some(most_threads), Some(least), Some(most)) = (
        points().map(|point| point.0).max_by(f64::total_cmp),
        points().map(|point| point.1).min_by(f64::total_cmp),
        points().map(|point| point.1).max_by(f64::total_cmp),
    ) else {
        return Err(format!("`--plot` shows {}; run it", Name::HitPair).into());
    };
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Hits of a pool, all threads together", ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (1.0..most_threads.max(2.0)).log_scale().base(2.0),
            (least * 0.7..most * 1.4).log_scale(),
        )?;
    chart.configure_mesh().x_desc("threads").y_desc("million pairs a second").x_labels(6).draw()?;
    for (index, (case, line)) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style).point_size(4))?
            .label(case)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(area.present()?)
}

fn lines(rows: &[Row]) -> BTreeMap<String, Line> {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.bench == Name::HitPair.to_string()) {
        let threads = f64::from(row.threads);
        // A pair that is handed over takes two threads.
        let doing = if row.case.to_string().contains("handed over") { threads / 2.0 } else { threads };
        lines.entry(row.case.to_string()).or_default().push((threads, doing * 1e3 / row.ns_median));
    }
    lines
}
