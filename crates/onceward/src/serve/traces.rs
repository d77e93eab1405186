//! Where traces go, as the environment says it.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use onceward_server::{Observe, Tracing};

/// Traces to this collector, with the headers and the part of requests that OpenTelemetry's own variables name.
pub(super) fn observe(endpoint: &str) -> Result<Arc<Observe>> {
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        bail!("--otlp wants the http:// or https:// address of a collector");
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let headers = headers(&variable("OTEL_EXPORTER_OTLP_HEADERS")).context("OTEL_EXPORTER_OTLP_HEADERS")?;
    let sample = sample(&variable("OTEL_TRACES_SAMPLER_ARG")).context("OTEL_TRACES_SAMPLER_ARG")?;
    Observe::tracing(Tracing { endpoint: endpoint.to_owned(), headers, sample }).context("traces")
}

fn headers(text: &str) -> Result<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=').context("is a list of name=value")?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(read).collect()
}

fn sample(text: &str) -> Result<f64> {
    if text.trim().is_empty() {
        return Ok(1.0);
    }
    let part: f64 = text.trim().parse().context("is a number from 0 to 1")?;
    if (0.0..=1.0).contains(&part) { Ok(part) } else { bail!("is a number from 0 to 1") }
}

#[cfg(test)]
mod tests {
    use super::{headers, sample};

    #[test]
    fn the_environment_is_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers("a=b, c = d=e,").unwrap(), [pair("a", "b"), pair("c", "d=e")]);
        assert!(headers("").unwrap().is_empty() && headers("a").is_err());
        assert!(
            (sample("").unwrap() - 1.0).abs() < f64::EPSILON && (sample("0.5").unwrap() - 0.5).abs() < f64::EPSILON
        );
        assert!(sample("2").is_err() && sample("x").is_err());
    }
}
