//! What is generated from the tables of figures and settings is up to date: this library's struct, the header's,
//! Python's statistics and options, the reference of metrics, and that of settings.
//!
//! `VRAMPOOL_UPDATE_FIGURES=1 cargo test -p vrampool-c --test figures` writes it.
#![cfg(feature = "prometheus")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vrampool::Settings;
use vrampool::environment::Unit;
use vrampool::figures::{Figure, FigureKind, FigureLabel, Group};
use vrampool::settings::{Scope, Setting};
use vrampool::telemetry::METRICS;
use vrampool_broker::{BrokerStats, ClientStats};
use vrampool_c::figures::{of_pools, of_sleep};
use vrampool_sleep::{SleepCounts, SleepUsage, TagUsage};

const BEGIN: &str = "Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.";
const END: &str = "End of the generated lines.";
const COLUMNS: usize = 120;
/// The figures of metrics, of a pool, of a broker, and of memory that sleeps.
fn exported() -> [Vec<&'static Figure>; 3] {
    let of_brokers = [BrokerStats::table(), ClientStats::table()].concat();
    let of_sleep = [SleepUsage::table(), SleepCounts::table(), TagUsage::table()].concat();
    [METRICS.clone(), of_brokers, of_sleep]
        .map(|figures| figures.into_iter().filter(|figure| figure.is_exported()).collect())
}

/// Text in lines, the first of which begins with `first` and the others with `next`.
fn wrapped(text: &str, first: &str, next: &str) -> String {
    let (mut all, mut line) = (String::new(), first.to_owned());
    for word in text.split(' ') {
        if line.len() + word.len() >= COLUMNS {
            _ = writeln!(all, "{}", line.trim_end());
            next.clone_into(&mut line);
        }
        line += word;
        line += " ";
    }
    all + line.trim_end()
}

fn rust() -> String {
    let names: Vec<_> = of_pools().into_iter().map(|(name, _)| name).collect();
    format!("stats! {{\n{}\n}}\n", wrapped(&names.join(" "), "    ", "    "))
}

fn header(figures: Vec<(&str, String)>) -> String {
    let field = |(name, help): (_, String)| {
        let help = help.replace("`UNLIMITED`", "#VRAMPOOL_UNLIMITED");
        format!("{}\n    uint64_t {name};\n", wrapped(&format!("{help} */"), "    /** ", "     *  "))
    };
    figures.into_iter().map(field).collect()
}

fn python(figures: Vec<(&str, String)>) -> String {
    let kind = |name| if name == "no_op" { "bool" } else { "int" };
    figures.into_iter().map(|(name, _)| format!("    {name}: {}\n", kind(name))).collect()
}

fn reference(figures: &[&Figure]) -> String {
    let mut table = "\n| name | type | more labels | unit | meaning |\n|---|---|---|---|---|\n".to_owned();
    for of_metric in figures.chunk_by(|one, next| one.metric == next.metric) {
        let figure = of_metric[0];
        let (Figure { metric, .. }, kind, unit) = (figure, figure.metric_type(), figure.metric_unit());
        let values = || of_metric.iter();
        let (label, help) = match figure.label {
            FigureLabel::Each(label) => (format!("`{label}`"), figure.help.to_owned()),
            FigureLabel::Split(_, label, help) => {
                let all: Vec<_> = values().map(|value| format!("`{}`", value.short)).collect();
                let meanings: Vec<_> =
                    values().map(|value| format!("`{}`: {}", value.short, value.help)).collect();
                (format!("`{label}`: {}", all.join(", ")), format!("{help} {}", meanings.join(" ")))
            }
            FigureLabel::Histogram(_, help) => ("`le`".to_owned(), help.to_owned()),
            _ => (String::new(), figure.help.to_owned()),
        };
        let unset = if figure.kind == FigureKind::Cap { " `+Inf` if unset." } else { "" };
        _ = writeln!(table, "| `{metric}` | {kind} | {label} | {unit} | {help}{unset} |");
    }
    table.replace("|  |", "| |") + "\n"
}

/// The settings of a table that are options of C and Python.
fn options(table: &'static [Setting]) -> impl Iterator<Item = &'static Setting> {
    table.iter().filter(|of| vrampool_c::is_option(of))
}

/// The list of options in the header.
fn options_of_c(table: &'static [Setting]) -> String {
    let text = |of: &Setting| format!("{} Default: {}.", of.help, of.default);
    let line =
        |of| wrapped(&text(of), &format!(" *     {:<24}", of.name), &format!(" *     {:24}", "")) + "\n";
    options(table).map(line).collect()
}

/// The keyword arguments of Python.
fn options_of_python(table: &'static [Setting]) -> String {
    let own = [("file", "text"), ("host_capacity", "amount"), ("offload", "text")];
    let all = own.into_iter().chain(options(table).map(|of| (of.name, of.kind)));
    let line = |(name, kind): (_, &str)| {
        let kind = match kind {
            "amount" => "Size | None",
            "count" => "SupportsIndex | str | None",
            _ => "str | None",
        };
        format!("        {name}: {kind}\n")
    };
    all.map(line).collect()
}

/// The page of settings.
fn settings(table: &'static [Setting]) -> String {
    let mut page = "\n| setting | text | of | meaning | default | other variables | since |\n|---|---|---|---|---|---|---|\n".to_owned();
    for Setting { name, kind, help, default, variables, since, scope, .. } in table {
        let scope = match scope {
            Scope::Root => "a pool and all below it",
            Scope::Child => "a child",
            _ => "each pool",
        };
        let others = variables.iter().skip(1).map(|of| format!("`{}` ({})", of.name, unit(of.unit)));
        let others =
            if variables.is_empty() { "no variable".into() } else { others.collect::<Vec<_>>().join(", ") };
        _ = writeln!(page, "| `{name}` | {kind} | {scope} | {help} | {default} | {others} | {since} |");
    }
    page.replace("|  |", "| |") + "\n"
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Gib => "GiB",
        Unit::Share => "a share, 0 to 1",
        Unit::LargeBucket => "MiB of `multiple`; 0 is `fixed`",
        _ => "text",
    }
}

/// Replaces the generated parts of a text.
fn with(text: &str, parts: &[String]) -> String {
    let mut rest = text;
    let mut all = String::new();
    for part in parts {
        let (before, after) = rest.split_once(BEGIN).expect("a generated part");
        let (mark, after) = after.split_once('\n').expect("a line");
        let end = after.lines().take_while(|line| !line.contains(END)).map(|line| line.len() + 1).sum();
        all += &format!("{before}{BEGIN}{mark}\n{part}");
        rest = &after[end..];
    }
    all + rest
}

#[test]
fn what_is_generated_from_the_table_is_up_to_date() {
    let references = exported().map(|figures| reference(&figures));
    for (file, parts) in [
        ("bindings/c/src/figures.rs", vec![rust()]),
        (
            "bindings/c/include/vrampool.h",
            vec![options_of_c(Settings::TABLE), header(of_pools()), header(of_sleep())],
        ),
        ("bindings/python/src/vrampool/_options.py", vec![options_of_python(Settings::TABLE)]),
        ("docs/src/settings.md", vec![settings(Settings::TABLE)]),
        ("bindings/python/src/vrampool/stats.py", vec![python(of_pools()), python(of_sleep())]),
        ("grafana/README.md", references.to_vec()),
    ] {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("text");
        let expected = with(&text, &parts);
        if std::env::var_os("VRAMPOOL_UPDATE_FIGURES").is_some() {
            std::fs::write(&path, expected).expect("a file");
        } else {
            assert!(
                text == expected,
                "{file} is stale: VRAMPOOL_UPDATE_FIGURES=1 cargo test -p vrampool-c --test figures"
            );
        }
    }
}

#[test]
fn a_row_that_is_added_to_the_table_is_in_each_list() {
    let mut added = Settings::TABLE[2].clone();
    (added.name, added.help, added.default) = ("added_setting", "Added for a test.", "as it was");
    let table: &'static [Setting] = Vec::leak([Settings::TABLE, &[added]].concat());
    for (list, line) in [
        (options_of_c(table), "added_setting           Added for a test. Default: as it was."),
        (options_of_python(table), "added_setting: Size | None"),
        (settings(table), "| `added_setting` | amount | each pool | Added for a test. | as it was |"),
    ] {
        assert!(list.contains(line), "{list}");
    }
}

/// Beside what is generated, and tests, only the table and the use of each setting list all: what a new setting
/// touches.
#[test]
fn two_files_list_all_settings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<_> =
        ["src", "backends", "extensions", "bindings", "cli", "demos", "docs", "grafana"]
            .map(|folder| root.join(folder))
            .into();
    let (mut found, mut read) = (Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                folders.extend((!["target", "tests"].contains(&&*name)).then_some(path));
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            read += 1;
            // Without the lines from each mark to its end.
            let parts = text.split(BEGIN).enumerate().map(|(at, part)| match at {
                0 => part,
                _ => part.split_once(END).expect("an end").1,
            });
            let text: String = parts.collect();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words: BTreeSet<_> = text.split(|c| !is_name(c)).collect();
            if Settings::TABLE.iter().all(|setting| words.contains(setting.name)) {
                found.push(path.strip_prefix(&root).expect("below").to_owned());
            }
        }
    }
    found.sort();
    assert!(read > 500, "{read}");
    assert_eq!(found, ["src/pool/builder/build.rs", "src/settings_table.rs"].map(PathBuf::from));
}

const GRAFANA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../grafana");

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("{GRAFANA}/{file}")).expect("shipped")
}

/// Names in a text that look like our metrics; those of the series of a histogram as the histogram's.
fn names(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_name(c) && c != ':');
    let of_metric = |word: &str| {
        let series = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix));
        series.unwrap_or(word).to_owned()
    };
    words.filter(|word| word.starts_with("vrampool_") && word.len() > 9).map(of_metric).collect()
}

#[test]
fn panels_and_rules_read_only_what_is_exported() {
    let exported = exported().concat().into_iter().map(|figure| figure.metric);
    let listed: BTreeSet<_> = exported.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    for file in ["dashboards/vrampool.json", "prometheus/rules/vrampool.yml"] {
        let read = names(&read(file));
        let unknown: Vec<_> = read.difference(&listed).collect();
        assert!(unknown.is_empty(), "{file} reads {unknown:?}");
        assert!(read.len() > 10, "{file} reads our metrics");
    }
    // All that is exported is on the dashboard, or there is no reason to export it.
    let on_dashboard = names(&read("dashboards/vrampool.json"));
    let unseen: Vec<_> = listed.difference(&on_dashboard).filter(|name| !name.contains("_peak_")).collect();
    assert!(unseen.is_empty(), "on no panel: {unseen:?}");
}
