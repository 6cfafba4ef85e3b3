//! Each setting by each combination of an argument, a variable and a file is the same in C as in Rust: of a pool, of a
//! tag as of a child, and the error of a value that is not valid. Tests of Python read the list of them.
//!
//! `VRAMPOOL_UPDATE_FIGURES=1 cargo test -p vrampool-c --test setting_sources` writes it.

use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::{env, fs, process, ptr};
use vrampool::any::AnyDevice;
use vrampool::host::HostDevice;
use vrampool::settings::Setting;
use vrampool::{Error, Pool, PoolBuilder, Settings, Source, internal};
use vrampool_c::boundary::Out;
use vrampool_c::*;
use vrampool_test_support::{passed, setting_texts, test_again};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/tests/setting_sources.json");
const CAPACITY: u64 = 256 << 20;
const TAG: &CStr = c"weights";

/// The settings of a pool and of a tag; without a tag where the source is not virtual.
type Both = [Value; 2];

/// What a pool of these settings has in Rust, the device of which C has, too.
fn of_rust(setting: &Setting, argument: Option<&str>, file: Option<&Path>) -> Result<Both, Error> {
    let device = AnyDevice::from(HostDevice::builder().memory_limit(CAPACITY).build());
    let mut builder: PoolBuilder<AnyDevice> = Pool::builder(&device).from_environment()?.addresses_stay(true);
    internal::default_source(&mut builder, Source::Virtual);
    if let Some(text) = argument {
        builder = builder.set(setting.name, text)?;
    }
    if let Some(path) = file {
        builder = builder.from_file(path)?;
    }
    let listed = |pool: &Pool<AnyDevice>| {
        let value = |text: &str, origin: String| json!({ "value": text, "origin": origin });
        let all = pool.settings().iter();
        all.map(|of| (of.setting.name.to_owned(), value(&of.text, of.origin.to_string()))).collect()
    };
    let pool = builder.build()?;
    let name = format!("{}/{}", pool.name(), TAG.to_str().expect("text"));
    let child = match pool.source() {
        Source::Virtual => listed(&pool.child(name).build()?),
        _ => Value::Null,
    };
    Ok([listed(&pool), child])
}

fn of_c(setting: &Setting, argument: Option<&str>, file: Option<&Path>) -> Result<Both, String> {
    let own = argument.map(|text| format!(";{}={text}", setting.name)).unwrap_or_default();
    let file = file.map(|path| format!(";file={}", path.display())).unwrap_or_default();
    let options = CString::new(format!("device=host;host_capacity={CAPACITY}{own}{file}")).expect("no 0");
    let (mut pool, mut json) = (0, ptr::null_mut());
    if vrampool_create(options.as_c_str().into(), Out::from(&mut pool)) != Status::OK {
        return Err(last_error_text());
    }
    if vrampool_tag_begin(pool, TAG.into()) == Status::OK {
        assert_eq!(vrampool_tag_end(pool), Status::OK);
    }
    assert_eq!(vrampool_snapshot(pool, Out::from(&mut json)), Status::OK);
    // SAFETY: text that the library made, which nothing frees before it is read here.
    let text = unsafe { CStr::from_ptr(json) }.to_bytes();
    let snapshot: Value = serde_json::from_slice(text).expect("JSON");
    assert_eq!((vrampool_string_free(json), vrampool_destroy(pool)), (Status::OK, Status::OK));
    Ok(["default", "weights"].map(|tag| snapshot["settings"][tag].clone()))
}

/// The same without the names of pools, of which no two are alike.
fn nameless(mut settings: Both) -> Both {
    for all in settings.iter_mut().filter_map(Value::as_object_mut) {
        all.retain(|_, of| !of["value"].as_str().is_some_and(|text| text.starts_with("pool-")));
    }
    settings
}

/// A setting by an argument, a variable that this process has, and a file: what Rust and C have.
fn row(setting: &Setting, argument: Option<&str>, in_file: Option<&str>) -> Value {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("settings-{}", process::id()));
    let file = in_file.map(|text| {
        fs::write(&path, format!("{} = \"{text}\"\n", setting.name)).expect("written");
        path.as_path()
    });
    let variable = setting.variables.first().and_then(|of| Some((of.name, env::var(of.name).ok()?)));
    let mut row =
        json!({ "setting": setting.name, "argument": argument, "variable": variable, "file": in_file });
    match of_rust(setting, argument, file) {
        Ok(settings) => {
            let settings = nameless(settings);
            assert_eq!(of_c(setting, argument, file).map(nameless).as_ref(), Ok(&settings), "{row}");
            let [pool, tag] = settings.map(|all| all[setting.name].clone());
            (row["pool"], row["tag"]) = (pool, tag);
        }
        Err(error) => {
            assert_eq!(of_c(setting, argument, file), Err(error.to_string()), "{row}");
            row["error"] = error.to_string().into();
        }
    }
    let _ = fs::remove_file(path);
    row
}

/// The rows of a process whose variable of the setting has this value.
fn rows_of_variable(setting: &Setting, value: &str) -> Vec<Value> {
    let Some(variable) = setting.variables.first() else { return Vec::new() };
    let mut command = test_again("a_setting_is_the_same_in_c_by_every_source");
    let text = passed(command.env("VRAMPOOL_TEST_SETTING", setting.name).env(variable.name, value));
    let rows = text.lines().filter_map(|line| line.find("{\"").map(|at| &line[at..]));
    rows.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_setting_is_the_same_in_c_by_every_source() {
    if !vrampool_test_support::has_virtual_memory(&AnyDevice::from(HostDevice::new())) {
        return;
    }
    let inside = env::var("VRAMPOOL_TEST_SETTING").ok();
    let mut all = Vec::new();
    let is_asked = |of: &&Setting| inside.as_ref().is_none_or(|name| *name == of.name);
    let settings = Settings::TABLE.iter().filter(|of| is_option(of));
    for setting in settings.filter(is_asked) {
        let ([argument, variable, file], invalid) = setting_texts(setting.name, setting.kind);
        let combinations =
            [(None, None), (Some(argument), None), (None, Some(file)), (Some(argument), Some(file))];
        all.extend(combinations.map(|(argument, file)| row(setting, argument, file)));
        if inside.is_some() {
            all.iter().for_each(|row| println!("\n{row}"));
            return;
        }
        all.extend(rows_of_variable(setting, variable));
        let Some(invalid) = invalid else { continue };
        all.extend([row(setting, Some(invalid), None), row(setting, None, Some(invalid))]);
        all.extend(rows_of_variable(setting, invalid).into_iter().take(1));
    }
    assert!(all.len() > 100 && all.iter().filter(|row| row["error"].is_string()).count() > 30);
    let lines: Vec<_> = all.iter().map(|row| format!("  {row}")).collect();
    let expected = format!("[\n{}\n]\n", lines.join(",\n"));
    if env::var_os("VRAMPOOL_UPDATE_FIGURES").is_some() {
        fs::write(LIST, expected).expect("a file");
    } else {
        assert_eq!(fs::read_to_string(LIST).expect("text"), expected, "{LIST} is stale");
    }
}
