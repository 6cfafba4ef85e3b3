//! The program by itself: its name in the help, its completions and manual pages, and the backends that are
//! built in.

use std::collections::BTreeSet;
use std::process::Command;
use vrampool::settings::Scope;
use vrampool::{Settings, any};
use vrampool_test_support::{command, failed, printed, program};

fn vrampool(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_vrampool"));
    command.args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> String {
    printed(&mut vrampool(arguments))
}

#[test]
fn the_help_names_the_program_as_it_is_installed() {
    for (arguments, usage) in [
        (&["--help"][..], "Usage: vrampool <COMMAND>"),
        (&["replay", "--help"], "Usage: vrampool replay [OPTIONS] <FILE>..."),
        (&["trace", "show", "--help"], "Usage: vrampool trace show [OPTIONS] <FILE>"),
    ] {
        let help = stdout(arguments);
        assert!(help.contains(usage), "{usage}: {help}");
    }
    let mut all: Vec<_> = commands().into_iter().map(|command| vec![command, "--help".into()]).collect();
    all.extend(["show", "convert"].map(|command| vec!["trace".into(), command.into(), "--help".into()]));
    all.extend([vec!["--help".into()], vec!["-h".into()], vec!["help".into(), "replay".into()]]);
    for arguments in all {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let help = stdout(&arguments);
        assert!(help.contains("Usage: vrampool") && !help.contains("cargo"), "{arguments:?}: {help}");
    }
}

#[test]
fn mistakes_are_answered_with_the_programs_name() {
    for arguments in [&["no-such-command"][..], &["replay", "--no-such-flag"], &["trace"]] {
        let said = failed(&mut vrampool(arguments), 2);
        assert!(said.contains("Usage: vrampool") && !said.contains("cargo"), "{said}");
    }
}

/// Of each setting that has a variable, the help and the help of commands with a pool name it and the flag.
#[test]
fn every_environment_variable_is_in_the_help() {
    let (help, flags) = (stdout(&["--help"]), stdout(&["replay", "--help"]));
    let variables = Settings::TABLE.iter().filter(|setting| setting.scope != Scope::Child);
    let variables: Vec<_> = variables.filter_map(|of| Some((of.name, of.variables.first()?.name))).collect();
    assert!(variables.len() >= 10, "{variables:?}");
    for (setting, variable) in variables {
        let flag = format!("--{} ", setting.replace('_', "-"));
        assert!(
            help.contains(variable) && flags.contains(variable) && flags.contains(&flag),
            "{setting}: {help} {flags}"
        );
    }
    assert!(help.contains("VRAMPOOL_BACKEND") && flags.contains("VRAMPOOL_BACKEND"));
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = stdout(&["--help"]);
    let (_, listed) = help.split_once("Commands:\n").expect("commands");
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let commands: Vec<_> = names.map(str::to_owned).collect();
    assert!(commands.len() >= 7, "{help}");
    commands
}

#[test]
fn every_shell_completes_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell} completes {command}");
        }
        assert!(script.contains("size-classes"), "{shell} completes flags");
        let is_offered = |value: &&str| script.contains(*value) || ["elvish", "powershell"].contains(&shell);
        assert!(["virtual", "power-of-two", "opencl"].iter().all(is_offered), "{shell} completes values");
        assert!(!script.contains("cargo"), "{shell}: an installed program is called vrampool");
        let checker = match shell {
            "bash" => program("bash"),
            // These need not be there.
            shell => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .map(|folder| folder.join(shell))
                .find(|file| file.is_file() && matches!(shell, "fish" | "zsh")),
        };
        let Some(checker) = checker else { continue };
        let file = folder.path().join(shell);
        std::fs::write(&file, script).expect("a file");
        let output = Command::new(checker).arg("-n").arg(file).output().expect("it starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{shell} -n: {output:?}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    stdout(&["man", folder.path().to_str().expect("UTF-8")]);
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name));
    let first = page("vrampool.1").expect("the program's page");
    assert_eq!(first.trim_end(), stdout(&["man"]).trim_end());
    let mut expected = BTreeSet::from(["vrampool.1".to_owned()]);
    for command in commands() {
        assert!(first.contains(&format!("vrampool\\-{command}(1)")), "the program's page names {command}");
        expected.insert(format!("vrampool-{command}.1"));
    }
    expected.extend(["show", "convert", "plot"].map(|command| format!("vrampool-trace-{command}.1")));
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    let files: BTreeSet<_> =
        files.map(|file| file.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    assert_eq!(files, expected);
    for file in files {
        let page = page(&file).expect("a page");
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{file}: {page}");
        assert!(!page.contains("cargo"), "{file}: {page}");
    }
    let error = failed(&mut vrampool(&["man", "/nonexistent/man1"]), 1);
    assert!(error.contains("/nonexistent/man1"), "{error}");
}

/// A backend that is not built in would be unavailable for want of a feature.
#[test]
fn every_backend_is_built_in() {
    let devices = any::devices();
    let backends = devices.there.iter().map(|device| device.backend);
    let backends: Vec<_> = backends.chain(devices.absent.iter().map(|absent| absent.backend)).collect();
    for backend in ["host", "cuda", "opencl", "wgpu"] {
        assert!(backends.contains(&backend), "{backend} is not among {backends:?}");
    }
    let listing = stdout(&["devices"]);
    assert!(!listing.contains("feature `"), "{listing}");
}
