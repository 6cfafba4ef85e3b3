//! What a program prints, in terminals of several widths and in two locales, through a pipe.

use crate::programs::{command, outcome};
use std::process::Stdio;

const COLUMNS: [usize; 3] = [80, 100, 140];
const LOCALES: [&str; 2] = ["C", "C.UTF-8"];

fn printed(program: &str, arguments: &[&str], columns: usize, locale: &str) -> String {
    let mut command = command(program);
    command.args(arguments).stdin(Stdio::null());
    command.env("COLUMNS", columns.to_string()).env("LC_ALL", locale).env("LANG", locale);
    let (code, out, err) = outcome(&mut command);
    assert_eq!(code, Some(0), "{arguments:?}: {err}");
    out
}

fn assert_line_fits(arguments: &[&str], line: &str, columns: usize) {
    assert!(line.is_ascii(), "{arguments:?}: {line}");
    assert!(line.len() <= columns, "{arguments:?}: {} of {columns} columns: {line}", line.len());
}

/// Checks that a command's tables have at most 80 columns of ASCII in every terminal; lines that `is_text` holds for may
/// be longer.
///
/// # Panics
///
/// If one has not, or the command fails.
pub fn assert_tables_fit(program: &str, arguments: &[&str], is_text: impl Fn(&str) -> bool) {
    for (columns, locale) in COLUMNS.into_iter().flat_map(|columns| LOCALES.map(|locale| (columns, locale))) {
        let text = printed(program, arguments, columns, locale);
        text.lines()
            .filter(|line| !is_text(line))
            .for_each(|line| assert_line_fits(arguments, line, COLUMNS[0]));
    }
}

/// Checks each page of a program's help, short and long: it is ASCII, fits every terminal, and breaks no word. Returns the
/// number of pages.
///
/// # Panics
///
/// If one does not, or a page is missing.
#[must_use]
pub fn assert_help_fits(program: &str) -> usize {
    let (mut pages, mut checked) = (vec![String::new()], 0);
    while let Some(page) = pages.pop() {
        for flag in ["-h", "--help"] {
            let arguments: Vec<_> = page.split_whitespace().chain([flag]).collect();
            let widest = printed(program, &arguments, 1000, LOCALES[0]);
            for (columns, locale) in
                COLUMNS.into_iter().flat_map(|columns| LOCALES.map(|locale| (columns, locale)))
            {
                let text = printed(program, &arguments, columns, locale);
                text.lines().for_each(|line| assert_line_fits(&arguments, line, columns));
                assert!(
                    text.split_whitespace().eq(widest.split_whitespace()),
                    "{arguments:?}: a broken word"
                );
            }
            let commands = widest.split_once("Commands:\n").map_or("", |(_, commands)| commands);
            let lines = commands.lines().take_while(|line| flag == "-h" && !line.is_empty());
            let names =
                lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
            pages.extend(names.map(|name| format!("{page} {name}")));
            checked += 1;
        }
    }
    checked
}
