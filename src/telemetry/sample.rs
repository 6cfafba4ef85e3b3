//! One figure on its way to a recorder or into a scrape's answer.

/// One value of one metric, without the labels of its series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) name: &'static str,
    /// A label beyond those of the series.
    pub(super) label: Option<(&'static str, &'a str)>,
    pub(super) value: Value,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Count(u64),
    Gauge(f64),
}

impl<'a> Sample<'a> {
    pub(super) fn count(name: &'static str, value: u64) -> Self {
        Self { name, label: None, value: Value::Count(value) }
    }

    pub(super) fn gauge(name: &'static str, value: f64) -> Self {
        Self { name, label: None, value: Value::Gauge(value) }
    }

    pub(super) fn with(self, label: &'static str, value: &'a str) -> Self {
        Self { label: Some((label, value)), ..self }
    }
}

/// What a pool or a broker exports at one moment.
pub(super) trait Figures: Clone + Send + 'static {
    /// These figures, with counts that go on where those of an earlier owner of the series ended.
    #[must_use]
    fn counting_on(&self, before: &Self) -> Self;

    /// The same counts, of an owner that is gone and holds nothing.
    #[must_use]
    fn closed(&self) -> Self;

    fn samples(&self, to: &mut dyn FnMut(Sample<'_>));
}
