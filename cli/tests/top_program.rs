//! `vrampool top` in a pseudo-terminal, over three live processes, one of which ends.
#![cfg(target_os = "linux")]

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZero;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::telemetry::Exporter;
use vrampool::{Backend, Pool, SizeClasses};
use vrampool_test_support::{command, failed, printed, rows, test_again};

/// The name of the pool that a process serves.
const NAME: &str = "VRAMPOOL_TEST_POOL";
const MIB: u64 = 1 << 20;

/// Run in the processes: serves a pool until its standard input ends. `near` holds 94 % of its limit; `busy` allocates
/// for each line of its input.
#[test]
fn a_process_serves_a_pool() {
    let Ok(name) = std::env::var(NAME) else { return };
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let limit = if name == "near" { 100 * MIB } else { 1000 * MIB };
    let pool = Pool::builder(&device)
        .name(&name)
        .limit(limit)
        .size_classes(SizeClasses::EXACT)
        .build()
        .expect("a pool");
    let kept = pool.allocate(64 * MIB, &stream).expect("memory");
    let child = pool.child("child").limit(8 * MIB).build().expect("a child");
    let more = (name == "near").then(|| [pool.allocate(26 * MIB, &stream), child.allocate(4 * MIB, &stream)]);
    let exporter = Exporter::listen(([127, 0, 0, 1], 0).into()).expect("an exporter");
    exporter.add(&pool).expect("a pool");
    println!("serves at {}", exporter.address());
    for _ in std::io::stdin().lines() {
        drop(pool.allocate(MIB, &stream).expect("memory"));
    }
    drop((kept, more));
}

struct Served {
    child: Child,
    /// Open, because the process prints at its end, too.
    _output: Lines<BufReader<ChildStdout>>,
    input: Option<ChildStdin>,
    address: String,
}

impl Served {
    fn start(name: &str) -> Self {
        let mut child = test_again("a_process_serves_a_pool")
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = output
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("serves at ").map(|(_, address)| address.to_owned()));
        Self { input: child.stdin.take(), child, _output: output, address: address.expect("it serves") }
    }

    fn end(&mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn screen(rows: u16, columns: u16) -> vt100::Parser {
    let [rows, columns] = [rows, columns].map(|count| NonZero::new(count).expect("not 0"));
    vt100::Parser::new(rows, columns, 0)
}

/// The program in a terminal of 24 lines.
struct Terminal {
    child: Child,
    master: File,
    screen: vt100::Parser,
}

impl Terminal {
    fn start(locale: &str, columns: u16, arguments: &[&str]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a size");
        let path = ptsname(&master, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let side = || OpenOptions::new().read(true).write(true).open(&path).expect("the other side");
        // Without the terminal that runs the test, which would have another size.
        let mut command = Command::new("setsid");
        command
            .arg(env!("CARGO_BIN_EXE_vrampool"))
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm")
            .env("LC_ALL", locale);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("it starts");
        Self { child, master: File::from(master), screen: screen(24, columns) }
    }

    /// Reads until the screen is as it should be; the deadline only ends a test that would fail.
    fn wait(&mut self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let shown = self.screen.screen().contents();
            if is_shown(&shown) {
                return shown;
            }
            assert!(Instant::now() < deadline, "{what}: {shown}");
            let mut bytes = [0; 4096];
            let read =
                self.master.read(&mut bytes).unwrap_or_else(|error| panic!("{what}: {error}: {shown}"));
            self.screen.process(&bytes[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("keys");
    }

    /// It ends by a key. The terminal reads until then: a program whose terminal is full waits.
    fn quit(&mut self) {
        self.press("q");
        while self.master.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line of a pool.
fn line<'a>(shown: &'a str, pool: &str) -> Option<&'a str> {
    shown.lines().map(str::trim_end).find(|line| line.starts_with(pool))
}

#[test]
fn three_processes_are_shown_and_one_of_them_ends() {
    let [mut near, busy, idle] = ["near", "busy", "idle"].map(Served::start);
    let addresses = [&near, &busy, &idle].map(|served| served.address.clone());
    let arguments: Vec<_> = addresses.iter().map(String::as_str).chain(["--interval", "0.1"]).collect();
    let mut top = Terminal::start("C", 80, &arguments);
    let shown =
        top.wait("all", |shown| ["near", "busy", "idle"].iter().all(|pool| line(shown, pool).is_some()));
    assert!(shown.starts_with("vrampool top: live, by reserved"), "{shown}");
    assert!(shown.contains("q quit"), "{shown}");
    let red = "red: live of limit 94.0 %: near";
    let shown = top.wait("a bar, and why it is red", |shown| {
        shown.contains(red) && line(shown, "near").is_some_and(|line| line.contains("########"))
    });
    let is_red = |row: u16| {
        let cell = top.screen.screen().cell(row, 0).expect("a cell");
        cell.fgcolor() == vt100::Color::Idx(1) || cell.fgcolor() == vt100::Color::Idx(9)
    };
    let row_of = |pool| shown.lines().position(|line| line.starts_with(pool)).expect(pool) as u16;
    assert!(is_red(row_of("near")) && !is_red(row_of("idle")), "{shown}");

    // Requests come while it reads: a rate, and their hits.
    let mut input = busy.input.as_ref().expect("piped");
    for _ in 0..200 {
        writeln!(input, "allocate").expect("it listens");
    }
    let has_rate = |shown: &str| {
        let rates =
            line(shown, "busy").map(|line| line.split_whitespace().rev().nth(1).map(str::parse::<u64>));
        matches!(rates, Some(Some(Ok(rate))) if rate > 0)
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_rate(&top.screen.screen().contents()) {
        assert!(Instant::now() < deadline, "a rate: {}", top.screen.screen().contents());
        writeln!(input, "allocate").expect("it listens");
        let mut bytes = [0; 4096];
        let read = top.master.read(&mut bytes).expect("a screen");
        top.screen.process(&bytes[..read]);
    }

    top.press("ssss");
    let names = top.wait("by name", |shown| shown.contains("by name"));
    let at = |pool: &str| names.lines().position(|line| line.starts_with(pool)).expect(pool);
    assert!(at("busy") < at("idle") && at("idle") < at("near"), "{names}");
    top.press("b");
    top.wait("buckets", |shown| shown.contains("  1 MiB") && shown.contains("  64 MiB"));
    top.press("b/idle\r");
    let only = top.wait("a filter", |shown| shown.contains("filter: idle") && line(shown, "busy").is_none());
    assert!(line(&only, "idle").is_some(), "{only}");
    top.press("/\rp");
    top.wait("paused", |shown| shown.contains("paused") && line(shown, "busy").is_some());
    top.press("p");

    near.end();
    let ended = format!("{} ended: ", near.address);
    let shown = top.wait("the end", |shown| shown.contains(&ended));
    assert!(line(&shown, "near").is_some(), "its last figures stay: {shown}");
    top.wait("nothing more of it", |shown| !shown.contains(red));
    top.quit();
}

#[test]
fn a_signal_restores_the_terminal() {
    let idle = Served::start("idle");
    for (signal, exit_code) in [("-TERM", 143), ("-INT", 130)] {
        let mut top = Terminal::start("C", 80, &[&idle.address]);
        let modes = |top: &Terminal| tcgetattr(&top.master).expect("modes").local_modes;
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        top.wait("its screen", |shown| shown.contains("q quit"));
        assert!(top.screen.screen().alternate_screen() && top.screen.screen().hide_cursor());
        assert!(!modes(&top).intersects(cooked));
        let killed = Command::new("kill").args([signal, &top.child.id().to_string()]).status();
        assert!(killed.expect("kill").success());
        let mut bytes = [0; 4096];
        while let Some(read) = top.master.read(&mut bytes).ok().filter(|read| *read > 0) {
            top.screen.process(&bytes[..read]);
        }
        assert_eq!(top.child.wait().expect("it ends").code(), Some(exit_code));
        let screen = top.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && modes(&top).contains(cooked));
    }
}

fn once(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.env("LC_ALL", "C").arg("top").args(arguments).args(["--interval", "0.1"]);
    command
}

#[test]
fn once_prints_a_table_or_json() {
    let near = Served::start("near");
    let out = printed(&mut once(&[&near.address, "--once"]));
    assert!(out.contains("94 MiB") && out.contains("########"), "{out}");
    assert!(
        out.contains("red: live of limit 94.0 %: near") && out.lines().all(|line| line.len() <= 80),
        "{out}"
    );
    let json = printed(&mut once(&[&format!("ops:secret@{}", near.address), "--once", "--json"]));
    assert!(!json.contains("ops") && !json.contains("secret") && json.contains(&near.address), "{json}");
    let rows: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(
        (rows[0]["pool"].as_str(), rows[0]["limit_bytes"].as_f64()),
        (Some("near"), Some(100.0 * MIB as f64))
    );
    assert!(["67108864", "child"].iter().all(|part| rows.iter().any(|row| row["part"] == *part)), "{json}");
    assert_eq!(
        (rows[0]["live_of_limit"].as_f64(), &rows[0]["levels"]["live_of_limit"]),
        (Some(0.94), &serde_json::json!("red"))
    );
    let err = failed(&mut once(&["127.0.0.1:1", "--once"]), 1);
    assert!(err.starts_with("error: no exporter can be read: "), "{err}");
}

#[test]
fn wide_terminals_have_more_columns() {
    let near = Served::start("near");
    for locale in ["C", "C.UTF-8"] {
        for (columns, last) in [(80, "wait/s"), (100, "calls/s"), (140, "failed")] {
            let mut top = Terminal::start(locale, columns, &[&near.address, "--buckets"]);
            let shown =
                top.wait("a table", |shown| shown.contains("red: live of limit") && shown.contains("q quit"));
            let header = line(&shown, "pool").expect("a header");
            assert!(header.ends_with(last) && shown.is_ascii(), "{columns}: {shown}");
            for name in ["near", "  4 MiB", "  64 MiB", "  child"] {
                let line = line(&shown, name).expect(name);
                assert!(line.len() <= header.len(), "{columns}: {shown}");
            }
            // Half of its limit.
            let bar = if columns < 120 { "####...." } else { "########........" };
            assert!(line(&shown, "  child").is_some_and(|line| line.contains(bar)), "{columns}: {shown}");
        }
    }
    let err = failed(&mut once(&[&near.address]), 1);
    assert!(err.contains("add --once"), "{err}");
}

/// Serves each connection on a thread, after its request.
fn serve(serve: impl Fn(&mut TcpStream) -> std::io::Result<()> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || {
                let read = connection.read(&mut [0; 4096]);
                read.and_then(|_| serve(&mut connection))
            });
        }
    });
    address
}

#[test]
fn hostile_exporters_are_errors_of_their_own() {
    const HEAD: &str = "HTTP/1.0 200 OK\r\n\r\n";
    let near = Served::start("near");
    let hostile = [
        (
            "endless",
            serve(|to| {
                loop {
                    to.write_all(&[b'a'; 1 << 16])?
                }
            }),
        ),
        (
            "endless body",
            serve(|to| {
                to.write_all(HEAD.as_bytes())?;
                loop {
                    to.write_all("vrampool_live_bytes{pool=\"x\"} 1\n".repeat(1000).as_bytes())?
                }
            }),
        ),
        (
            "one line",
            serve(|to| {
                to.write_all(HEAD.as_bytes())?;
                loop {
                    to.write_all(&[b'v'; 1 << 16])?
                }
            }),
        ),
        ("slow", serve(|to| to.read(&mut [0]).map(drop))),
        (
            "slow body",
            serve(|to| {
                to.write_all(format!("{HEAD}vrampool_live_bytes{{pool=").as_bytes())?;
                to.read(&mut [0]).map(drop)
            }),
        ),
        ("another page", serve(|to| to.write_all(format!("{HEAD}<html>\u{1b}[2J</html>").as_bytes()))),
        ("no text", serve(|to| to.write_all(&[HEAD.as_bytes(), &[0xff, 0xfe, 0, 0x1b]].concat()))),
        ("no answer", serve(|_| Ok(()))),
        ("an error", serve(|to| to.write_all(b"HTTP/1.0 500 \x1b[2J\r\n\r\n"))),
        (
            "closed",
            TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").to_string(),
        ),
    ];
    let broken = serve(|to| {
        let lines = "vrampool_live_bytes{pool=\"b\u{1b}[2J\",\nvrampool_live_bytes NaN\n{} 1\nvrampool_held_bytes{pool=\"b\"} -1e999\n\
            vrampool_live_bytes{pool=\"b\"} 1e300\nvrampool_limit_bytes{pool=\"b\"} -5\nvrampool_served_total{pool=\"b\"} NaN\n";
        to.write_all(format!("{HEAD}{lines}").as_bytes())
    });
    let buckets = serve(|to| {
        let line =
            |bucket| format!("vrampool_bucket_idle_bytes{{pool=\"many\",bucket=\"{bucket}\"}} {bucket}\n");
        to.write_all(format!("{HEAD}{}", (0..10_000).map(line).collect::<String>()).as_bytes())
    });
    let addresses = hostile.iter().map(|(_, address)| address).chain([&near.address, &broken, &buckets]);
    let arguments: Vec<_> = addresses.map(String::as_str).chain(["--once"]).collect();
    let out = printed(&mut once(&arguments));
    assert!(out.contains("red: live of limit 94.0 %: near") && !out.contains('\u{1b}'), "{out}");
    for (name, address) in hostile {
        assert!(out.contains(&format!("{address} ended: ")), "{name}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let rows = rows(&mut once(&[&buckets, &broken, "--once", "--json"]));
    assert_eq!(rows.iter().filter(|row| row.get("part").is_some()).count(), 10_000);

    // Scrolled to its end, and sorted, in a terminal.
    let mut top = Terminal::start("C", 80, &[&buckets, &broken, "--interval", "0.1", "--buckets"]);
    top.wait("its buckets", |shown| shown.contains("many") && shown.contains("  0 B"));
    top.press(&"\u{1b}[B".repeat(100));
    top.wait("later ones", |shown| shown.contains("  99 B") && !shown.contains("many"));
    top.quit();
}
