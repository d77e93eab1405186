//! The metrics page: metrics of the engine, the store, the server and the process.

use onceward_core::time::Time;
use onceward_engine::{LifecycleCounters, MetricsSnapshot};
use onceward_store::AnyStore;

use super::cached_stats::StatsSample;
use super::prometheus::{MetricDefinition, MetricKind, MetricsWriter, scaled};
use super::{Telemetry, process};
use crate::app::AppState;
use MetricKind::{Counter, Gauge, Histogram};

const MICROS_PER_SECOND: f64 = 1_000_000.0;

/// Renders all metrics. Returns the content type and the page.
pub(crate) async fn render_metrics(app: &AppState, accept: &str) -> (&'static str, String) {
    let telemetry = app.telemetry();
    let sample = telemetry.cached_stats.get(app.engine().store()).await;
    let mut page = MetricsWriter::new(accept);
    let snapshot = app.engine().metrics();
    write_lifecycle_metrics(&mut page, &snapshot);
    write_engine_metrics(&mut page, &snapshot);
    write_store_metrics(&mut page, &sample);
    write_server_metrics(&mut page, app, telemetry);
    page.finish()
}

const fn define_metric(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricDefinition {
    MetricDefinition { name, kind, labels, help }
}

const LIFECYCLE_LABELS: &[&str] = &["lifecycle"];
const STATE_LABELS: &[&str] = &["lifecycle", "state"];

const RECORDS_CREATED: MetricDefinition =
    define_metric("onceward_records_created_total", Counter, LIFECYCLE_LABELS, "Records created.");
const RECORDS_ENDED: MetricDefinition =
    define_metric("onceward_records_ended_total", Counter, STATE_LABELS, "Records that entered a final state.");
const RECORDS_STUCK: MetricDefinition = define_metric(
    "onceward_records_stuck_total",
    Counter,
    LIFECYCLE_LABELS,
    "Records that became stuck because an event of the engine failed on them.",
);
const EXECUTIONS_LEASED: MetricDefinition = define_metric(
    "onceward_executions_leased_total",
    Counter,
    LIFECYCLE_LABELS,
    "Executions: jobs leased to a worker.",
);
const EXECUTIONS_REDELIVERED: MetricDefinition = define_metric(
    "onceward_executions_redelivered_total",
    Counter,
    LIFECYCLE_LABELS,
    "Executions of jobs that had been leased before.",
);
const EXECUTIONS_STARTED: MetricDefinition = define_metric(
    "onceward_executions_started_total",
    Counter,
    LIFECYCLE_LABELS,
    "Executions that their worker reported as started.",
);
const EXECUTIONS_COMMITTED: MetricDefinition = define_metric(
    "onceward_executions_committed_total",
    Counter,
    LIFECYCLE_LABELS,
    "Effects committed, at most one per job.",
);
const EXECUTIONS_ENDED: MetricDefinition = define_metric(
    "onceward_executions_ended_total",
    Counter,
    &["lifecycle", "end"],
    "Executions that ended: `done`, `failed`, `lost` (the lease expired), `yielded` (the worker returned the job), `left` (an event took the record out of its working state).",
);
const EXECUTIONS_RETRIED: MetricDefinition = define_metric(
    "onceward_executions_retried_total",
    Counter,
    LIFECYCLE_LABELS,
    "Jobs that became leasable again after an execution without success, also if a timer did so later.",
);
const DUPLICATE_CALLS: MetricDefinition = define_metric(
    "onceward_duplicates_total",
    Counter,
    &["lifecycle", "kind"],
    "Repeated calls that got the first answer: a worker's report, a create that found the holder of its unique key, a call with an idempotency key.",
);
const REFUSED_CALLS: MetricDefinition =
    define_metric("onceward_refused_total", Counter, &["lifecycle", "code"], "Calls refused by a lifecycle's rules.");
const FAILED_OPERATIONS: MetricDefinition = define_metric(
    "onceward_failed_total",
    Counter,
    &["code"],
    "Operations that failed because of the engine or the database.",
);

const OPERATION_SECONDS: MetricDefinition = define_metric(
    "onceward_operation_seconds",
    Histogram,
    &["kind"],
    "Time from the submission of a call to its answer.",
);
const SAVED_BATCHES: MetricDefinition =
    define_metric("onceward_batches_total", Counter, &[], "Batches saved, each in one transaction.");
const BATCH_OPERATIONS: MetricDefinition =
    define_metric("onceward_batch_operations", Histogram, &[], "Operations per saved batch.");
const SAVE_SECONDS: MetricDefinition = define_metric(
    "onceward_save_seconds",
    Histogram,
    &[],
    "Time to save a batch: validate its read set, write and commit.",
);
const COMMIT_SECONDS: MetricDefinition = define_metric(
    "onceward_commit_seconds",
    Histogram,
    &[],
    "Time of the commit alone: mostly fsync, on PostgreSQL also the network round trip.",
);
const SAVE_CONFLICTS: MetricDefinition =
    define_metric("onceward_conflicts_total", Counter, &[], "Saves that found a changed read and were decided again.");
const UNLOGGED_REFUSALS: MetricDefinition = define_metric(
    "onceward_unlogged_refusals_total",
    Counter,
    &[],
    "Denials and audited refusals not logged because their owner exceeded the limit per minute.",
);
const OVERLOADED_CALLS: MetricDefinition =
    define_metric("onceward_overloaded_total", Counter, &[], "Calls rejected because the queue was full.");
const PANICS: MetricDefinition =
    define_metric("onceward_panics_total", Counter, &[], "Panics while a batch was decided or saved.");
const QUEUE_OPERATIONS: MetricDefinition =
    define_metric("onceward_queue_operations", Gauge, &[], "Operations queued or in flight.");
const QUEUE_OPERATIONS_LIMIT: MetricDefinition =
    define_metric("onceward_queue_operations_limit", Gauge, &[], "Maximum of `onceward_queue_operations`.");
const QUEUE_BYTES: MetricDefinition = define_metric(
    "onceward_queue_bytes",
    Gauge,
    &[],
    "Bytes of input and payloads that queued operations hold in memory.",
);
const IDLE_LEASE_CALLS: MetricDefinition =
    define_metric("onceward_idle_lease_calls", Gauge, &[], "Lease calls that wait for a job.");
const BLOCKED_RECORDS: MetricDefinition = define_metric(
    "onceward_due_blocked",
    Gauge,
    &[],
    "Due records that the scheduler skips: damaged, or of an unknown lifecycle version.",
);

const CLOCK_HELD: MetricDefinition = define_metric(
    "onceward_clock_held",
    Gauge,
    &[],
    "1 if the clock jumped and the engine does not follow it, else 0.",
);

const CLOCK_AHEAD_SECONDS: MetricDefinition = define_metric(
    "onceward_clock_ahead_seconds",
    Gauge,
    &[],
    "How far the clock is ahead of the engine's time; 0 if the engine follows it.",
);

const STORE_UP: MetricDefinition =
    define_metric("onceward_store_up", Gauge, &[], "1 if the last read of the database succeeded, else 0.");
const RECORDS_BY_STATE: MetricDefinition =
    define_metric("onceward_records", Gauge, STATE_LABELS, "Records in each state.");
const READY_OLDEST_AGE_SECONDS: MetricDefinition = define_metric(
    "onceward_ready_oldest_age_seconds",
    Gauge,
    STATE_LABELS,
    "Longest wait of a ready job, over the first and the last 1000 in the queue. Absent if no job is ready.",
);
const READY_JOBS: MetricDefinition =
    define_metric("onceward_ready_jobs", Gauge, &["lifecycle"], "Ready jobs, counted up to 10000.");
const LIVE_LEASES: MetricDefinition =
    define_metric("onceward_leases_live", Gauge, &[], "Live leases, counted up to 10000.");
const OVERDUE_RECORDS: MetricDefinition = define_metric(
    "onceward_overdue_records",
    Gauge,
    &[],
    "Records whose timer is due but has not fired, counted up to 10000.",
);
const OVERDUE_AGE_SECONDS: MetricDefinition = define_metric(
    "onceward_overdue_age_seconds",
    Gauge,
    &[],
    "How long the oldest overdue record has been due; 0 if none is.",
);

const HTTP_REQUESTS: MetricDefinition = define_metric(
    "onceward_http_requests_total",
    Counter,
    &["route", "method", "status"],
    "Requests by route and status class; `gone` if the client disconnected.",
);
const HTTP_REQUEST_SECONDS: MetricDefinition = define_metric(
    "onceward_http_request_seconds",
    Histogram,
    &["route", "method"],
    "Time from the request headers to the response headers.",
);
const HTTP_CONNECTIONS: MetricDefinition = define_metric("onceward_http_connections", Gauge, &[], "Open connections.");
const HTTP_LONG_POLLS: MetricDefinition =
    define_metric("onceward_http_long_polls", Gauge, &[], "Lease requests that wait for a job.");
const HTTP_STREAMS: MetricDefinition = define_metric("onceward_http_streams", Gauge, &[], "Open log streams.");
const HTTP_BODY_BYTES: MetricDefinition =
    define_metric("onceward_http_body_bytes", Gauge, &[], "Bytes of JSON bodies of unanswered requests.");
const HTTP_RESPONSE_BYTES: MetricDefinition = define_metric(
    "onceward_http_response_bytes",
    Gauge,
    &[],
    "Bytes of responses that clients have not read yet, or that are reserved for calls in progress.",
);
const TRACE_SPANS: MetricDefinition = define_metric(
    "onceward_trace_spans_total",
    Counter,
    &["result"],
    "Trace spans: `exported`, or `lost` because the buffer was full or the collector failed.",
);
const BUILD_INFO: MetricDefinition = define_metric("onceward_build_info", Gauge, &["version", "store"], "Always 1.");
const RESIDENT_MEMORY_BYTES: MetricDefinition =
    define_metric("process_resident_memory_bytes", Gauge, &[], "Resident memory in bytes.");
const OPEN_FILES: MetricDefinition = define_metric("process_open_fds", Gauge, &[], "Open file descriptors.");

fn write_lifecycle_metrics(page: &mut MetricsWriter, snapshot: &MetricsSnapshot) {
    let mut write_counter = |metric: &MetricDefinition, counter: fn(&LifecycleCounters) -> u64| {
        let mut samples = page.begin_metric(metric);
        snapshot.lifecycles.iter().for_each(|(lifecycle, lived)| samples.write_sample(&[lifecycle], counter(lived)));
    };
    write_counter(&RECORDS_CREATED, |lived| lived.created);
    write_counter(&RECORDS_STUCK, |lived| lived.stuck);
    write_counter(&EXECUTIONS_LEASED, |lived| lived.leased);
    write_counter(&EXECUTIONS_REDELIVERED, |lived| lived.redelivered);
    write_counter(&EXECUTIONS_STARTED, |lived| lived.started);
    write_counter(&EXECUTIONS_COMMITTED, |lived| lived.committed);
    write_counter(&EXECUTIONS_RETRIED, |lived| lived.retried);
    let mut ended = page.begin_metric(&EXECUTIONS_ENDED);
    for (lifecycle, lived) in &snapshot.lifecycles {
        let LifecycleCounters { done, failed, lost, yielded, left_state: left, .. } = *lived;
        for (end, count) in [("done", done), ("failed", failed), ("lost", lost), ("yielded", yielded), ("left", left)] {
            ended.write_sample(&[lifecycle, end], count);
        }
    }
    let mut duplicates = page.begin_metric(&DUPLICATE_CALLS);
    for (lifecycle, lived) in &snapshot.lifecycles {
        for (kind, count) in [("report", lived.repeated), ("create", lived.existing_returned), ("key", lived.replayed)]
        {
            duplicates.write_sample(&[lifecycle, kind], count);
        }
    }
    let mut states = page.begin_metric(&RECORDS_ENDED);
    snapshot
        .ended_records
        .iter()
        .for_each(|((lifecycle, state), count)| states.write_sample(&[lifecycle, state], count));
    let mut refused = page.begin_metric(&REFUSED_CALLS);
    snapshot.refusals.iter().for_each(|((lifecycle, code), count)| refused.write_sample(&[lifecycle, code], count));
    let mut failed = page.begin_metric(&FAILED_OPERATIONS);
    snapshot.failures.iter().for_each(|(code, count)| failed.write_sample(&[code], count));
}

fn write_engine_metrics(page: &mut MetricsWriter, snapshot: &MetricsSnapshot) {
    let mut seconds = page.begin_metric(&OPERATION_SECONDS);
    snapshot.latency.iter().for_each(|(kind, times)| seconds.write_histogram(&[kind], times, MICROS_PER_SECOND));
    for (metric, spread, scale) in [
        (&BATCH_OPERATIONS, &snapshot.batch_sizes, 1.0),
        (&SAVE_SECONDS, &snapshot.save_times, MICROS_PER_SECOND),
        (&COMMIT_SECONDS, &snapshot.commit_times, MICROS_PER_SECOND),
    ] {
        if let Some(spread) = spread {
            page.begin_metric(metric).write_histogram(&[], spread, scale);
        }
    }
    let counters = &snapshot.counters;
    let counts = [
        (&SAVED_BATCHES, counters.batches),
        (&SAVE_CONFLICTS, counters.conflicts),
        (&UNLOGGED_REFUSALS, counters.unlogged_refusals),
        (&OVERLOADED_CALLS, counters.overloaded),
        (&PANICS, counters.panics),
    ];
    for (metric, count) in counts {
        page.begin_metric(metric).write_sample(&[], count);
    }
    let sizes = [
        (&QUEUE_OPERATIONS, snapshot.queued_operations),
        (&QUEUE_OPERATIONS_LIMIT, snapshot.queue_capacity),
        (&QUEUE_BYTES, snapshot.queued_bytes),
        (&IDLE_LEASE_CALLS, snapshot.parked_pollers),
        (&BLOCKED_RECORDS, snapshot.blocked_records),
    ];
    for (metric, size) in sizes {
        page.begin_metric(metric).write_sample(&[], size);
    }
    let hold = snapshot.clock_status.hold;
    page.begin_metric(&CLOCK_HELD).write_sample(&[], u8::from(hold.is_some()));
    let ahead_secs = hold.map_or(0, |hold| hold.deviation_micros() / 1_000_000);
    page.begin_metric(&CLOCK_AHEAD_SECONDS).write_sample(&[], ahead_secs);
}

fn write_store_metrics(page: &mut MetricsWriter, sample: &StatsSample) {
    page.begin_metric(&STORE_UP).write_sample(&[], u8::from(sample.stats.is_some()));
    let Some(stats) = &sample.stats else { return };
    let mut records = page.begin_metric(&RECORDS_BY_STATE);
    stats.state_counts.iter().for_each(|own| records.write_sample(&[&own.lifecycle, &own.state], own.count));
    let age = |since: Time| {
        let micros = sample.sampled_at.micros().saturating_sub(since.micros());
        scaled(u64::try_from(micros).unwrap_or(0), MICROS_PER_SECOND)
    };
    let mut oldest = page.begin_metric(&READY_OLDEST_AGE_SECONDS);
    stats.oldest_ready.iter().for_each(|own| oldest.write_sample(&[&own.lifecycle, &own.state], age(own.ready_since)));
    let mut ready = page.begin_metric(&READY_JOBS);
    stats.ready_counts.iter().for_each(|own| ready.write_sample(&[&own.lifecycle], own.jobs));
    page.begin_metric(&LIVE_LEASES).write_sample(&[], stats.live_leases);
    page.begin_metric(&OVERDUE_RECORDS).write_sample(&[], stats.overdue_records);
    page.begin_metric(&OVERDUE_AGE_SECONDS).write_sample(&[], stats.overdue_since.map_or(0.0, age));
}

fn write_server_metrics(page: &mut MetricsWriter, app: &AppState, telemetry: &Telemetry) {
    let snapshots = telemetry.request_metrics.snapshot();
    let mut requests = page.begin_metric(&HTTP_REQUESTS);
    for own in &snapshots {
        own.status_classes
            .iter()
            .for_each(|(class, count)| requests.write_sample(&[&own.route, own.method, class], count));
    }
    let mut seconds = page.begin_metric(&HTTP_REQUEST_SECONDS);
    for own in &snapshots {
        seconds.write_histogram(&[&own.route, own.method], &own.latency, MICROS_PER_SECOND);
    }
    let usage = app.capacity().usage();
    let counts = [
        (&HTTP_CONNECTIONS, usage.connections),
        (&HTTP_LONG_POLLS, usage.long_polls),
        (&HTTP_STREAMS, usage.streams),
        (&HTTP_BODY_BYTES, usage.body_bytes),
        (&HTTP_RESPONSE_BYTES, usage.response_bytes),
    ];
    for (metric, count) in counts {
        page.begin_metric(metric).write_sample(&[], count);
    }
    if let Some(exporter) = &telemetry.exporter {
        let (exported, lost) = exporter.counts();
        let mut spans = page.begin_metric(&TRACE_SPANS);
        spans.write_sample(&["exported"], exported);
        spans.write_sample(&["lost"], lost);
    }
    let store = match app.engine().store() {
        AnyStore::Memory(_) => "memory",
        AnyStore::Sqlite(_) => "sqlite",
        AnyStore::Postgres(_) => "postgres",
    };
    page.begin_metric(&BUILD_INFO).write_sample(&[env!("CARGO_PKG_VERSION"), store], 1);
    for (metric, value) in
        [(&RESIDENT_MEMORY_BYTES, process::resident_memory_bytes()), (&OPEN_FILES, process::open_file_count())]
    {
        if let Some(value) = value {
            page.begin_metric(metric).write_sample(&[], value);
        }
    }
}

/// All metrics, to compare with the documentation.
#[cfg(test)]
pub(super) const ALL_METRICS: &[&MetricDefinition] = &[
    &RECORDS_CREATED,
    &RECORDS_ENDED,
    &RECORDS_STUCK,
    &EXECUTIONS_LEASED,
    &EXECUTIONS_REDELIVERED,
    &EXECUTIONS_STARTED,
    &EXECUTIONS_COMMITTED,
    &EXECUTIONS_ENDED,
    &EXECUTIONS_RETRIED,
    &DUPLICATE_CALLS,
    &REFUSED_CALLS,
    &FAILED_OPERATIONS,
    &OPERATION_SECONDS,
    &SAVED_BATCHES,
    &BATCH_OPERATIONS,
    &SAVE_SECONDS,
    &COMMIT_SECONDS,
    &SAVE_CONFLICTS,
    &UNLOGGED_REFUSALS,
    &OVERLOADED_CALLS,
    &PANICS,
    &QUEUE_OPERATIONS,
    &QUEUE_OPERATIONS_LIMIT,
    &QUEUE_BYTES,
    &IDLE_LEASE_CALLS,
    &BLOCKED_RECORDS,
    &CLOCK_HELD,
    &CLOCK_AHEAD_SECONDS,
    &STORE_UP,
    &RECORDS_BY_STATE,
    &READY_OLDEST_AGE_SECONDS,
    &READY_JOBS,
    &LIVE_LEASES,
    &OVERDUE_RECORDS,
    &OVERDUE_AGE_SECONDS,
    &HTTP_REQUESTS,
    &HTTP_REQUEST_SECONDS,
    &HTTP_CONNECTIONS,
    &HTTP_LONG_POLLS,
    &HTTP_STREAMS,
    &HTTP_BODY_BYTES,
    &HTTP_RESPONSE_BYTES,
    &TRACE_SPANS,
    &BUILD_INFO,
    &RESIDENT_MEMORY_BYTES,
    &OPEN_FILES,
];

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::ALL_METRICS;

    /// `ONCEWARD_BLESS=1` rewrites the table.
    #[test]
    fn observability_page_lists_exactly_all_metrics() {
        let mut table = "| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
        for metric in ALL_METRICS {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
            writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observability.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once("<!-- metrics -->\n").expect("start of the table");
        let (documented, after) = rest.split_once("<!-- end -->").expect("end of the table");
        if documented != table {
            if std::env::var_os("ONCEWARD_BLESS").is_some() {
                let page = format!("{before}<!-- metrics -->\n{table}<!-- end -->{after}");
                std::fs::write(path, page).unwrap();
            } else {
                assert_eq!(documented, table, "ONCEWARD_BLESS=1 rewrites the table");
            }
        }
        // Metrics that the rest of the page mentions must exist.
        for word in
            page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("onceward_"))
        {
            let base =
                ["_bucket", "_sum", "_count"].iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word);
            let known = ALL_METRICS.iter().any(|metric| metric.name == base || metric.name == word);
            assert!(
                known || word.starts_with("onceward_engine") || word.starts_with("onceward_server"),
                "{word} is not a metric"
            );
        }
    }
}
