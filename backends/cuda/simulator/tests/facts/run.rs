//! Runs each fact in a separate process and reports the observations.

use crate::all;
use crate::driver::{Driver, SUCCESS};
use crate::fact::{Fact, Needs, Scene, Source, line};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How long the process of a fact may take, in seconds.
const LIMIT: &str = "20";
const AT_ONCE: usize = 4;
/// The argument that makes this program the process of one fact.
const ONE: &str = "--one-fact";

#[derive(Default)]
struct Options {
    list: bool,
    filter: String,
}

/// Observations of the process of a fact.
struct Seen {
    observations: Vec<[String; 4]>,
    /// The reason for which the process ended early.
    trouble: Option<String>,
}

pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [ONE, name] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return check_one(name);
    }
    let mut options = Options::default();
    for argument in arguments {
        match argument.as_str() {
            "--list" => options.list = true,
            // Options of the standard test runner.
            flag if flag.starts_with('-') => {}
            filter => options.filter = filter.into(),
        }
    }
    let facts: Vec<_> = all().into_iter().filter(|fact| fact.name.contains(&options.filter)).collect();
    if options.list {
        for fact in &facts {
            println!("{}: {:?}", fact.name, fact.source);
        }
        println!("{} facts", facts.len());
        return ExitCode::SUCCESS;
    }
    let device = match device() {
        Ok(device) => device,
        Err(reason) => {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            eprintln!("skipped: {reason}");
            return ExitCode::from(u8::from(required.split(',').any(|name| name == "cuda")));
        }
    };
    println!("{}, driver {}, {} device(s)", device.name, device.version, device.count);
    let seen = run_all(&facts, &device);
    report(&facts, &seen, &device)
}

struct Device {
    name: String,
    version: i32,
    count: i32,
    simulator: bool,
}

fn device() -> Result<Device, String> {
    let driver = Driver::open()?;
    let (mut version, mut count, mut name) = (0, 0, [0_u8; 128]);
    for (call, code) in [
        ("cuInit", driver.cuInit(0)),
        ("cuDriverGetVersion", driver.cuDriverGetVersion(&mut version)),
        ("cuDeviceGetCount", driver.cuDeviceGetCount(&mut count)),
        ("cuDeviceGetName", driver.cuDeviceGetName(name.as_mut_ptr().cast(), 127, 0)),
    ] {
        if code != SUCCESS {
            return Err(format!("{call} returns {code}"));
        }
    }
    let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    Ok(Device { name, version, count, simulator: driver.is_simulator() })
}

fn skipped(fact: &Fact, device: &Device) -> Option<&'static str> {
    match fact.needs {
        Needs::TwoDevices if device.count < 2 => Some("two devices are needed"),
        Needs::Simulator if !device.simulator => Some("for the simulator only"),
        _ => None,
    }
}

/// Runs first the facts that may run beside others, a few at once; then the rest, one at a time.
fn run_all(facts: &[&Fact], device: &Device) -> Vec<Option<Seen>> {
    let seen: Vec<Mutex<Option<Seen>>> = facts.iter().map(|_| Mutex::default()).collect();
    for (alone, at_once) in [(false, AT_ONCE), (true, 1)] {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let Some(index) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < facts.len())
                    {
                        if facts[index].alone == alone && skipped(facts[index], device).is_none() {
                            *seen[index].lock().unwrap() = Some(run_one(facts[index].name));
                        }
                    }
                });
            }
        });
    }
    seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect()
}

fn run_one(name: &str) -> Seen {
    let program = std::env::current_exe().expect("the program has a path");
    // A fact misuses the driver on purpose: reports of the simulator must not end its process.
    let settings = std::env::var("VRAMPOOL_SIMULATOR").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["--kill-after=2", LIMIT])
        .arg(program)
        .args([ONE, name])
        .env("VRAMPOOL_SIMULATOR", format!("{settings},strict=0,leaks=0"))
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return Seen { observations: vec![], trouble: Some(format!("cannot start: {error}")) },
    };
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let parts = |line: &str| line.splitn(4, '\t').map(str::to_owned).collect::<Vec<_>>().try_into().ok();
    let observations: Vec<[String; 4]> = out.lines().filter_map(parts).collect();
    let done = observations.iter().any(|[kind, ..]| kind == "done");
    let end = match output.status.code() {
        Some(0) => None,
        Some(124) => Some(format!("not done after {LIMIT} s")),
        _ => Some(format!("ended by {}", output.status)),
    };
    let message = || err.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
    let trouble = match (done, end) {
        (true, None) => None,
        (true, Some(end)) => Some(format!("complete, then {end} {}", message())),
        (false, end) => Some(format!("{} {}", end.unwrap_or_else(|| "ended early".into()), message())),
    };
    Seen { observations, trouble }
}

fn report(facts: &[&Fact], seen: &[Option<Seen>], device: &Device) -> ExitCode {
    let (mut ok, mut differ, mut skips) = (0, 0, 0);
    for (fact, seen) in facts.iter().zip(seen) {
        let mark = if fact.source == Source::Unseen { " [not seen on hardware]" } else { "" };
        let Some(seen) = seen else {
            skips += 1;
            println!("fact {}{mark} ... skipped: {}", fact.name, skipped(fact, device).unwrap_or("not run"));
            continue;
        };
        let of_kind = |kind| seen.observations.iter().filter(move |parts| parts[0] == kind);
        let wrong = of_kind("differs");
        let mut text: Vec<_> = wrong
            .map(|[_, what, value, expected]| format!("{what}: got {value}, expected {expected}"))
            .collect();
        text.extend(seen.trouble.clone());
        if text.is_empty() {
            ok += 1;
            println!("fact {}{mark} ... ok", fact.name);
        } else {
            differ += 1;
            println!("fact {}{mark} ... differs: {}", fact.name, text.join("; "));
        }
        of_kind("note").for_each(|[_, what, value, _]| println!("    {what}: {value}"));
    }
    println!("{} facts: {ok} ok, {differ} differ, {skips} skipped", facts.len());
    ExitCode::from(u8::from(differ > 0))
}

/// The process of one fact.
fn check_one(name: &str) -> ExitCode {
    let facts = all();
    let Some(fact) = facts.iter().find(|fact| fact.name == name) else { return ExitCode::from(3) };
    let driver = match Driver::open() {
        Ok(driver) => driver,
        Err(error) => {
            line("differs", "libcuda.so.1", &error, &"a driver");
            return ExitCode::from(3);
        }
    };
    // The reason of a stop was printed.
    if let Ok(scene) = Scene::begin(driver, fact.start) {
        let _ = (fact.check)(&scene);
        line("done", "", &"", &"");
        std::process::exit(0);
    }
    line("done", "", &"", &"");
    std::process::exit(0)
}
