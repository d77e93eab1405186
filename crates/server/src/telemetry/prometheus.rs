//! Writes metrics in Prometheus text format or as `OpenMetrics`.

use std::fmt::{Display, Write as _};

use onceward_store::HistogramSnapshot;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric. `docs/observability.md` has the same list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricDefinition {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

pub(crate) const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
pub(crate) const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the metrics page.
#[derive(Debug)]
pub(crate) struct MetricsWriter {
    text: String,
    is_open_metrics: bool,
}

impl MetricsWriter {
    /// Chooses the format by the `Accept` header.
    pub(crate) fn new(accept: &str) -> Self {
        Self { text: String::with_capacity(16 << 10), is_open_metrics: accept.contains("application/openmetrics-text") }
    }

    /// Writes the metric's header. Its samples follow.
    pub(crate) fn begin_metric(&mut self, metric: &MetricDefinition) -> SampleWriter<'_> {
        // `OpenMetrics` names a counter family without the `_total` of its samples.
        let family = match metric.kind {
            MetricKind::Counter if self.is_open_metrics => metric.name.trim_end_matches("_total"),
            _ => metric.name,
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "# HELP {family} {}", metric.help);
        let _ = writeln!(self.text, "# TYPE {family} {}", metric.kind.name());
        SampleWriter { writer: self, name: metric.name, labels: metric.labels }
    }

    /// Returns the content type and the page.
    pub(crate) fn finish(mut self) -> (&'static str, String) {
        if self.is_open_metrics {
            self.text.push_str("# EOF\n");
        }
        (if self.is_open_metrics { OPEN_METRICS_CONTENT_TYPE } else { PROMETHEUS_CONTENT_TYPE }, self.text)
    }
}

/// Writes the samples of one metric.
#[derive(Debug)]
pub(crate) struct SampleWriter<'a> {
    writer: &'a mut MetricsWriter,
    name: &'static str,
    labels: &'static [&'static str],
}

impl SampleWriter<'_> {
    /// `values` are the label values, in the order of the labels.
    pub(crate) fn write_sample(&mut self, values: &[&str], value: impl Display) {
        self.writer.text.push_str(self.name);
        write_labels(&mut self.writer.text, self.labels.iter().copied().zip(values.iter().copied()));
        let _ = writeln!(self.writer.text, " {value}");
    }

    /// Writes a histogram; its values are divided by `scale`.
    pub(crate) fn write_histogram(&mut self, values: &[&str], histogram: &HistogramSnapshot, scale: f64) {
        let mut cumulative = 0;
        let ends = histogram.bounds.iter().map(|bound| (scaled(*bound, scale)).to_string()).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(&histogram.counts) {
            cumulative += count;
            let _ = write!(self.writer.text, "{}_bucket", self.name);
            let all = self.labels.iter().copied().zip(values.iter().copied()).chain([("le", &*end)]);
            write_labels(&mut self.writer.text, all);
            let _ = writeln!(self.writer.text, " {cumulative}");
        }
        for (ending, value) in [("sum", scaled(histogram.sum, scale)), ("count", scaled(cumulative, 1.0))] {
            let _ = write!(self.writer.text, "{}_{ending}", self.name);
            write_labels(&mut self.writer.text, self.labels.iter().copied().zip(values.iter().copied()));
            let _ = writeln!(self.writer.text, " {value}");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are floats")]
pub(crate) fn scaled(value: u64, scale: f64) -> f64 {
    value as f64 / scale
}

fn write_labels<'a>(text: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
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
    use onceward_store::{BATCH_SIZE_BUCKETS, Histogram};

    use super::*;

    const TEST_COUNTER: MetricDefinition =
        MetricDefinition { name: "a_total", kind: MetricKind::Counter, labels: &["of"], help: "As." };
    const TEST_HISTOGRAM: MetricDefinition =
        MetricDefinition { name: "b", kind: MetricKind::Histogram, labels: &[], help: "Bs." };

    fn render_test_metrics(accept: &str) -> (&'static str, String) {
        let mut page = MetricsWriter::new(accept);
        page.begin_metric(&TEST_COUNTER).write_sample(&["x\"y\\z\n"], 3);
        let sizes = Histogram::new(BATCH_SIZE_BUCKETS);
        for size in [1, 1, 7, 5_000] {
            sizes.record(size);
        }
        page.begin_metric(&TEST_HISTOGRAM).write_histogram(&[], &sizes.snapshot(), 1.0);
        page.finish()
    }

    #[test]
    fn metrics_render_as_prometheus_text_and_openmetrics() {
        let (kind, text) = render_test_metrics("*/*");
        assert_eq!(kind, PROMETHEUS_CONTENT_TYPE);
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
        let (kind, text) = render_test_metrics("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
        assert_eq!(kind, OPEN_METRICS_CONTENT_TYPE);
        assert!(text.contains("# TYPE a counter\na_total{") && text.ends_with("# EOF\n"), "{text}");
    }
}
