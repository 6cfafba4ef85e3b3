//! Each setting by each source: an argument, text, the environment, a file, the parent, the default. A pool has the
//! same value, and a value that is not valid is the same error.
#![cfg(feature = "host")]

use vrampool::host::HostDevice;
use vrampool::settings::{Origin, Scope, Setting};
use vrampool::{Amount, Backend, Error, Pool, PoolBuilder, Settings, SizeClasses, Source};
use vrampool_test_support::{is_inside, passed, setting_texts, test_again};

fn device() -> HostDevice {
    HostDevice::builder().memory_limit(256 << 20).build()
}

/// A setting of a pool, and where it has it from.
fn effective<B: Backend>(pool: &Pool<B>, name: &str) -> (String, Origin) {
    let all = pool.settings();
    assert_eq!(all.len(), Settings::TABLE.len());
    let of = all.iter().find(|of| of.setting.name == name).expect("every setting is there");
    (of.text.clone(), of.origin)
}

#[test]
fn an_invalid_value_is_the_same_error_from_every_source() {
    let parent = Pool::new(&device()).expect("a pool");
    for setting in Settings::TABLE {
        let (_, Some(text)) = setting_texts(setting.name, setting.kind) else { continue };
        let of_file = file(setting, text);
        let errors = [
            Pool::builder(&device()).set(setting.name, text),
            parent.child("child").set(setting.name, text),
            Pool::builder(&device()).from_file(of_file.path()),
        ];
        let errors = errors.map(|set| set.expect_err("not valid").to_string());
        let Err(Error::Configuration(error)) = Settings::default().set(setting.name, text) else {
            panic!("{text}")
        };
        assert!(errors.iter().all(|text| *text == error.to_string()), "{errors:?}");
        assert_eq!((error.field, &*error.value), (setting.name, text));
    }
    for (builder, field) in [
        (Pool::builder(&device()).limit(Amount::Percent(101.0)), "limit"),
        (Pool::builder(&device()).overlap(Amount::Percent(f64::NAN)), "overlap"),
        (Pool::builder(&device()).size_classes(SizeClasses::Multiple(0)), "size_classes"),
        (Pool::builder(&device()).share(1), "share"),
        (Pool::builder(&device()).private(true), "private"),
        (parent.child("child").initial(Amount::Unlimited), "initial"),
    ] {
        let error = builder.build().expect_err(field);
        assert!(matches!(&error, Error::Configuration(invalid) if invalid.field == field), "{error}");
    }
}

/// A file of one line, which is there as long as the value.
fn file(setting: &Setting, text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("{} = \"{text}\"", setting.name)).expect("written");
    file
}

/// The pool of a builder with a setting by these sources, and what it has: of a root, then of a child.
fn check_sources(setting: &Setting, [is_argument, is_variable, is_file]: [bool; 3]) {
    let ([argument, variable, in_file], _) = setting_texts(setting.name, setting.kind);
    let of_file = file(setting, in_file);
    let set = |builder: PoolBuilder<HostDevice>| {
        let builder = if is_file { builder.from_file(of_file.path())? } else { builder };
        let builder = if is_argument { builder.set(setting.name, argument)? } else { builder };
        let builder = if is_variable { builder.from_environment()? } else { builder };
        builder.build()
    };
    let choices = [
        (is_argument, argument, Origin::Argument),
        (is_variable && !setting.variables.is_empty(), variable, Origin::Environment),
        (is_file, in_file, Origin::File),
    ];
    let chosen = |choices: &[(bool, &str, Origin)]| {
        choices.iter().find(|(is_set, ..)| *is_set).map(|(_, text, origin)| (text.to_string(), *origin))
    };
    if setting.scope != Scope::Child {
        let builder = Pool::builder(&device());
        let builder = if setting.name == "initial" { builder.source(Source::Virtual) } else { builder };
        let actual = effective(&set(builder).expect(setting.name), setting.name);
        let expected = chosen(&choices).unwrap_or((actual.0.clone(), Origin::Default));
        assert_eq!(actual, expected, "{} of a root, by {choices:?}", setting.name);
    }
    let parent = Pool::builder(&device()).source(Source::Virtual).build().expect("a pool");
    let child = parent.child("child").limit(128 << 20);
    let child = if setting.name == "initial" { child.source(Source::Virtual) } else { child };
    let child = if setting.name == "limit" { parent.child("child") } else { child };
    let actual = effective(&set(child).expect(setting.name), setting.name);
    let expected = match (setting.name, setting.scope) {
        (_, Scope::Root) => None,
        ("name", _) => Some((if is_argument { argument } else { "child" }.into(), Origin::Argument)),
        // The variable is for roots.
        ("initial", _) => chosen(&[choices[0], choices[2]]),
        _ => chosen(&choices),
    };
    let own = setting.scope == Scope::Child || ["limit", "initial"].contains(&setting.name);
    let origin = if own { Origin::Default } else { Origin::Parent };
    let expected =
        expected.unwrap_or((if own { actual.0.clone() } else { effective(&parent, setting.name).0 }, origin));
    assert_eq!(actual, expected, "{} of a child, by {choices:?}", setting.name);
}

/// Each setting by each combination of an argument, a variable and a file, of a root and a child.
#[test]
fn an_argument_precedes_a_variable_that_precedes_a_file() {
    if device().virtual_memory().is_none() {
        return;
    }
    let is_inside = is_inside();
    for setting in Settings::TABLE {
        for sources in 0..8u8 {
            check_sources(setting, [1, 2, 4].map(|bit| sources & bit != 0 && (is_inside || bit != 2)));
        }
    }
    if is_inside {
        // Initial memory of the variable that the device does not have, or the source, is none.
        let small = HostDevice::builder().memory_limit(1 << 20).build();
        for builder in
            [Pool::builder(&small).source(Source::Virtual), Pool::builder(&device()).source(Source::Direct)]
        {
            let pool = builder.from_environment().expect("valid").limit(None).build().expect("a pool");
            assert_eq!(effective(&pool, "initial"), ("0B".into(), Origin::Default));
        }
        let parent = Pool::builder(&device()).from_environment().expect("valid").build().expect("a pool");
        let child = parent.child("child").build().expect("a pool");
        for setting in Settings::TABLE.iter().filter(|setting| !setting.variables.is_empty()) {
            let ([_, text, _], _) = setting_texts(setting.name, setting.kind);
            let of_child = effective(&child, setting.name);
            match setting.name {
                "limit" | "initial" => assert_eq!(of_child.1, Origin::Default),
                "budget" | "max_cached_bytes" => assert_eq!(of_child.0, text),
                _ => assert_eq!(of_child, (text.into(), Origin::Parent)),
            }
        }
        return;
    }
    let mut command = test_again("an_argument_precedes_a_variable_that_precedes_a_file");
    for setting in Settings::TABLE {
        let ([_, variable, _], _) = setting_texts(setting.name, setting.kind);
        command.envs(setting.variables.first().map(|of| (of.name, variable)));
    }
    passed(&mut command);
}

/// A percentage is of the device's memory, of a child of the limit above it.
#[test]
fn a_percentage_is_of_the_device_or_of_the_limit_above() {
    let pool = Pool::builder(&device()).set("limit", "50%").expect("valid").build().expect("a pool");
    assert_eq!(pool.limit(), Some(128 << 20));
    let child = pool
        .child("child")
        .limit(Amount::Percent(25.0))
        .share(Amount::Percent(12.5))
        .build()
        .expect("a pool");
    assert_eq!((child.limit(), child.share()), (Some(32 << 20), 16 << 20));
}

#[test]
fn a_child_has_the_caps_of_its_pool_as_they_are() {
    let pool = Pool::builder(&device()).max_cached_bytes(1 << 20).build().expect("a pool");
    pool.set_max_buffers_per_bucket(1);
    let child = pool.child("child").max_cached_bytes(2 << 20).build().expect("a child");
    assert_eq!(effective(&child, "max_buffers_per_bucket"), ("1".into(), Origin::Parent));
    assert_eq!(effective(&child, "max_cached_bytes"), ("1MiB".into(), Origin::Parent));
    let private = pool.child("private").private(true).build().expect("a child");
    assert_eq!(effective(&private, "magazine_bytes"), ("0B".into(), Origin::Argument));
}

#[test]
fn a_percentage_needs_a_known_whole() {
    let device = HostDevice::builder().memory_limit(0).build();
    let error = Pool::builder(&device).limit(Amount::Percent(50.0)).build().expect_err("half of what?");
    assert!(error.to_string().contains("does not report"), "{error}");
    drop(Pool::builder(&device).limit(8 << 20).overlap(Amount::Percent(50.0)).build().expect("a pool"));
}
