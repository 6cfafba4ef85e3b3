//! `vrampool man`: manual pages of the program and of each command.

use crate::stdout::print;
use clap::{Args, Command};
use clap_mangen::Man;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use vrampool_trace::output::Output;

/// Flags of `vrampool man`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Arguments {
    /// Write a page for the program and for each command to this existing folder, for example
    /// ~/.local/share/man/man1, instead of printing the program's page
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints the program's page, or writes all pages.
pub(crate) fn run(arguments: &Arguments, program: Command) -> Result<(), Box<dyn Error>> {
    // Its page would be that of every command once more.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let Some(folder) = &arguments.folder else {
        return print(String::from_utf8(page(&Man::new(program))?)?.trim_end());
    };
    let mut commands = vec![program];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let man = Man::new(command);
        let mut output = Output::create(folder.join(man.get_filename()))?;
        output.write_all(&page(&man)?)?;
        output.commit()?;
    }
    Ok(())
}

fn page(man: &Man) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok(text)
}
