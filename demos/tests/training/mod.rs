//! A training run that serves its metrics.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The process, and the address of its metrics. It ends with this.
pub(crate) struct Training {
    process: Child,
    pub(crate) address: String,
}

impl Training {
    /// Starts it, at a port that the system chooses and the program prints.
    pub(crate) fn start(program: &mut Command, flags: &[&str]) -> Self {
        let program = program.args(["train", "--epochs", "1000000", "--metrics", "127.0.0.1:0"]).args(flags);
        let process = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs");
        let mut training = Self { process, address: String::new() };
        let mut line = String::new();
        let errors = training.process.stderr.take().expect("piped");
        BufReader::new(errors).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("metrics at http://").and_then(|line| line.strip_suffix("/metrics"));
        training.address = address.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        training
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
