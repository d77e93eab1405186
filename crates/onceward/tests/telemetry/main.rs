//! Tests logs, metrics and traces of a real server.

mod collector;

use std::collections::BTreeSet;

use collector::TraceCollector;
use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

const JOB_LIFECYCLE: &str = "document.job";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Starts a server with trace level logging.
fn start_server(folder: &TempDir, more: &[&str]) -> ServerProcess {
    let mut command =
        server_process::serve_command(env!("CARGO_BIN_EXE_onceward"), &DatabaseKind::Sqlite.new_url(folder));
    ServerProcess::start(command.args(more).env("ONCEWARD_LOG", "trace"))
}

fn post(server: &ServerProcess, path: &str, headers: &[(&str, &str)], body: &Json) -> Json {
    server.call("POST", path, headers, Some(body.to_string().as_bytes())).expect_ok()
}

fn create_submitted_job(server: &ServerProcess, headers: &[(&str, &str)], body: &Json) -> String {
    let made = post(server, &format!("/v1/lifecycles/{JOB_LIFECYCLE}/records"), headers, body);
    let id = made["id"].as_str().expect("id").to_owned();
    server.post(&format!("/v1/records/{id}/events/submit"), &json!({})).expect_ok();
    id
}

fn lease(server: &ServerProcess) -> Json {
    server.lease_as("", JOB_LIFECYCLE, true)
}

fn report(server: &ServerProcess, execution: &Json, what: &str, headers: &[(&str, &str)], body: Json) {
    server.report_as("", execution, what, headers, body).expect_ok();
}

/// DOC-15: covers log lines at trace level, metrics and traces.
#[test]
fn telemetry_contains_no_caller_data() {
    let (folder, collector) = (TempDir::new(), TraceCollector::start());
    let server = start_server(&folder, &["--otlp", &collector.url]);
    let traced = [("traceparent", TRACEPARENT), ("idempotency-key", "MARK-key")];
    let job = create_submitted_job(
        &server,
        &traced,
        &json!({ "payload": "MARK-payload", "fields": { "requestId": "MARK-field" } }),
    );
    // Repeats with the same idempotency key, and with the same unique field.
    let path = format!("/v1/lifecycles/{JOB_LIFECYCLE}/records");
    let same = json!({ "payload": "MARK-payload", "fields": { "requestId": "MARK-field" } });
    post(&server, &path, &traced, &same);
    server.post(&path, &same).expect_ok();
    // Several kinds of refusals.
    for body in [
        json!({ "payload": "MARK-payload", "fields": { "MARK-name": "MARK-field" } }),
        json!({ "payload": "MARK-payload", "fields": { "requestId": ["MARK-field"] } }),
        json!({ "MARK-member": "MARK-payload" }),
        json!("MARK-body"),
    ] {
        assert!((400..500).contains(&server.post(&path, &body).status));
    }
    assert!(
        server.post(&format!("/v1/records/{job}/events/submit"), &json!({ "input": { "MARK-input": 1 } })).status
            >= 400
    );
    assert_eq!(server.get("/MARK-path?MARK-query=MARK-value").status, 404);
    // One job fails terminally with a message, the other is done.
    let failing = lease(&server);
    let error = json!({ "code": "MARK_CODE", "message": "MARK-message", "retryable": false });
    report(&server, &failing, "fail", &[], json!({ "error": error }));
    create_submitted_job(&server, &traced[..1], &json!({ "payload": "MARK-payload" }));
    let held = lease(&server);
    let result = json!({ "result": { "MARK-result": "MARK-result" }, "finish": true });
    report(&server, &held, "commit", &[], result.clone());
    report(&server, &held, "commit", &[], result);
    // An authorized caller can read it.
    assert!(server.get(&format!("/v1/records/{job}")).text().contains("MARK-message"));

    let metrics = server.get("/metrics").text();
    let written = server.stop();
    let exported = collector.text();
    assert!(written.contains("\"request\"") && written.contains("engine drained"), "{written}");
    assert!(
        metrics.contains("onceward_executions_ended_total{lifecycle=\"document.job\",end=\"failed\"} 1"),
        "{metrics}"
    );
    assert!(!collector.spans_named(&format!("execution {JOB_LIFECYCLE}")).is_empty(), "{exported}");
    for (what, text) in [("the log", &written), ("the metrics", &metrics), ("the traces", &exported)] {
        let found = text.to_uppercase().find("MARK");
        assert!(found.is_none(), "{what} contain caller data: {}", &text[found.unwrap_or(0).saturating_sub(300)..]);
    }
}

/// The lease reply contains the trace context, and the worker's reports are part of the trace.
#[test]
fn execution_continues_trace_of_create_after_restart() {
    let (folder, collector) = (TempDir::new(), TraceCollector::start());
    let options = ["--otlp", &*collector.url];
    let server = start_server(&folder, &options);
    create_submitted_job(&server, &[("traceparent", TRACEPARENT)], &json!({ "payload": "x" }));
    server.stop();
    let create_spans = collector.spans_named(&format!("POST {}", "/v1/lifecycles/{name}/records"));
    assert_eq!(create_spans.len(), 1, "{:?}", collector.spans());
    assert_eq!(
        (&create_spans[0]["traceId"], &create_spans[0]["parentSpanId"]),
        (&json!(TRACE_ID), &json!("00f067aa0ba902b7"))
    );

    let server = start_server(&folder, &options);
    let held = lease(&server);
    let traceparent = held["traceparent"].as_str().expect("traceparent of the lease").to_owned();
    report(&server, &held, "commit", &[("traceparent", &traceparent)], json!({ "result": 1, "finish": true }));
    server.stop();

    let executions = collector.spans_named(&format!("execution {JOB_LIFECYCLE}"));
    assert_eq!(executions.len(), 1, "{:?}", collector.spans());
    let execution = &executions[0];
    assert_eq!(execution["traceId"], TRACE_ID);
    assert_eq!(execution["parentSpanId"], create_spans[0]["spanId"]);
    assert_eq!(execution["links"], json!([{ "traceId": TRACE_ID, "spanId": create_spans[0]["spanId"] }]));
    assert_eq!(traceparent, format!("00-{TRACE_ID}-{}-01", execution["spanId"].as_str().unwrap()));
    let reports = collector.spans_named(&format!("POST {}", "/v1/executions/{id}/{report}"));
    assert_eq!(reports.len(), 1, "{:?}", collector.spans());
    assert_eq!((&reports[0]["traceId"], &reports[0]["parentSpanId"]), (&json!(TRACE_ID), &execution["spanId"]));
    let operations: BTreeSet<String> = collector
        .spans()
        .iter()
        .filter(|span| span["traceId"] == TRACE_ID)
        .filter_map(|span| Some(span["name"].as_str()?.strip_prefix("operation ")?.to_owned()))
        .collect();
    assert!(operations.contains("create") && operations.contains("commit"), "{operations:?}");
}

/// INV-5: covers a refusal, a failed attempt and an unknown route. The docs page must list exactly the exported
/// metrics.
#[test]
fn failures_are_counted_and_all_metrics_documented() {
    let folder = TempDir::new();
    let server = start_server(&folder, &[]);
    create_submitted_job(&server, &[], &json!({ "payload": "x" }));
    let held = lease(&server);
    report(&server, &held, "fail", &[], json!({ "error": { "code": "CORRUPT_DATA", "message": "no" } }));
    let id = held["record"]["id"].as_str().expect("job");
    assert_eq!(server.post(&format!("/v1/records/{id}/events/submit"), &json!({})).status, 409);
    assert_eq!(server.get("/nowhere").status, 404);
    let answer = server.get("/metrics");
    let metrics = answer.text();
    assert!(answer.head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    assert!(answer.head.to_lowercase().contains("x-request-id: "), "{}", answer.head);
    for line in [
        "onceward_records_created_total{lifecycle=\"document.job\"} 1",
        "onceward_records_ended_total{lifecycle=\"document.job\",state=\"FAILED\"} 1",
        "onceward_executions_ended_total{lifecycle=\"document.job\",end=\"failed\"} 1",
        "onceward_refused_total{lifecycle=\"document.job\",code=\"wrong_state\"} 1",
        "onceward_http_requests_total{route=\"unmatched\",method=\"GET\",status=\"4xx\"} 1",
        "onceward_records{lifecycle=\"document.job\",state=\"FAILED\"} 1",
        "onceward_store_up 1",
        "onceward_leases_live 0",
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line}\n{metrics}");
    }
    let page = include_str!("../../../../docs/observability.md");
    let documented: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let exported: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let unknown: Vec<_> = exported.difference(&documented).collect();
    assert!(unknown.is_empty(), "not on the page: {unknown:?}");
    let missing: Vec<_> = documented
        .difference(&exported)
        .filter(|name| name.starts_with("onceward_") && **name != "onceward_trace_spans_total")
        .collect();
    assert!(missing.is_empty(), "on the page but not exported: {missing:?}");
    let open = server.call("GET", "/metrics", &[("accept", "application/openmetrics-text; version=1.0.0")], None);
    assert!(open.text().ends_with("# EOF\n") && open.head.contains("application/openmetrics-text"), "{}", open.head);
    server.stop();
}
