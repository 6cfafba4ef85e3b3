//! The program by itself: its name in the help, and the backends that are built in.

use std::process::Command;
use vrampool::any;

fn stdout(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vrampool")).args(arguments).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_help_names_the_program_as_it_is_installed() {
    for (arguments, usage) in [
        (&["--help"][..], "Usage: vrampool <COMMAND>"),
        (&["train", "--help"], "Usage: vrampool train [OPTIONS]"),
        (&["trace", "show", "--help"], "Usage: vrampool trace show [OPTIONS] <FILE>"),
    ] {
        let help = stdout(arguments);
        assert!(help.contains(usage), "{usage}: {help}");
        assert!(!help.contains("cargo"), "{help}");
    }
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
