//! `vrampool completions`: scripts that complete the program's commands and flags in a shell.

use crate::stdout::print;
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use std::error::Error;

/// Use of the scripts, for the help.
const USE: &str = "\
Bash reads scripts of ~/.local/share/bash-completion/completions, fish of ~/.config/fish/completions, and zsh of the \
folders in fpath:

vrampool completions bash > ~/.local/share/bash-completion/completions/vrampool
vrampool completions fish > ~/.config/fish/completions/vrampool.fish
vrampool completions zsh > ~/.zfunc/_vrampool";

/// Flags of `vrampool completions`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = USE)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script of a shell.
pub(crate) fn run(arguments: &Arguments, mut program: Command) -> Result<(), Box<dyn Error>> {
    let name = program.get_name().to_owned();
    // Generated in memory: on a closed pipe clap_complete panics.
    let mut script = Vec::new();
    generate(arguments.shell, &mut program, name, &mut script);
    print(String::from_utf8(script)?.trim_end())
}
