//! The compared choices: a source, size classes, and whether buckets keep idle buffers.

use std::fmt;
use vrampool::{Backend, PoolBuilder, SizeClasses, SizeTable, Source};

/// Size classes, by the name in the table.
#[derive(Debug, Clone)]
pub(super) struct Classes {
    pub(super) name: String,
    pub(super) rule: SizeClasses,
    /// Whether they are fitted to the first half of the trace alone.
    pub(super) is_of_half: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) source: Source,
    pub(super) classes: Classes,
    /// Whether everything that is freed returns to the source.
    pub(super) keeps_nothing: bool,
}

impl Classes {
    /// The one rule of a flag, or every rule that has a name.
    pub(super) fn rules(only: Option<&SizeClasses>) -> Vec<Self> {
        const ALL: [SizeClasses; 5] = [
            SizeClasses::Fixed,
            SizeClasses::PowerOfTwo,
            SizeClasses::GEOMETRIC,
            SizeClasses::Tight,
            SizeClasses::EXACT,
        ];
        let named = |rule: SizeClasses| Self { name: rule.to_string(), rule, is_of_half: false };
        only.map_or_else(|| ALL.map(named).into(), |rule| vec![named(rule.clone())])
    }

    /// Classes fitted to the trace, or to its first half.
    pub(super) fn fitted(classes: SizeTable, is_of_half: bool) -> Self {
        let name = if is_of_half { "half-fitted" } else { "fitted" };
        Self { name: name.into(), rule: SizeClasses::Table(classes), is_of_half }
    }

    /// Whether they are read from a file.
    pub(super) fn is_fitted(&self) -> bool {
        self.name.starts_with("fitted")
    }
}

impl Choice {
    /// Every source, or that of a flag, with all these classes.
    pub(super) fn all(only: Option<Source>, classes: &[Classes]) -> Vec<Self> {
        // The driver's own pool holds what direct allocations hold, and differs in time alone.
        let sources =
            only.map_or_else(|| vec![Source::Virtual, Source::Direct, Source::Arena], |only| vec![only]);
        sources
            .into_iter()
            .flat_map(|source| {
                // Blocks over a cap coalesce in an arena, and cost a call elsewhere.
                let keeps = if source == Source::Arena { &[false, true][..] } else { &[false] };
                let choices = move |&keeps_nothing| {
                    classes.iter().map(move |classes| Self {
                        source,
                        classes: classes.clone(),
                        keeps_nothing,
                    })
                };
                keeps.iter().flat_map(choices)
            })
            .collect()
    }

    /// Applies it, after the flags of the command.
    pub(super) fn apply<B: Backend>(&self, builder: PoolBuilder<B>) -> PoolBuilder<B> {
        let builder = builder.source(self.source).size_classes(self.classes.rule.clone());
        if self.keeps_nothing { builder.max_cached_bytes(0) } else { builder }
    }

    /// The settings, by their names and as texts, a line each. `file` is that of fitted classes; `limit` is for an
    /// arena.
    pub(super) fn settings(&self, file: &str, limit: u64) -> Vec<String> {
        let classes =
            if self.classes.is_fitted() { format!("fitted:{file}") } else { self.classes.name.clone() };
        let mut settings = vec![format!("source={}", self.source), format!("size_classes={classes}")];
        if self.source == Source::Arena {
            settings.push(format!("limit={}GiB", limit.div_ceil(1 << 30)));
        }
        if self.keeps_nothing {
            settings.push("max_cached_bytes=0".into());
        }
        settings
    }

    /// The source, and whether its buckets keep nothing.
    pub(super) fn source(&self) -> String {
        if self.keeps_nothing { format!("{} only", self.source) } else { self.source.to_string() }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.source(), self.classes.name)
    }
}
