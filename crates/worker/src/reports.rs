//! Workers' reports on their jobs. Each has the fencing token of its lease, so repeating a report is safe.

use std::sync::Arc;
use std::time::Duration;

use onceward_api_types as wire;
use onceward_api_types::{BatchReturn, ReportBatchItem, ReportResult};

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{Payload, wire_members};
use crate::transport::{ApiRequest, RetrySafety, percent_encode};
use crate::types::{BatchItemResult, LeasedJob};
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

    const fn wire_kind(&self) -> wire::ReportKind {
        match self {
            Self::Start => wire::ReportKind::Start,
            Self::Heartbeat { .. } => wire::ReportKind::Heartbeat,
            Self::Commit { .. } => wire::ReportKind::Commit,
            Self::Finish => wire::ReportKind::Finish,
            Self::Fail(_) => wire::ReportKind::Fail,
            Self::Yield => wire::ReportKind::Yield,
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

    /// Returns the body of a single report. Execution and kind are in the path, the trace context is in a header.
    fn body(&self) -> wire::NewReport {
        let mut body = wire::NewReport::new(self.token);
        match &self.kind {
            ReportKind::Commit { result, finish } => {
                (body.result, body.result_base64) = wire_members(result.as_ref());
                body.finish = *finish;
            }
            ReportKind::Fail(failure) => {
                body.error = Some(wire::FailureReport {
                    code: failure.code.clone(),
                    message: failure.message.clone(),
                    retryable: failure.retryable,
                    retry_after_ms: failure.retry_after.map(duration_millis),
                });
            }
            ReportKind::Heartbeat { lease } => body.lease_ms = lease.map(duration_millis),
            ReportKind::Start | ReportKind::Finish | ReportKind::Yield => {}
        }
        body
    }

    /// Returns the body of a report within a batch.
    fn batch_body(&self) -> wire::NewReport {
        wire::NewReport {
            execution: Some(self.execution.clone()),
            kind: Some(self.kind.wire_kind()),
            traceparent: self.traceparent.as_deref().map(str::to_owned),
            ..self.body()
        }
    }
}

pub(crate) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Client {
    /// Reports on one execution. Repeated safely because of its fencing token.
    pub async fn report(&self, report: &Report) -> Result<ReportResult, ClientError> {
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..single_report_request(report)? }).await
    }

    /// Reports on many executions, in order. Each report succeeds or fails on its own.
    pub async fn report_batch(
        &self,
        reports: &[Report],
        returns: BatchReturn,
    ) -> Result<Vec<BatchItemResult<ReportBatchItem>>, ClientError> {
        let reports: Vec<&Report> = reports.iter().collect();
        let request = batch_report_request(&reports, returns)?;
        self.send_batch(ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
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
        // Only a handler that commits and goes on gets the record.
        let needs_record = |report: &&Report| matches!(report.kind, ReportKind::Commit { finish: false, .. });
        let returns = if reports.iter().any(needs_record) { BatchReturn::Record } else { BatchReturn::Summary };
        let request = batch_report_request(reports, returns)?;
        let results = self.send_batch(ApiRequest { retry_safety: RetrySafety::Never, ..request }).await?;
        Ok(results.into_iter().map(Into::into).collect())
    }

    async fn send_batch(&self, request: ApiRequest) -> Result<Vec<BatchItemResult<ReportBatchItem>>, ClientError> {
        let response: wire::ReportBatchResult = self.send_json(&request).await?;
        Ok(response.results.into_iter().map(Into::into).collect())
    }
}

fn single_report_request(report: &Report) -> Result<ApiRequest, ClientError> {
    let path = format!("/v1/executions/{}/{}", percent_encode(&report.execution), report.kind.name());
    Ok(ApiRequest { traceparent: report.traceparent.clone(), ..ApiRequest::post(path, &report.body())? })
}

fn batch_report_request(reports: &[&Report], returns: BatchReturn) -> Result<ApiRequest, ClientError> {
    let reports: Vec<_> = reports.iter().map(|report| report.batch_body()).collect();
    let batch = wire::NewReportBatch { reports, returns };
    ApiRequest::post("/v1/executions/batch".to_owned(), &batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_json(kind: ReportKind) -> String {
        let report = Report { execution: "a.1".to_owned(), token: 1, kind, traceparent: None };
        serde_json::to_string(&report.batch_body()).expect("JSON")
    }

    /// In the header, and in each report of a batch.
    #[test]
    fn report_carries_traceparent_alone_and_in_batch() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let report =
            Report { execution: "a.1".to_owned(), token: 1, kind: ReportKind::Finish, traceparent: Some(trace.into()) };
        let batch = serde_json::to_value(report.batch_body()).expect("JSON");
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
