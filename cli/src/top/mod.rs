//! `vrampool top`: exporters of running processes, live.

mod exporter;
mod figures;
mod screen;
mod terminal;

use crate::stdout::{print, print_json, warn};
use clap::Args;
use exporter::Exporter;
use screen::{Sort, View};
use std::error::Error;
use std::io::IsTerminal;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Keys and figures, for the help.
const KEYS: &str = "\
Keys: q quits, p pauses, s changes the order, b shows buckets and children, / begins a filter that Enter ends, the arrows \
scroll.

hits is the share of requests without a driver call, bucket the share that buckets served, since the reading before. \
The bar has live bytes as #, held ones as = and reserved ones as -, of the limit, or else of the budget. \
wait/s are waits that the pool inserted between streams, rungs/s steps to free memory for requests. \
Pools are red and yellow where the dashboard's figures are. Alerts need Prometheus, which knows how long a condition holds.";

/// Flags of `vrampool top`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = KEYS)]
pub(crate) struct Arguments {
    /// Addresses of exporters, as 127.0.0.1:9184 or http://host:9184/metrics
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// The order of pools
    #[arg(long, value_enum, value_name = "ORDER", default_value = "reserved")]
    sort: Sort,
    /// Show pools whose name or address contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Show the buckets and children of each pool
    #[arg(long)]
    buckets: bool,
    /// Read twice, with an interval between, print a table and end
    #[arg(long)]
    once: bool,
    /// With --once, print one JSON object per line, for each pool, bucket and child
    #[arg(long, requires = "once")]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "an interval is a number of seconds".to_owned())?;
    let interval = Duration::try_from_secs_f64(seconds).ok();
    interval
        .filter(|interval| (0.05..=3600.0).contains(&interval.as_secs_f64()))
        .ok_or_else(|| "an interval has from 0.05 to 3600 seconds".into())
}

/// Shows the exporters until a key ends it, or prints them once.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if !arguments.once && !std::io::stdout().is_terminal() {
        return Err("top needs a terminal; add --once to print a table".into());
    }
    let mut exporters: Vec<_> = arguments.urls.iter().map(|url| Exporter::new(url)).collect();
    let view = View {
        sort: arguments.sort,
        filter: arguments.filter.clone(),
        parts: arguments.buckets || arguments.json,
    };
    let times = if arguments.once { 2 } else { usize::MAX };
    // Bounded, because a terminal may stop.
    let (to, readings) = sync_channel(1);
    for (at, exporter) in exporters.iter().enumerate() {
        exporter.watch(at, arguments.interval, times, to.clone());
    }
    drop(to);
    if !arguments.once {
        return terminal::show(view, exporters, &readings);
    }
    for (at, reading) in readings {
        exporters[at].note(reading);
    }
    if let Some(error) =
        exporters.iter().map(|exporter| exporter.error.as_ref()).reduce(Option::and).flatten()
    {
        let text =
            format!("no exporter can be read: {error}; start the program's exporter, and check the address");
        return Err(text.into());
    }
    if arguments.json {
        exporters.iter().filter_map(Exporter::left_out).for_each(warn);
        return view.rows(&exporters).iter().try_for_each(print_json);
    }
    let lines: Vec<_> = view.lines(&exporters, 80, 0, usize::MAX).into_iter().map(|(line, _)| line).collect();
    print(lines.join("\n").trim_end())
}
