//! An exporter that is read repeatedly, in Prometheus's text format.

use super::figures::{Key, Reading, Row, Values};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

/// How long a reading may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of a reading.
const MOST: u64 = 16 << 20;

/// The most pools of a reading, and the most parts of all of them.
const MOST_ROWS: [usize; 2] = [1_000, 10_000];

/// Labels of metrics with several values of a pool.
const LABELS: [&str; 4] = ["layer", "rung", "reason", "call"];

/// Labels of the parts of a pool.
const PARTS: [&str; 2] = ["bucket", "child"];

type Labels = BTreeMap<String, String>;

/// An exporter and its last reading.
#[derive(Debug)]
pub(super) struct Exporter {
    /// Its address as it is shown, without a name and password.
    pub(super) name: String,
    url: String,
    /// Each pool, and behind it its buckets and children.
    pub(super) rows: Vec<Row>,
    /// How many more its last reading had.
    left_out: usize,
    /// Why the last attempt to read it failed. The rows of an exporter that ended stay.
    pub(super) error: Option<String>,
}

/// Rows, and how many more are left out; or the reason why they were not read.
type Rows = Result<(Vec<Row>, usize), String>;

/// The position of an exporter, and what it was read as.
pub(super) type News = (usize, Rows);

impl Exporter {
    /// Creates an exporter from an address, whose scheme and path may be missing.
    pub(super) fn new(text: &str) -> Self {
        let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let (_, path) = rest.split_once('/').unwrap_or_default();
        let ends = path.is_empty();
        // A name and password end at the last `@`: a password that is not encoded may contain the other signs.
        let (_, shown) = rest.rsplit_once('@').unwrap_or(("", rest));
        let name = shown.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
        let url = if ends { format!("{}/metrics", url.trim_end_matches('/')) } else { url };
        Self { name, url, rows: Vec::new(), left_out: 0, error: None }
    }

    /// Reads it on a thread `times` times, or until the receiver is dropped.
    pub(super) fn watch(&self, at: usize, interval: Duration, times: usize, to: SyncSender<News>) {
        let (name, url) = (self.name.clone(), self.url.clone());
        thread::spawn(move || {
            let mut before: Option<(Reading, Instant)> = None;
            for time in 0..times {
                if time > 0 {
                    thread::sleep(interval);
                }
                let rows = read(&url).map(|(now, left_out)| {
                    let read_at = Instant::now();
                    let earlier = |key| {
                        let (reading, before) = before.as_ref()?;
                        Some((reading.get(key)?, (read_at - *before).as_secs_f64()))
                    };
                    let rows =
                        now.iter().map(|(key, values)| Row::new((at, &name), key, values, earlier(key)));
                    let rows = rows.collect();
                    before = Some((now, read_at));
                    (rows, left_out)
                });
                if to.send((at, rows)).is_err() {
                    return;
                }
            }
        });
    }

    pub(super) fn note(&mut self, rows: Rows) {
        match rows {
            Ok((rows, left_out)) => (self.rows, self.left_out, self.error) = (rows, left_out, None),
            Err(error) => self.error = Some(error),
        }
    }

    /// A line that says how many rows are left out, if any are.
    pub(super) fn left_out(&self) -> Option<String> {
        let (name, count) = (&self.name, self.left_out);
        (count > 0).then(|| format!("{name}: {count} more pools, buckets and children are left out"))
    }
}

/// A reading, and how many pools and parts it leaves out.
fn read(url: &str) -> Result<(Reading, usize), String> {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
    let read = || agent.get(url).call()?.body_mut().with_config().limit(MOST).read_to_string();
    let text = read().map_err(|error| match error {
        // Its text may have the address, with the password.
        ureq::Error::BadUri(_) => "its address is not one of HTTP".into(),
        error => error.to_string().replace(char::is_control, " "),
    })?;
    let reading = reading(&text);
    if reading.0.is_empty() { Err("no metrics of a pool".into()) } else { Ok(reading) }
}

fn reading(text: &str) -> (Reading, usize) {
    let (mut reading, mut counts) = (Reading::new(), [0; MOST_ROWS.len()]);
    // Hashes, because the keys may have as many bytes as the text.
    let (mut left_out, state) = (HashSet::new(), RandomState::new());
    for (key, name, value) in text.lines().filter_map(sample) {
        // The row of a pool precedes those of its parts.
        let pool = Key { class: None, part: None, ..key.clone() };
        for key in [&pool, &key] {
            let kind = usize::from(key.part.is_some());
            if reading.contains_key(key) {
                continue;
            }
            if counts[kind] < MOST_ROWS[kind] && (kind == 0 || reading.contains_key(&pool)) {
                counts[kind] += 1;
                reading.insert(key.clone(), Values::new());
            } else {
                left_out.insert(state.hash_one(key));
            }
        }
        if let Some(values) = reading.get_mut(&key) {
            values.insert(name, value);
        }
    }
    (reading, left_out.len())
}

/// Parses a line of a pool; `None` for others, comments, and text that is no sample.
fn sample(line: &str) -> Option<(Key, String, f64)> {
    let (name, rest) = line.strip_prefix("vrampool_")?.split_once('{')?;
    let (mut labels, rest) = labels(rest)?;
    // A time may follow.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    let part = PARTS.into_iter().find_map(|label| Some((label, labels.remove(label)?)));
    let name = match &part {
        Some((label, _)) => name.strip_prefix(label)?.strip_prefix('_')?,
        None => name,
    };
    let name = match LABELS.into_iter().find_map(|label| labels.get(label)) {
        Some(value) => format!("{name} {value}"),
        None => name.to_owned(),
    };
    let device = ["backend", "device"].into_iter().filter_map(|label| labels.remove(label));
    let device = device.collect::<Vec<_>>().join(":");
    let (label, part) = part.unzip();
    let class = part.as_ref().filter(|_| label == Some("bucket")).and_then(|class| class.parse().ok());
    Some((Key { pool: labels.remove("pool")?, device, class, part }, name, value))
}

/// Parses labels up to their brace, and returns the rest.
fn labels(mut text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (mut value, mut letters) = (String::new(), rest.char_indices());
        let end = loop {
            match letters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => ' ',
                    other => other,
                }),
                // A terminal would interpret a control character.
                (_, letter) => value.push(if letter.is_control() { ' ' } else { letter }),
            }
        };
        labels.insert(name.trim().to_owned(), value);
        text = rest[end..].trim_start_matches(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_prometheus_reads_them() {
        let (key, name, value) = sample(
            r#"vrampool_rungs_total{pool="x \"y\", }\\",rung="trim",device="0",backend="host"} 1.5e3 17"#,
        )
        .expect("a sample");
        assert_eq!((name.as_str(), value), ("rungs_total trim", 1500.0));
        assert_eq!((key.pool.as_str(), key.device.as_str(), key.part), ("x \"y\", }\\", "host:0", None));
        let (key, name, value) =
            sample("vrampool_child_live_bytes{pool=\"\u{1b}[2J\",child=\"a\"} +Inf").expect("a sample");
        assert_eq!((name.as_str(), value), ("live_bytes", f64::INFINITY));
        assert_eq!((key.pool.as_str(), key.part.as_deref()), (" [2J", Some("a")));
        let others = [
            "# HELP a b",
            "",
            "a",
            "a{",
            "a{pool=\"c} 1",
            "a{pool=\"c\"}",
            "a{pool=\"c\"} x",
            "a{b=\"c\"} 1",
            "a 1",
        ];
        for line in others {
            assert!(sample(&format!("vrampool_{line}")).is_none(), "{line}");
        }
        assert!(sample("go_a{pool=\"c\"} 1").is_none());
    }

    #[test]
    fn an_address_needs_no_scheme_and_no_path() {
        for (text, name, url) in [
            ("localhost:9184", "localhost:9184", "http://localhost:9184/metrics"),
            ("http://a:1/", "a:1", "http://a:1/metrics"),
            ("a:1/pool", "a:1", "http://a:1/pool"),
            ("http://ops:secret@a:1/pool", "a:1", "http://ops:secret@a:1/pool"),
            ("ops:a/b@c@a:1", "a:1", "http://ops:a/b@c@a:1"),
        ] {
            let exporter = Exporter::new(text);
            assert_eq!((exporter.name.as_str(), exporter.url.as_str()), (name, url));
        }
    }

    #[test]
    fn errors_name_no_password() {
        for url in [
            "http://ops:secret@127.0.0.1:1/",
            "https://ops:secret@127.0.0.1:1/",
            "ftp://ops:secret@127.0.0.1:1/",
            "http://ops:secret@/",
            "http://ops:secret@:1/",
            "http://ops:/secret@a/",
            "//ops:secret@a/?b=http://c",
        ] {
            let error = read(url).expect_err(url);
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_reading_keeps_so_many_rows() {
        let line = |row: usize| {
            format!(
                "vrampool_live_bytes{{pool=\"{row}\"}} 1\nvrampool_child_live_bytes{{pool=\"0\",child=\"{row}\"}} 1\n"
            )
        };
        let text: String = (0..12_000).map(line).collect();
        let (kept, left_out) = reading(&text.repeat(2));
        assert_eq!((kept.len(), left_out), (11_000, 24_000 - 11_000));
        let part = "vrampool_child_live_bytes{pool=\"more\",child=\"a\"} 1";
        assert_eq!(reading(&format!("{}{part}", (1..1001).map(line).collect::<String>())).1, 3);
    }
}
