//! What workers report of their jobs. Every report carries the token of its lease, so that the same one twice does no harm.

use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{self, Payload};
use crate::shape::{Leased, Outcome, Reported, Results};
use crate::wire::{Again, Ask, escaped};
use crate::work::Failure;

/// What is reported of a job.
#[derive(Clone, Debug)]
pub enum Verdict {
    Start,
    /// The lease is to last, for so long or for the lifecycle's own length; `stop` in the answer says that the job is to come to
    /// an end.
    Heartbeat {
        lease: Option<Duration>,
    },
    /// The effect lands, at most once for a job; with `finish`, the job is finished in the same operation.
    Commit {
        result: Option<Payload>,
        finish: bool,
    },
    Finish,
    Fail(Failure),
    /// Given back unharmed.
    Yield,
}

impl Verdict {
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
    pub verdict: Verdict,
    /// W3C trace context of the lease: the report stands there, too.
    pub traceparent: Option<Arc<str>>,
}

impl Report {
    pub fn on(leased: &Leased, verdict: Verdict) -> Self {
        let traceparent = leased.traceparent.as_deref().map(Into::into);
        Self { execution: leased.id.clone(), token: leased.token, verdict, traceparent }
    }

    /// About how many bytes it has.
    pub(crate) fn weight(&self) -> usize {
        let fixed = 200;
        match &self.verdict {
            Verdict::Commit { result: Some(Payload::Json(json)), .. } => fixed + json.get().len(),
            Verdict::Commit { result: Some(Payload::Bytes(bytes)), .. } => fixed + bytes.len() * 4 / 3,
            Verdict::Fail(failure) => fixed + failure.message.len(),
            _ => fixed,
        }
    }

    fn write<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("token", &self.token)?;
        match &self.verdict {
            Verdict::Commit { result, finish } => {
                payload::write(map, result.as_ref(), ["result", "result_base64"])?;
                if *finish {
                    map.serialize_entry("finish", finish)?;
                }
                Ok(())
            }
            Verdict::Fail(failure) => map.serialize_entry("error", &Told::of(failure)),
            Verdict::Heartbeat { lease: Some(lease) } => map.serialize_entry("lease_ms", &millis(*lease)),
            Verdict::Start | Verdict::Heartbeat { lease: None } | Verdict::Finish | Verdict::Yield => Ok(()),
        }
    }
}

pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// A failure as it is sent.
#[derive(Serialize)]
struct Told<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> Told<'a> {
    fn of(failure: &'a Failure) -> Self {
        Self {
            code: &failure.code,
            message: &failure.message,
            retryable: failure.retryable,
            retry_after_ms: failure.retry_after.map(millis),
        }
    }
}

/// Alone: the execution and what is done stand in the path.
struct Alone<'a>(&'a Report);

impl Serialize for Alone<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.write(&mut map)?;
        map.end()
    }
}

/// Among others.
struct InBatch<'a>(&'a Report);

impl Serialize for InBatch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("execution", &self.0.execution)?;
        map.serialize_entry("do", self.0.verdict.name())?;
        // Each has its own; alone, it stands in the header.
        if let Some(traceparent) = &self.0.traceparent {
            map.serialize_entry("traceparent", traceparent)?;
        }
        self.0.write(&mut map)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Batch<'a> {
    reports: Vec<InBatch<'a>>,
}

impl Client {
    /// Report on one job. Its token makes it safe to send again.
    pub async fn report(&self, report: &Report) -> Result<Reported, ClientError> {
        self.ask(&Ask { again: Again::Safe, ..alone(report)? }).await
    }

    /// Report on many, each taken or refused on its own, in this order.
    pub async fn report_all(&self, reports: &[Report]) -> Result<Vec<Outcome<Reported>>, ClientError> {
        let reports: Vec<&Report> = reports.iter().collect();
        let answers: Results<Reported> = self.ask(&Ask { again: Again::Safe, ..together(&reports)? }).await?;
        Ok(answers.results)
    }

    /// Tried once: whoever keeps a job knows how long it is worth while to try again.
    pub(crate) async fn report_once(&self, reports: &[&Report]) -> Result<Vec<Outcome<Reported>>, ClientError> {
        if let [report] = reports {
            return match self.ask(&Ask { again: Again::Never, ..alone(report)? }).await {
                Ok(reported) => Ok(vec![Outcome::Done(reported)]),
                Err(error) => Err(error),
            };
        }
        let answers: Results<Reported> = self.ask(&Ask { again: Again::Never, ..together(reports)? }).await?;
        Ok(answers.results)
    }
}

fn alone(report: &Report) -> Result<Ask, ClientError> {
    let path = format!("/v1/executions/{}/{}", escaped(&report.execution), report.verdict.name());
    Ok(Ask { traceparent: report.traceparent.clone(), ..Ask::post(path, &Alone(report))? })
}

fn together(reports: &[&Report]) -> Result<Ask, ClientError> {
    let batch = Batch { reports: reports.iter().map(|report| InBatch(report)).collect() };
    Ask::post("/v1/executions/batch".to_owned(), &batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(verdict: Verdict) -> String {
        let report = Report { execution: "a.1".to_owned(), token: 1, verdict, traceparent: None };
        serde_json::to_string(&InBatch(&report)).expect("JSON")
    }

    /// Alone it stands in the header, among others with each.
    #[test]
    fn a_report_stands_in_the_trace_of_its_job() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let report =
            Report { execution: "a.1".to_owned(), token: 1, verdict: Verdict::Finish, traceparent: Some(trace.into()) };
        let batch = serde_json::to_value(InBatch(&report)).expect("JSON");
        assert_eq!(batch["traceparent"], trace);
        let ask = alone(&report).expect("JSON");
        assert_eq!((ask.traceparent.as_deref(), &*ask.body), (Some(trace), &b"{\"token\":1}"[..]));
    }

    #[test]
    fn a_report_is_written_as_the_interface_says() {
        let result = Payload::json(&[1]).expect("JSON");
        assert_eq!(
            written(Verdict::Commit { result: Some(result), finish: true }),
            r#"{"execution":"a.1","do":"commit","token":1,"result":[1],"finish":true}"#
        );
        assert_eq!(
            written(Verdict::Commit { result: Some(Payload::Bytes("\0".into())), finish: false }),
            r#"{"execution":"a.1","do":"commit","token":1,"result_base64":"AA=="}"#
        );
        let beat = |lease| written(Verdict::Heartbeat { lease });
        assert_eq!(beat(None), r#"{"execution":"a.1","do":"heartbeat","token":1}"#);
        assert_eq!(
            beat(Some(Duration::from_secs(1))),
            r#"{"execution":"a.1","do":"heartbeat","token":1,"lease_ms":1000}"#
        );
        let failure = Failure::retryable("BUSY", "later").after(Duration::from_secs(2));
        assert_eq!(
            written(Verdict::Fail(failure)),
            r#"{"execution":"a.1","do":"fail","token":1,"error":{"code":"BUSY","message":"later","retryable":true,"retry_after_ms":2000}}"#
        );
    }
}
