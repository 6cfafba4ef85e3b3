//! The screen and the keys of `top`.

use super::exporter::{Exporter, News};
use super::figures::Level;
use super::screen::{Look, PLAIN, View};
use crate::interrupt::Interrupt;
use crate::stdout::Ended;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use std::error::Error;
use std::io::{self, Write};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long a reading waits for the screen at most.
const TICK: Duration = Duration::from_millis(50);

struct Top {
    view: View,
    exporters: Vec<Exporter>,
    paused: bool,
    /// Whether keys are letters of the filter.
    typing: bool,
    scrolled: usize,
}

/// The terminal in raw mode, restored when this is dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Shows the exporters until a key or a signal ends it.
pub(super) fn show(
    view: View,
    exporters: Vec<Exporter>,
    readings: &Receiver<News>,
) -> Result<(), Box<dyn Error>> {
    let mut top = Top { view, exporters, paused: false, typing: false, scrolled: 0 };
    let interrupt = Interrupt::listen()?;
    let _screen = Screen::enter()?;
    let mut is_new = true;
    loop {
        if let Some(exit_code) = interrupt.exit_code() {
            return Err(Ended { text: String::new(), exit_code }.into());
        }
        for (at, reading) in readings.try_iter() {
            if !top.paused {
                top.exporters[at].note(reading);
                is_new = true;
            }
        }
        if is_new {
            top.draw()?;
        }
        is_new = event::poll(TICK)?;
        if is_new
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let interrupts = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
            if interrupts || !top.press(key.code) {
                return Ok(());
            }
        }
    }
}

impl Top {
    /// Returns whether the program continues.
    fn press(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Enter | KeyCode::Esc if self.typing => self.typing = false,
            KeyCode::Backspace if self.typing => drop(self.view.filter.pop()),
            KeyCode::Char(letter) if self.typing => self.view.filter.push(letter),
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('b') => self.view.parts = !self.view.parts,
            KeyCode::Char('/') => (self.typing, self.view.filter) = (true, String::new()),
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            _ => {}
        }
        true
    }

    fn draw(&mut self) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        self.scrolled = self.scrolled.min(self.view.rows(&self.exporters).len().saturating_sub(1));
        // One line is the state, one the keys.
        let most = usize::from(rows).saturating_sub(2);
        let mut lines = self.view.lines(&self.exporters, columns.into(), self.scrolled, most);
        let order = format!("{:?}", self.view.sort).to_lowercase();
        let state = if self.paused { "paused" } else { "live" };
        let head = format!("vrampool top: {state}, by {order}, filter: {}", self.view.filter);
        lines.insert(0, (head, PLAIN));
        lines.resize(rows.saturating_sub(1).into(), (String::new(), PLAIN));
        let keys = if self.typing {
            "Enter: end the filter"
        } else {
            "q quit  p pause  s sort  / filter  b buckets"
        };
        lines.push((keys.into(), PLAIN));
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        for (row, (line, look)) in (0..rows).zip(lines) {
            queue!(out, MoveTo(0, row))?;
            match look {
                Look::Of(Level::Green) => {}
                Look::Of(Level::Yellow) => queue!(out, SetForegroundColor(Color::Yellow))?,
                Look::Of(Level::Red) => queue!(out, SetForegroundColor(Color::Red))?,
                Look::Old => queue!(out, SetAttribute(Attribute::Dim))?,
            }
            let line = format!("{line:<width$}", width = columns.into());
            queue!(out, Print(line), ResetColor, SetAttribute(Attribute::Reset))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        out.flush()
    }
}
