//! Configures the export of traces from OpenTelemetry's environment variables.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use onceward_server::{Telemetry, TraceExport};
use percent_encoding::percent_decode_str;

/// Creates telemetry that exports traces to this collector. Headers and sample ratio come from the environment.
pub(super) fn telemetry_for(endpoint: &str) -> Result<Arc<Telemetry>> {
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        bail!("--otlp must be the http:// or https:// URL of a collector");
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let headers = parse_headers(&variable("OTEL_EXPORTER_OTLP_HEADERS")).context("OTEL_EXPORTER_OTLP_HEADERS")?;
    let sample = parse_sample_ratio(&variable("OTEL_TRACES_SAMPLER_ARG")).context("OTEL_TRACES_SAMPLER_ARG")?;
    Telemetry::with_traces(TraceExport { endpoint: endpoint.to_owned(), headers, sample_ratio: sample })
        .context("--otlp")
}

fn parse_headers(text: &str) -> Result<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=').context("expected a list of name=value")?;
        // The OpenTelemetry specification requires the W3C Baggage form, in which values are percent-encoded.
        let value = percent_decode_str(value.trim()).decode_utf8().context("a value is not UTF-8 when decoded")?;
        Ok((name.trim().to_owned(), value.into_owned()))
    };
    pairs.map(read).collect()
}

fn parse_sample_ratio(text: &str) -> Result<f64> {
    if text.trim().is_empty() {
        return Ok(1.0);
    }
    let ratio: f64 = text.trim().parse().context("expected a number from 0 to 1")?;
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { bail!("expected a number from 0 to 1") }
}

#[cfg(test)]
mod tests {
    use super::{parse_headers, parse_sample_ratio};

    #[test]
    fn otlp_variables_are_parsed() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parse_headers("a=b, c = d=e,").unwrap(), [pair("a", "b"), pair("c", "d=e")]);
        assert_eq!(parse_headers("a=Basic%20eA%3D%3D").unwrap(), [pair("a", "Basic eA==")]);
        assert!(parse_headers("").unwrap().is_empty() && parse_headers("a").is_err());
        assert!(
            (parse_sample_ratio("").unwrap() - 1.0).abs() < f64::EPSILON
                && (parse_sample_ratio("0.5").unwrap() - 0.5).abs() < f64::EPSILON
        );
        assert!(parse_sample_ratio("2").is_err() && parse_sample_ratio("x").is_err());
    }
}
