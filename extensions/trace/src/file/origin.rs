//! Where allocations of a trace were requested.

use crate::error::bounds::{MAX_ORIGINS, MAX_POOL_BYTES, MAX_SITE_BYTES};
use std::collections::HashMap;

/// The pool that served an allocation, and the line of code that requested it. Each is empty where it is unknown.
///
/// ```
/// use vrampool_trace::Trace;
/// let csv = "op,id,size,stream,t_us\no,weights,load at model.py:7\na,0,4096,0,0,1\na,1,64,0,2\n";
/// let trace = Trace::parse(csv.as_bytes())?;
/// let origins: Vec<_> = trace.events().iter().map(|event| trace.origin(event)).collect();
/// assert_eq!((&*origins[0].pool, &*origins[0].site), ("weights", "load at model.py:7"));
/// assert_eq!(origins[1].pool, "");
/// # Ok::<(), vrampool_trace::TraceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Origin {
    /// The name of the pool or the child.
    pub pool: String,
    /// The line of code, with the function before it where that is known: `load at model.py:7`.
    pub site: String,
}

impl Origin {
    /// The one of number 0.
    pub(crate) const UNKNOWN: Self = Self { pool: String::new(), site: String::new() };

    /// Of the first bytes of the pool's name, in which a comma is a semicolon, and the last bytes of the site.
    pub(crate) fn new(pool: &str, site: &str) -> Self {
        let clean = |text: &str| text.replace(char::is_control, "\u{fffd}");
        let (mut pool, mut site) = (clean(pool).replace(',', ";"), clean(site));
        pool.truncate((0..=MAX_POOL_BYTES).rfind(|at| pool.is_char_boundary(*at)).unwrap_or(0));
        let from = site.len().saturating_sub(MAX_SITE_BYTES);
        site.drain(..(from..).find(|at| site.is_char_boundary(*at)).unwrap_or(0));
        Self { pool, site }
    }
}

/// Origins by number, from 1; 0 is the unknown one.
#[derive(Debug, Default)]
pub(crate) struct Origins(HashMap<Origin, u32>);

impl Origins {
    /// Returns the number of an origin; 0 for a new one if there are too many.
    pub(crate) fn number(&mut self, origin: Origin) -> u32 {
        let known = self.0.len();
        match self.0.get(&origin) {
            Some(number) => *number,
            None if known == MAX_ORIGINS || origin == Origin::default() => 0,
            None => *self.0.entry(origin).or_insert(known as u32 + 1),
        }
    }

    /// In the order of their numbers.
    pub(crate) fn list(&self) -> Vec<Origin> {
        let mut list: Vec<_> = self.0.iter().collect();
        list.sort_unstable_by_key(|(_, number)| **number);
        list.into_iter().map(|(origin, _)| origin.clone()).collect()
    }
}
