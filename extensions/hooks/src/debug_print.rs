//! A hook that writes a line for each event of a pool.

use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::io::{Stdout, Write, stdout};
use vrampool::backend::logging;
use vrampool::hooks::{Hook, HookEvent, Outcome};

/// Writes a line of JSON after each request (`malloc`), each driver allocation (`alloc`) and each free: CuPy's
/// `DebugPrintHook`, with its names.
///
/// ```text
/// {"hook":"alloc","device_id":"host:1","mem_size":1024,"mem_ptr":150496608256,"pmem_id":"0x7","pool":"pool-0","site":"src/main.rs:9:22","outcome":"done"}
/// {"hook":"malloc","device_id":"host:1","size":24,"mem_size":1024,"mem_ptr":150496608256,"pmem_id":"0x7","pool":"pool-0","site":"src/main.rs:9:22","outcome":"done"}
/// {"hook":"free","device_id":"host:1","mem_size":1024,"mem_ptr":150496608256,"pmem_id":"0x7","pool":"pool-0","site":"src/main.rs:9:22","outcome":"done"}
/// ```
///
/// * `size`: the requested bytes; `mem_size`: the same, rounded up.
/// * `mem_ptr`: the address; 0 without memory or without addresses.
/// * `pmem_id`: the request's identity, which its allocations and its free have too.
/// * `site`: the source line of the request; `outcome`: `done` or `failed`.
///
/// A line that cannot be written is omitted, with a warning in the log.
#[doc(alias = "DebugPrintHook")]
pub struct DebugPrint<W> {
    writer: Mutex<W>,
}

impl<W: Write + Send> DebugPrint<W> {
    /// Writes to `writer`, which is flushed after each line.
    #[must_use]
    pub fn new(writer: W) -> Self {
        Self { writer: Mutex::new(writer) }
    }

    /// Returns the writer.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.writer.into_inner()
    }

    fn print(&self, hook: &str, event: &HookEvent<'_>) {
        let is_request = hook == "malloc";
        let size = if is_request { format!(r#""size":{},"#, event.requested_bytes) } else { String::new() };
        let outcome = if event.outcome == Outcome::Failed { "failed" } else { "done" };
        let line = format!(
            "{{\"hook\":\"{hook}\",\"device_id\":\"{}\",{size}\"mem_size\":{},\"mem_ptr\":{},\"pmem_id\":\"{:#x}\",\
             \"pool\":\"{}\",\"site\":\"{}\",\"outcome\":\"{outcome}\"}}\n",
            Escaped(&event.device),
            event.rounded_bytes,
            event.address.unwrap_or(0),
            event.id,
            Escaped(&event.pool),
            Escaped(&event.site),
        );
        let mut writer = self.writer.lock();
        let written = writer.write_all(line.as_bytes()).and_then(|()| writer.flush());
        drop(writer);
        if let Err(error) = written {
            logging::warn!("debug print: a line was not written: {error}");
        }
    }
}

impl DebugPrint<Stdout> {
    /// Writes to the standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(stdout())
    }
}

impl<W: Write + Send> Hook for DebugPrint<W> {
    fn name(&self) -> &str {
        "debug print"
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.print("malloc", event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.print("alloc", event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.print("free", event);
    }
}

impl<W> fmt::Debug for DebugPrint<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebugPrint").field("busy", &self.writer.is_locked()).finish_non_exhaustive()
    }
}

/// Escapes the contents of a JSON string.
struct Escaped<'a, T>(&'a T);

impl<T: fmt::Display> fmt::Display for Escaped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '"' | '\\' => write!(self.0, "\\{character}"),
            '\0'..='\x1f' => write!(self.0, "\\u{:04x}", u32::from(character)),
            _ => self.0.write_char(character),
        })
    }
}
