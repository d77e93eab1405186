//! Workers' reports on their jobs. Each has the fencing token of its lease, so repeating a report is safe.

use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{self, Payload};
use crate::transport::{ApiRequest, RetrySafety, percent_encode};
use crate::types::{BatchItemResult, BatchResults, LeasedJob, ReportResult};
use crate::work::Failure;

/// The kind of a report.
#[derive(Clone, Debug)]
pub enum ReportKind {
    Start,
    /// Extends the lease by `lease` or the lifecycle's length. `stop` in the response asks the worker to stop.
    Heartbeat {
        lease: Option<Duration>,
    },
    /// Commits the job's effect, at most once per job. With `finish`, also finishes the execution.
    Commit {
        result: Option<Payload>,
        finish: bool,
    },
    Finish,
    Fail(Failure),
    /// Returns the job without counting a failure.
    Yield,
}

impl ReportKind {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Heartbeat { .. } => "heartbeat",
            Self::Commit { .. } => "commit",
            Self::Finish => "finish",
            Self::Fail(_) => "fail",
            Self::Yield => "yield",
        }
    }
}

/// A report on an execution.
#[derive(Clone, Debug)]
pub struct Report {
    pub execution: String,
    pub token: u64,
    pub kind: ReportKind,
    /// W3C trace context of the lease.
    pub traceparent: Option<Arc<str>>,
}

impl Report {
    pub fn for_job(leased: &LeasedJob, kind: ReportKind) -> Self {
        let traceparent = leased.traceparent.as_deref().map(Into::into);
        Self { execution: leased.id.clone(), token: leased.token, kind, traceparent }
    }

    /// Estimates the serialized size.
    pub(crate) fn estimated_bytes(&self) -> usize {
        let envelope_bytes = 200;
        match &self.kind {
            ReportKind::Commit { result: Some(Payload::Json(json)), .. } => envelope_bytes + json.get().len(),
            ReportKind::Commit { result: Some(Payload::Bytes(bytes)), .. } => envelope_bytes + bytes.len() * 4 / 3,
            ReportKind::Fail(failure) => envelope_bytes + failure.message.len(),
            _ => envelope_bytes,
        }
    }

    fn serialize_body<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("token", &self.token)?;
        match &self.kind {
            ReportKind::Commit { result, finish } => {
                payload::serialize_payload(map, result.as_ref(), ["result", "result_base64"])?;
                if *finish {
                    map.serialize_entry("finish", finish)?;
                }
                Ok(())
            }
            ReportKind::Fail(failure) => map.serialize_entry("error", &FailureBody::from_failure(failure)),
            ReportKind::Heartbeat { lease: Some(lease) } => map.serialize_entry("lease_ms", &duration_millis(*lease)),
            ReportKind::Start | ReportKind::Heartbeat { lease: None } | ReportKind::Finish | ReportKind::Yield => {
                Ok(())
            }
        }
    }
}

pub(crate) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A failure as sent to the server.
#[derive(Serialize)]
struct FailureBody<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> FailureBody<'a> {
    fn from_failure(failure: &'a Failure) -> Self {
        Self {
            code: &failure.code,
            message: &failure.message,
            retryable: failure.retryable,
            retry_after_ms: failure.retry_after.map(duration_millis),
        }
    }
}

/// A single report: execution and kind are in the path.
struct SingleReportBody<'a>(&'a Report);

impl Serialize for SingleReportBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.serialize_body(&mut map)?;
        map.end()
    }
}

/// A report within a batch.
struct BatchReport<'a>(&'a Report);

impl Serialize for BatchReport<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("execution", &self.0.execution)?;
        map.serialize_entry("do", self.0.kind.name())?;
        // In a batch, each report has its own; a single report has it in the header.
        if let Some(traceparent) = &self.0.traceparent {
            map.serialize_entry("traceparent", traceparent)?;
        }
        self.0.serialize_body(&mut map)?;
        map.end()
    }
}

#[derive(Serialize)]
struct ReportBatch<'a> {
    reports: Vec<BatchReport<'a>>,
}

impl Client {
    /// Reports on one execution. Repeated safely because of its fencing token.
    pub async fn report(&self, report: &Report) -> Result<ReportResult, ClientError> {
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..single_report_request(report)? }).await
    }

    /// Reports on many executions, in order. Each report succeeds or fails on its own.
    pub async fn report_batch(&self, reports: &[Report]) -> Result<Vec<BatchItemResult<ReportResult>>, ClientError> {
        let reports: Vec<&Report> = reports.iter().collect();
        let response: BatchResults<ReportResult> = self
            .send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..batch_report_request(&reports)? })
            .await?;
        Ok(response.results)
    }

    /// Sends reports without retries: the caller decides how long to retry.
    pub(crate) async fn report_once(
        &self,
        reports: &[&Report],
    ) -> Result<Vec<BatchItemResult<ReportResult>>, ClientError> {
        if let [report] = reports {
            return match self
                .send_json(&ApiRequest { retry_safety: RetrySafety::Never, ..single_report_request(report)? })
                .await
            {
                Ok(reported) => Ok(vec![BatchItemResult::Succeeded(reported)]),
                Err(error) => Err(error),
            };
        }
        let response: BatchResults<ReportResult> =
            self.send_json(&ApiRequest { retry_safety: RetrySafety::Never, ..batch_report_request(reports)? }).await?;
        Ok(response.results)
    }
}

fn single_report_request(report: &Report) -> Result<ApiRequest, ClientError> {
    let path = format!("/v1/executions/{}/{}", percent_encode(&report.execution), report.kind.name());
    Ok(ApiRequest { traceparent: report.traceparent.clone(), ..ApiRequest::post(path, &SingleReportBody(report))? })
}

fn batch_report_request(reports: &[&Report]) -> Result<ApiRequest, ClientError> {
    let batch = ReportBatch { reports: reports.iter().map(|report| BatchReport(report)).collect() };
    ApiRequest::post("/v1/executions/batch".to_owned(), &batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_json(kind: ReportKind) -> String {
        let report = Report { execution: "a.1".to_owned(), token: 1, kind, traceparent: None };
        serde_json::to_string(&BatchReport(&report)).expect("JSON")
    }

    /// In the header, and in each report of a batch.
    #[test]
    fn report_carries_traceparent_alone_and_in_batch() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let report =
            Report { execution: "a.1".to_owned(), token: 1, kind: ReportKind::Finish, traceparent: Some(trace.into()) };
        let batch = serde_json::to_value(BatchReport(&report)).expect("JSON");
        assert_eq!(batch["traceparent"], trace);
        let request = single_report_request(&report).expect("JSON");
        assert_eq!((request.traceparent.as_deref(), &*request.body), (Some(trace), &b"{\"token\":1}"[..]));
    }

    #[test]
    fn reports_serialize_to_documented_json() {
        let result = Payload::json(&[1]).expect("JSON");
        assert_eq!(
            batch_json(ReportKind::Commit { result: Some(result), finish: true }),
            r#"{"execution":"a.1","do":"commit","token":1,"result":[1],"finish":true}"#
        );
        assert_eq!(
            batch_json(ReportKind::Commit { result: Some(Payload::Bytes("\0".into())), finish: false }),
            r#"{"execution":"a.1","do":"commit","token":1,"result_base64":"AA=="}"#
        );
        let heartbeat_json = |lease| batch_json(ReportKind::Heartbeat { lease });
        assert_eq!(heartbeat_json(None), r#"{"execution":"a.1","do":"heartbeat","token":1}"#);
        assert_eq!(
            heartbeat_json(Some(Duration::from_secs(1))),
            r#"{"execution":"a.1","do":"heartbeat","token":1,"lease_ms":1000}"#
        );
        let failure = Failure::retryable("BUSY", "later").with_retry_after(Duration::from_secs(2));
        assert_eq!(
            batch_json(ReportKind::Fail(failure)),
            r#"{"execution":"a.1","do":"fail","token":1,"error":{"code":"BUSY","message":"later","retryable":true,"retry_after_ms":2000}}"#
        );
    }
}
