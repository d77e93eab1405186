//! Metrics as text, in the form that Prometheus reads and in `OpenMetrics`.

use std::fmt::{Display, Write as _};

use onceward_store::Distribution;

/// What a metric is, for its line of type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric: its whole name, what it is and what it tells. docs/observability.md has the same list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

pub(crate) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A page that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    open: bool,
}

impl Page {
    /// In the form that the header `Accept` asks for.
    pub(crate) fn new(accept: &str) -> Self {
        Self { text: String::with_capacity(16 << 10), open: accept.contains("application/openmetrics-text") }
    }

    /// Begin a metric. Its samples follow.
    pub(crate) fn metric(&mut self, metric: &Metric) -> Samples<'_> {
        // OpenMetrics knows a counter by its name without the ending that its samples have.
        let family = match metric.kind {
            Kind::Counter if self.open => metric.name.trim_end_matches("_total"),
            _ => metric.name,
        };
        // Writing to a text does not fail.
        let _ = writeln!(self.text, "# HELP {family} {}", metric.help);
        let _ = writeln!(self.text, "# TYPE {family} {}", metric.kind.name());
        Samples { page: self, name: metric.name, labels: metric.labels }
    }

    /// The page and its type.
    pub(crate) fn end(mut self) -> (&'static str, String) {
        if self.open {
            self.text.push_str("# EOF\n");
        }
        (if self.open { OPEN_METRICS } else { PROMETHEUS }, self.text)
    }
}

/// Where the samples of one metric go.
#[derive(Debug)]
pub(crate) struct Samples<'a> {
    page: &'a mut Page,
    name: &'static str,
    labels: &'static [&'static str],
}

impl Samples<'_> {
    /// The labels' values in the order of their names.
    pub(crate) fn add(&mut self, values: &[&str], value: impl Display) {
        self.page.text.push_str(self.name);
        labels(&mut self.page.text, self.labels.iter().copied().zip(values.iter().copied()));
        let _ = writeln!(self.page.text, " {value}");
    }

    /// A distribution; `scale` is what its values are divided by.
    pub(crate) fn spread(&mut self, values: &[&str], of: &Distribution, scale: f64) {
        let mut so_far = 0;
        let ends = of.bounds.iter().map(|bound| (scaled(*bound, scale)).to_string()).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(&of.counts) {
            so_far += count;
            let _ = write!(self.page.text, "{}_bucket", self.name);
            let all = self.labels.iter().copied().zip(values.iter().copied()).chain([("le", &*end)]);
            labels(&mut self.page.text, all);
            let _ = writeln!(self.page.text, " {so_far}");
        }
        for (ending, value) in [("sum", scaled(of.sum, scale)), ("count", scaled(so_far, 1.0))] {
            let _ = write!(self.page.text, "{}_{ending}", self.name);
            labels(&mut self.page.text, self.labels.iter().copied().zip(values.iter().copied()));
            let _ = writeln!(self.page.text, " {value}");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a float wherever it goes")]
pub(crate) fn scaled(value: u64, scale: f64) -> f64 {
    value as f64 / scale
}

fn labels<'a>(text: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut before = '{';
    for (name, value) in labels {
        text.push(before);
        before = ',';
        let _ = write!(text, "{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    if before == ',' {
        text.push('}');
    }
}

#[cfg(test)]
mod tests {
    use onceward_store::{Histogram, SIZES};

    use super::*;

    const COUNTER: Metric = Metric { name: "a_total", kind: Kind::Counter, labels: &["of"], help: "As." };
    const SPREAD: Metric = Metric { name: "b", kind: Kind::Histogram, labels: &[], help: "Bs." };

    fn page(accept: &str) -> (&'static str, String) {
        let mut page = Page::new(accept);
        page.metric(&COUNTER).add(&["x\"y\\z\n"], 3);
        let sizes = Histogram::new(SIZES);
        for size in [1, 1, 7, 5_000] {
            sizes.add(size);
        }
        page.metric(&SPREAD).spread(&[], &sizes.counted(), 1.0);
        page.end()
    }

    #[test]
    fn both_forms_are_as_their_readers_want_them() {
        let (kind, text) = page("*/*");
        assert_eq!(kind, PROMETHEUS);
        assert!(
            text.starts_with("# HELP a_total As.\n# TYPE a_total counter\na_total{of=\"x\\\"y\\\\z\\n\"} 3\n"),
            "{text}"
        );
        for line in
            ["b_bucket{le=\"1\"} 2", "b_bucket{le=\"10\"} 3", "b_bucket{le=\"+Inf\"} 4", "b_sum 5009", "b_count 4"]
        {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
        assert!(!text.contains("# EOF"));
        let (kind, text) = page("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
        assert_eq!(kind, OPEN_METRICS);
        assert!(text.contains("# TYPE a counter\na_total{") && text.ends_with("# EOF\n"), "{text}");
    }
}
