//! `vrampool devices`, and which device the other commands take.

use serde_json::Value;
use std::process::{Command, Output};
use vrampool::any;
use vrampool_test_support::{command, failed, printed};

/// With `VRAMPOOL_BACKEND` set or not.
fn vrampool(arguments: &[&str], backend: Option<&str>) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    let backend = backend.map(|backend| ("VRAMPOOL_BACKEND", backend));
    command.args(arguments).env_remove("VRAMPOOL_BACKEND").envs(backend);
    command
}

/// The listing as JSON.
fn listing(backend: Option<&str>) -> Value {
    vrampool_test_support::rows(&mut vrampool(&["devices", "--json"], backend)).remove(0)
}

#[test]
fn json_has_what_the_library_lists() {
    let listing = listing(None);
    let devices = any::devices();
    let texts = |list: &Value, key: &str| {
        let list = list.as_array().expect("a list");
        list.iter().map(|row| row[key].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    let names: Vec<_> = devices.there.iter().map(|device| device.name.clone()).collect();
    assert_eq!(texts(&listing["devices"], "name"), names);
    assert!(names.contains(&"host".into()), "it is always there");
    let absent: Vec<_> = devices.absent.iter().map(|absent| absent.backend.to_owned()).collect();
    assert_eq!(texts(&listing["unavailable"], "backend"), absent);
    assert_eq!(listing["auto"].as_str(), devices.best().map(|best| best.name.as_str()));
    assert!(listing.get("auto_fails").is_none());
    for (row, device) in listing["devices"].as_array().expect("a list").iter().zip(&devices.there) {
        let mut keys: Vec<_> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["backend", "device", "kind", "name", "total_bytes"]);
        assert_eq!(row["total_bytes"].as_u64(), Some(device.total_bytes.unwrap_or(0)));
        assert!(["discrete", "integrated", "cpu"].iter().any(|kind| row["kind"] == *kind), "{row}");
    }
}

/// The host's memory is read by a call of the system's then, and the listing says that limits are unknown.
#[test]
#[cfg(target_os = "linux")]
fn without_proc_the_host_has_memory_and_says_what_is_unknown() {
    let run = |script: &str| {
        let mut command = command("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_vrampool")]);
        command.env_remove("VRAMPOOL_BACKEND").output().ok().filter(|output| output.status.success())
    };
    let Some(with) = run("exec \"$1\" devices --json") else {
        return vrampool_test_support::skipped("this user may not have mounts of its own");
    };
    let without = run("mount -t tmpfs none /proc && exec \"$1\" devices --json").expect("a mount");
    let total = |output: &Output| {
        let listing: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let host =
            listing["devices"].as_array().expect("a list").iter().find(|row| row["name"] == "host").cloned();
        host.expect("it is always there")["total_bytes"].as_u64().expect("a number")
    };
    assert!(total(&without) > 0 && total(&without) >= total(&with) / 2, "{}", total(&without));
    let warning = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(warning.contains("no /proc: limits of this process"), "{warning}");
}

#[test]
fn the_table_says_what_is_there_what_auto_is_and_why_the_rest_is_not() {
    let out = printed(&mut vrampool(&["devices"], None));
    let devices = any::devices();
    for device in &devices.there {
        assert!(out.contains(&device.name) && out.contains(&device.device), "{out}");
    }
    let best = devices.best().expect("the host at the least");
    assert!(out.contains(&format!("`auto` is {}.", best.name)), "{out}");
    for absent in &devices.absent {
        assert!(out.contains(&absent.reason.to_string()), "{out}");
    }
}

#[test]
fn auto_is_what_the_environment_names() {
    let out = printed(&mut vrampool(&["devices"], Some("host")));
    assert!(out.contains("`auto` is host, by VRAMPOOL_BACKEND."), "{out}");
    let out = printed(&mut vrampool(&["devices"], Some("abacus")));
    assert!(out.contains("`auto` opens no device: ") && out.contains("VRAMPOOL_BACKEND=`abacus`"), "{out}");
    assert_eq!(listing(Some("host"))["auto"], "host");
    let refused = listing(Some("abacus"));
    assert!(
        refused["auto"].is_null() && refused["auto_fails"].as_str().is_some_and(|why| why.contains("abacus"))
    );
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_default() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/multistream.csv.gz");
    let replay =
        |arguments: &[&str], backend| vrampool(&[&["replay", trace, "--json"], arguments].concat(), backend);
    for (arguments, environment) in [
        (&[][..], None),
        (&[], Some("")),
        (&[], Some("host")),
        (&["--backend", "host"], Some("abacus")),
        (&["--backend", "auto"], Some("host")),
    ] {
        let out = printed(&mut replay(arguments, environment));
        assert!(out.contains(r#""backend":"host""#), "{out}");
    }
    for arguments in [&[][..], &["--backend", "auto"]] {
        let err = failed(&mut replay(arguments, Some("abacus")), 1);
        assert!(err.contains("VRAMPOOL_BACKEND=`abacus`") && err.contains("known are auto"), "{err}");
    }
    let best = any::devices().best().expect("the host at the least").backend;
    let out = printed(&mut replay(&["--backend", "auto"], None));
    assert!(out.contains(&format!(r#""backend":"{best}""#)), "{out}");
}
