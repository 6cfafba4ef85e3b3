//! Figures of statistics. A table states the name, kind, unit and help of each once; [`figures!`](crate::figures!)
//! generates a struct with sums, flat records and metrics from it.

use std::time::Duration;

/// The behaviour of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureKind {
    /// Only grows. The counts of the next owner of the name continue those of the one before.
    Counter,
    /// As [`Counter`](Self::Counter), for a duration. Its name ends with `nanoseconds`; exported in seconds.
    Time,
    /// Rises and falls; 0 once its owner has ended.
    Gauge,
    /// As [`Gauge`](Self::Gauge), for the time since an event: of several owners the longest. Exported in seconds.
    Age,
    /// The time of the latest event, in seconds since 1970; 0 before the first one, and not exported then.
    Moment,
    /// The highest value of a gauge.
    Peak,
    /// A bound, or `None`.
    Cap,
    /// A number that is set when the owner is made.
    Constant,
    /// Not a number. Neither exported nor in C.
    Setting,
}

/// The label of a figure in Prometheus, beyond those of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureLabel {
    /// No label.
    None,
    /// Metric, label and help: all figures of the group are one metric, and each is a value of the label.
    Split(&'static str, &'static str, &'static str),
    /// One series for each of several owners, whose names are the values of the label.
    Each(&'static str),
    /// Metric and help: the figures of the group are one histogram. Its counts are `within_10us`, `within_100us` … up
    /// to `within_100s`, and `longer`, each without the ones before, and a [`Time`](FigureKind::Time) is their sum.
    Histogram(&'static str, &'static str),
}

/// A row of a table of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figure {
    /// The name in a flat record, in C and in Python.
    pub name: &'static str,
    /// The name in Prometheus; empty if it is not exported.
    pub metric: &'static str,
    /// The name in its group, without `by_`: the value of a split label. Of a histogram, the bound in seconds.
    pub short: &'static str,
    /// The behaviour.
    pub kind: FigureKind,
    /// The unit.
    pub unit: &'static str,
    /// The meaning, a sentence.
    pub help: &'static str,
    /// The label in Prometheus.
    pub label: FigureLabel,
}

impl Figure {
    /// Makes a row.
    #[must_use]
    pub const fn new(
        [name, metric, field]: [&'static str; 3],
        kind: FigureKind,
        unit: &'static str,
        help: &'static str,
        label: FigureLabel,
    ) -> Self {
        let metric = match (kind, label) {
            (FigureKind::Setting, _) => "",
            (_, FigureLabel::Split(shared, ..) | FigureLabel::Histogram(shared, _)) => shared,
            (_, FigureLabel::None | FigureLabel::Each(_)) => metric,
        };
        let short = match label {
            FigureLabel::Histogram(..) => bound_of(field),
            _ => without_by(field),
        };
        Self { name, metric, short, kind, unit, help, label }
    }

    /// Whether it is a metric, or a value of one.
    #[must_use]
    pub fn is_exported(&self) -> bool {
        !self.metric.is_empty()
    }

    /// Returns the type of its metric, in Prometheus's words.
    #[must_use]
    pub fn metric_type(&self) -> &'static str {
        match (self.label, self.kind) {
            (FigureLabel::Histogram(..), _) => "histogram",
            (_, FigureKind::Counter | FigureKind::Time) => "counter",
            _ => "gauge",
        }
    }

    /// Returns the help of its metric.
    #[must_use]
    pub fn metric_help(&self) -> &'static str {
        match self.label {
            FigureLabel::Split(_, _, help) | FigureLabel::Histogram(_, help) => help,
            FigureLabel::None | FigureLabel::Each(_) => self.help,
        }
    }

    /// Returns the unit of its metric.
    #[must_use]
    pub fn metric_unit(&self) -> &'static str {
        match (self.label, self.kind) {
            (FigureLabel::Histogram(..), _) | (_, FigureKind::Time | FigureKind::Age) => "seconds",
            _ => self.unit,
        }
    }

    /// Returns what the name of its series has behind that of its metric: `_bucket` or `_sum` in a histogram.
    #[must_use]
    pub fn series_suffix(&self) -> &'static str {
        match (self.label, self.kind) {
            (FigureLabel::Histogram(..), FigureKind::Time) => "_sum",
            (FigureLabel::Histogram(..), _) => "_bucket",
            _ => "",
        }
    }

    /// Returns the name of its own label; `None` without one.
    #[must_use]
    pub fn metric_label(&self) -> Option<&'static str> {
        match self.label {
            FigureLabel::None => None,
            FigureLabel::Split(_, label, _) | FigureLabel::Each(label) => Some(label),
            FigureLabel::Histogram(..) => (self.kind != FigureKind::Time).then_some("le"),
        }
    }
}

/// The value of a figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd)]
#[non_exhaustive]
pub enum FigureValue {
    /// A count, bytes, or nanoseconds.
    Number(u64),
    /// A bound, or `None`.
    Cap(Option<u64>),
    /// A setting.
    Text(String),
}

/// A struct that [`figures!`](crate::figures!) makes.
pub trait Group {
    /// Passes each figure with its value: those of the group, then those of the groups in it.
    fn visit(&self, to: &mut dyn FnMut(&'static Figure, FigureValue));

    /// Adds all counts and bytes of another owner.
    fn merge(&mut self, other: &Self);

    /// Adds the counts of an earlier owner of the name.
    fn count_on(&mut self, before: &Self);

    /// Returns the figures with their values, in the order of the table.
    fn figures(&self) -> Vec<(&'static Figure, FigureValue)> {
        let mut figures = Vec::new();
        self.visit(&mut |figure, value| figures.push((figure, value)));
        figures
    }

    /// Returns the rows of the table, in order.
    #[must_use]
    fn table() -> Vec<&'static Figure>
    where
        Self: Default,
    {
        Self::default().figures().into_iter().map(|(figure, _)| figure).collect()
    }
}

/// A number among the fields of a [`Group`].
pub trait Field {
    /// Returns the value.
    fn value(&self) -> FigureValue;

    /// Adds the value of another owner.
    fn add(&mut self, more: &Self);
}

/// Makes a type a number among the fields of a group.
macro_rules! field {
    ($type:ty, |$value:ident| $number:expr) => {
        impl Field for $type {
            fn value(&self) -> FigureValue {
                let $value = *self;
                FigureValue::Number($number)
            }

            fn add(&mut self, more: &Self) {
                *self = self.saturating_add(*more);
            }
        }
    };
}

field!(u64, |count| count);
field!(usize, |count| count as u64);
field!(Duration, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));

/// The bound of a histogram's count, in seconds.
const fn bound_of(field: &'static str) -> &'static str {
    match field.as_bytes() {
        b"within_10us" => "0.00001",
        b"within_100us" => "0.0001",
        b"within_1ms" => "0.001",
        b"within_10ms" => "0.01",
        b"within_100ms" => "0.1",
        b"within_1s" => "1",
        b"within_10s" => "10",
        b"within_100s" => "100",
        _ => "+Inf",
    }
}

/// `by_limit` is the value `limit`.
const fn without_by(field: &'static str) -> &'static str {
    if let [b'b', b'y', b'_', value @ ..] = field.as_bytes()
        && let Ok(value) = std::str::from_utf8(value)
    {
        return value;
    }
    field
}

/// Makes a struct of a table: prefix of its names, label, then a row for each figure.
///
/// A row is a [`FigureKind`], the field, its type, the unit and the help. After the rows may follow `+ total "…"`,
/// which documents a method that adds up all figures; `+ groups { "help" field: Type; }`, further structs of figures;
/// and `+ others { … }`, further fields. The struct implements [`Group`].
///
/// ```
/// use vrampool::figures::{FigureLabel, Group};
///
/// vrampool::figures! {
///     /// Figures of a queue.
///     #[derive(Debug, Default)]
///     pub struct QueueStats("queue_", FigureLabel::None) {
///         Counter pushes: u64, "pushes", "Entries that were added.";
///         Gauge held_bytes: u64, "bytes", "Bytes of the entries.";
///     }
/// }
///
/// let names: Vec<_> = QueueStats::table().into_iter().map(|figure| (figure.name, figure.metric)).collect();
/// assert_eq!(names[0], ("queue_pushes", "vrampool_queue_pushes_total"));
/// assert_eq!(names[1], ("queue_held_bytes", "vrampool_queue_held_bytes"));
///
/// let mut sum = QueueStats { pushes: 2, held_bytes: 10 };
/// sum.merge(&QueueStats { pushes: 1, held_bytes: 5 });
/// assert_eq!((sum.pushes, sum.held_bytes), (3, 15));
/// ```
#[macro_export]
macro_rules! figures {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident($prefix:literal, $label:expr) {
            $($(#[$more:meta])* $kind:ident $field:ident: $type:ty, $unit:literal, $help:literal;)+
            $(+ total $total:literal)?
            $(+ groups { $($group_help:literal $group:ident: $group_type:ty;)+ })?
            $(+ others { $($(#[$other_attribute:meta])* $visibility:vis $other:ident: $other_type:ty,)+ })?
        }
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        pub struct $name {
            $(#[doc = $help] $(#[$more])* pub $field: $type,)+
            $($(#[doc = $group_help] pub $group: $group_type,)+)?
            $($($(#[$other_attribute])* $visibility $other: $other_type,)+)?
        }

        impl $name {
            const FIGURES: &'static [$crate::figures::Figure] = &[$($crate::figures::Figure::new(
                [
                    $crate::figures!(@name $kind $prefix $field),
                    $crate::figures!(@metric $kind $prefix $field),
                    stringify!($field),
                ],
                $crate::figures::FigureKind::$kind,
                $unit,
                $help,
                $label,
            )),+];
        }

        $crate::figures!(@total $name [$($total)?] $($field)+);

        impl $crate::figures::Group for $name {
            fn visit(&self, to: &mut dyn FnMut(&'static $crate::figures::Figure, $crate::figures::FigureValue)) {
                let values = [$($crate::figures!(@value $kind self.$field)),+];
                Self::FIGURES.iter().zip(values).for_each(|(figure, value)| to(figure, value));
                $($($crate::figures::Group::visit(&self.$group, to);)+)?
            }

            fn merge(&mut self, other: &Self) {
                $($crate::figures!(@merge $kind self.$field, other.$field);)+
                $($($crate::figures::Group::merge(&mut self.$group, &other.$group);)+)?
                // For a group of caps alone.
                let _ = other;
            }

            fn count_on(&mut self, before: &Self) {
                $($crate::figures!(@add $kind self.$field, before.$field);)+
                $($($crate::figures::Group::count_on(&mut self.$group, &before.$group);)+)?
                // As above.
                let _ = before;
            }
        }
    };
    (@total $name:ident [] $($field:ident)+) => {};
    (@total $name:ident [$help:literal] $($field:ident)+) => {
        impl $name {
            #[doc = $help]
            #[must_use]
            pub fn total(&self) -> u64 {
                [$(self.$field),+].into_iter().fold(0, u64::saturating_add)
            }
        }
    };
    (@name Time $prefix:literal $field:ident) => {
        concat!($prefix, "nanoseconds")
    };
    (@name Age $prefix:literal $field:ident) => {
        concat!($prefix, stringify!($field), "_nanoseconds")
    };
    (@name $kind:ident $prefix:literal $field:ident) => {
        concat!($prefix, stringify!($field))
    };
    // A name that ends with `_bucket` is a histogram's.
    (@metric Cap $prefix:literal max_buffers_per_bucket) => {
        "vrampool_bucket_max_buffers"
    };
    (@metric Counter $prefix:literal $field:ident) => {
        concat!("vrampool_", $prefix, stringify!($field), "_total")
    };
    (@metric Time $prefix:literal $field:ident) => {
        concat!("vrampool_", $prefix, "seconds_total")
    };
    (@metric Age $prefix:literal $field:ident) => {
        concat!("vrampool_", $prefix, stringify!($field), "_seconds")
    };
    (@metric $kind:ident $prefix:literal $field:ident) => {
        concat!("vrampool_", $prefix, stringify!($field))
    };
    (@value Setting $field:expr) => {
        $crate::figures::FigureValue::Text($field.to_string())
    };
    (@value Cap $field:expr) => {
        $crate::figures::FigureValue::Cap($field)
    };
    (@value $kind:ident $field:expr) => {
        $crate::figures::Field::value(&$field)
    };
    (@merge Cap $field:expr, $more:expr) => {};
    (@merge Constant $field:expr, $more:expr) => {};
    (@merge Setting $field:expr, $more:expr) => {};
    (@merge Age $field:expr, $more:expr) => {
        $field = $field.max($more)
    };
    (@merge Moment $field:expr, $more:expr) => {
        $field = $field.max($more)
    };
    (@merge $kind:ident $field:expr, $more:expr) => {
        $crate::figures::Field::add(&mut $field, &$more)
    };
    (@add Counter $field:expr, $more:expr) => {
        $crate::figures::Field::add(&mut $field, &$more)
    };
    (@add Time $field:expr, $more:expr) => {
        $crate::figures::Field::add(&mut $field, &$more)
    };
    (@add Moment $field:expr, $more:expr) => {
        $field = $field.max($more)
    };
    (@add $kind:ident $field:expr, $more:expr) => {};
}
