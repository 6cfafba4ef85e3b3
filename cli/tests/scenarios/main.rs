//! Alerts in operation: pools, brokers and tags that sleep in many conditions at the same time, scraped by a real
//! Prometheus whose rules are the shipped ones with durations 20 times as short. Which alerts fire for each is compared
//! with which should.
//!
//! `VRAMPOOL_SCENARIOS=1 cargo test -p vrampool-cli --test scenarios -- --nocapture` takes about four minutes, and
//! prints the table. Without the variable only the table's names are checked.

mod brokers;
mod cache;
mod failing;
mod memory;
mod rules;
mod server;
mod sleepers;
mod stage;
mod waiting;

use server::Server;
use stage::{Scene, Stage, Targets};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vrampool_test_support::program;

/// How long all scenarios run: the slowest alert takes 90 s of a rise and 30 s more, and the fastest leak ends after
/// that.
const SECONDS: u64 = 215;

fn scenes() -> Vec<Scene> {
    [cache::SCENES, memory::SCENES, failing::SCENES, waiting::SCENES, brokers::SCENES, sleepers::SCENES]
        .concat()
}

/// The alerts that fired, by scenario, each with its reason if it has one.
type Fired = BTreeMap<String, BTreeSet<String>>;

fn fired(server: &Server) -> Fired {
    let query =
        r#"count by (scenario, pool, alertname, reason) (count_over_time(ALERTS{alertstate="firing"}[15m]))"#;
    let mut fired = Fired::new();
    for sample in server.samples(query) {
        let label = |name: &str| sample["metric"][name].as_str().unwrap_or_default().to_owned();
        // A loop of crashes is an alert about a job, which keeps the pool's name alone.
        let scenario = if label("scenario").is_empty() { label("pool") } else { label("scenario") };
        let alert = label("alertname").trim_start_matches("Vrampool").to_owned();
        let alert =
            if alert == "AllocationFailing" { format!("{alert}({})", label("reason")) } else { alert };
        fired.entry(scenario).or_default().insert(alert);
    }
    fired
}

/// Prints a row for each scenario. Returns those in which an alert is missing, or fired although it should not.
fn compare(scenes: &[Scene], fired: &Fired) -> Vec<String> {
    let mut wrong = Vec::new();
    println!("| scenario | expected | also allowed | fired | |\n|---|---|---|---|---|");
    for scene in scenes {
        let seen = fired.get(scene.name).cloned().unwrap_or_default();
        let expected: BTreeSet<_> = scene.expected.iter().map(|&alert| alert.to_owned()).collect();
        let missing: Vec<_> = expected.difference(&seen).collect();
        let is_allowed =
            |alert: &&String| expected.contains(*alert) || scene.allowed.contains(&alert.as_str());
        let surplus: Vec<_> = seen.iter().filter(|alert| !is_allowed(alert)).collect();
        let verdict = if missing.is_empty() && surplus.is_empty() { "right" } else { "WRONG" };
        let list = |alerts: &BTreeSet<String>| alerts.iter().cloned().collect::<Vec<_>>().join(", ");
        let allowed = scene.allowed.join(", ");
        println!("| {} | {} | {allowed} | {} | {verdict} |", scene.name, list(&expected), list(&seen));
        if verdict == "WRONG" {
            wrong.push(format!("{}: missing {missing:?}, false {surplus:?}", scene.name));
        }
    }
    wrong
}

#[test]
fn scenarios_have_names_of_their_own() {
    let scenes = scenes();
    let names: BTreeSet<_> = scenes.iter().map(|scene| scene.name).collect();
    assert!(names.len() == scenes.len() && names.len() >= 41, "{}", names.len());
}

#[test]
fn exactly_the_expected_alerts_fire() {
    if std::env::var_os("VRAMPOOL_SCENARIOS").is_none() {
        return vrampool_test_support::skipped("VRAMPOOL_SCENARIOS is not set: it takes four minutes");
    }
    let Some(program) = program("prometheus") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let targets = Arc::new(Targets::new(folder.path()));
    let server = Server::start_fast(&program, folder.path());
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let scenes = scenes();
    std::thread::scope(|scope| {
        for scene in &scenes {
            let stage = Stage::new(scene.name, end, Arc::clone(&targets));
            scope.spawn(move || (scene.run)(&stage));
        }
        // While all of them still serve.
        let last = Stage::new("the end", end - Duration::from_secs(10), Arc::clone(&targets));
        last.seconds(SECONDS);
        let pools = server.value("count(vrampool_info{scenario=\"j_fifty_pools\"})");
        let series = server.value("count({scenario=\"j_fifty_pools\",__name__=~\"vrampool_.+\"})");
        println!("cardinality: {series:?} series of {pools:?} pools");
        let (all, with_data) = server.panels();
        println!("panels: {all} expressions, of which {with_data} have data");
        // Without are the two of NVIDIA's exporter, and bounds that nothing has set.
        assert!(with_data + 8 >= all, "{with_data} of {all}");
    });
    let fired = fired(&server);
    let first = |alert: &str, scenario: &str| {
        let alerts = format!("ALERTS{{alertname=\"{alert}\",scenario=\"{scenario}\",alertstate=\"firing\"}}");
        server.value(&format!("min(min_over_time(timestamp({alerts})[15m:1s]))"))
    };
    for leak in ["d_leak", "d_leak_of_the_device"] {
        let (growing, failing) =
            (first("VrampoolLiveGrowing", leak), first("VrampoolAllocationFailing", leak));
        println!("{leak}: seen {:?} s before it failed", failing.zip(growing).map(|(end, seen)| end - seen));
        assert!(growing < failing, "{leak} is seen before it fails: {growing:?} {failing:?}");
    }
    let wrong = compare(&scenes, &fired);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
