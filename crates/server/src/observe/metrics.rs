//! The page of metrics: what the engine, the store, the server and the process tell of themselves.

use std::time::{Duration, Instant};

use onceward_core::time::Time;
use onceward_engine::{Lived, Measures};
use onceward_store::{AnyStore, Glance, Store as _};
use tokio::sync::Mutex;
use tracing::warn;

use super::exposition::{Kind, Metric, Page, scaled};
use super::{Observe, process};
use crate::app::App;
use Kind::{Counter, Gauge, Histogram};

const MICROS: f64 = 1_000_000.0;

/// A look at the store is good for so long, and for twenty times as long as it took: whatever it costs, and however often
/// somebody asks, it keeps one reader busy for a twentieth of the time.
const GOOD_FOR: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// The last look at the store.
#[derive(Debug, Default)]
pub(crate) struct Looked(Mutex<Option<Look>>);

#[derive(Clone, Debug)]
struct Look {
    /// `None` where the store could not be read.
    glance: Option<Glance>,
    at: Time,
    until: Instant,
}

impl Looked {
    async fn look(&self, store: &AnyStore) -> Look {
        let mut last = self.0.lock().await;
        if let Some(look) = last.as_ref().filter(|look| Instant::now() < look.until) {
            return look.clone();
        }
        let begun = Instant::now();
        let looked = async {
            let at = store.now().await?;
            Ok::<_, onceward_store::StoreError>((store.glance(at).await?, at))
        };
        let (glance, at) = match looked.await {
            Ok((glance, at)) => (Some(glance), at),
            Err(error) => {
                warn!(code = error.code(), "the store cannot be looked at");
                (None, Time::from_micros(0))
            }
        };
        let look = Look { glance, at, until: Instant::now() + GOOD_FOR.max(begun.elapsed() * SHARE) };
        *last = Some(look.clone());
        look
    }
}

/// All metrics, in the form that is asked for: their type and the page.
pub(crate) async fn page(app: &App, accept: &str) -> (&'static str, String) {
    let observe = app.observe();
    let look = observe.looked.look(app.engine().store()).await;
    let mut page = Page::new(accept);
    let measures = app.engine().measures();
    lives(&mut page, &measures);
    engine(&mut page, &measures);
    store(&mut page, &look);
    server(&mut page, app, observe);
    page.end()
}

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

const LIFECYCLE: &[&str] = &["lifecycle"];
const STATE: &[&str] = &["lifecycle", "state"];

const CREATED: Metric = metric("onceward_records_created_total", Counter, LIFECYCLE, "Records made.");
const ENDED: Metric = metric("onceward_records_ended_total", Counter, STATE, "Records that entered a final state.");
const STUCK: Metric = metric(
    "onceward_records_stuck_total",
    Counter,
    LIFECYCLE,
    "Records set aside because an event of the engine's own failed on them.",
);
const LEASED: Metric =
    metric("onceward_executions_leased_total", Counter, LIFECYCLE, "Executions begun: jobs handed to a worker.");
const REDELIVERED: Metric = metric(
    "onceward_executions_redelivered_total",
    Counter,
    LIFECYCLE,
    "Of these, of jobs that had been handed out before.",
);
const STARTED: Metric =
    metric("onceward_executions_started_total", Counter, LIFECYCLE, "Executions that their worker started.");
const COMMITTED: Metric =
    metric("onceward_executions_committed_total", Counter, LIFECYCLE, "Effects that landed, one for each job at most.");
const EXECUTIONS: Metric = metric(
    "onceward_executions_ended_total",
    Counter,
    &["lifecycle", "end"],
    "Executions that ended: done, failed, lost (lease run out or worker gone), yielded (given back), left (the record moved away).",
);
const RETRIED: Metric = metric(
    "onceward_executions_retried_total",
    Counter,
    LIFECYCLE,
    "Executions that ended without success, and whose job waits for another.",
);
const DUPLICATES: Metric = metric(
    "onceward_duplicates_total",
    Counter,
    &["lifecycle", "kind"],
    "Calls that had been carried out before and were answered the same: a worker's report, a create that met the holder of its key, a call with an idempotency key.",
);
const REFUSED: Metric =
    metric("onceward_refused_total", Counter, &["lifecycle", "code"], "Calls refused by a lifecycle's rules.");
const FAILED: Metric = metric(
    "onceward_failed_total",
    Counter,
    &["code"],
    "Operations that came to nothing for a reason of the engine's or the database's.",
);

const OPERATION_SECONDS: Metric =
    metric("onceward_operation_seconds", Histogram, &["kind"], "From a call's entry into the queue to its answer.");
const BATCHES: Metric = metric("onceward_batches_total", Counter, &[], "Transactions saved.");
const BATCH_SIZE: Metric = metric("onceward_batch_operations", Histogram, &[], "Operations in a saved transaction.");
const SAVE_SECONDS: Metric =
    metric("onceward_save_seconds", Histogram, &[], "Whole saves: compared, written and durable.");
const COMMIT_SECONDS: Metric = metric(
    "onceward_commit_seconds",
    Histogram,
    &[],
    "The commit alone, nearly all of it fsync; on PostgreSQL with its way there and back.",
);
const CONFLICTS: Metric =
    metric("onceward_conflicts_total", Counter, &[], "Saves that found something changed and were decided again.");
const UNTOLD: Metric = metric(
    "onceward_untold_refusals_total",
    Counter,
    &[],
    "Denials and audited refusals left out of the log, because their owner had too many.",
);
const OVERLOADED: Metric =
    metric("onceward_overloaded_total", Counter, &[], "Calls turned away because the queue was full.");
const QUEUE: Metric = metric("onceward_queue_operations", Gauge, &[], "Operations in the queue or on their way.");
const QUEUE_LIMIT: Metric = metric("onceward_queue_operations_limit", Gauge, &[], "As many as there may be.");
const QUEUE_BYTES: Metric =
    metric("onceward_queue_bytes", Gauge, &[], "Bytes of input and payloads that they keep in memory.");
const IDLE: Metric =
    metric("onceward_idle_lease_calls", Gauge, &[], "Calls for leases that have found no job and wait for one.");
const SET_ASIDE: Metric = metric(
    "onceward_due_blocked",
    Gauge,
    &[],
    "Records that are due and cannot be moved: damaged, or of an unknown version.",
);

const STORE_UP: Metric =
    metric("onceward_store_up", Gauge, &[], "1 where the database could be read at the last look.");
const RECORDS: Metric = metric("onceward_records", Gauge, STATE, "Records in each state.");
const OLDEST: Metric = metric(
    "onceward_ready_oldest_age_seconds",
    Gauge,
    STATE,
    "How long a job has waited for a worker: the longest of the first and the last thousand in line. None waits where it is missing.",
);
const READY: Metric =
    metric("onceward_ready_jobs", Gauge, &["lifecycle"], "Jobs that a worker could be given now, up to 10000.");
const LEASES: Metric = metric("onceward_leases_live", Gauge, &[], "Leases that count now, up to 10000.");
const OVERDUE: Metric = metric(
    "onceward_overdue_records",
    Gauge,
    &[],
    "Records whose time has come and that have not moved yet, up to 10000.",
);
const OVERDUE_AGE: Metric =
    metric("onceward_overdue_age_seconds", Gauge, &[], "How long the first of them has been due; 0 where none is.");

const REQUESTS: Metric = metric(
    "onceward_http_requests_total",
    Counter,
    &["route", "method", "status"],
    "Requests by the pattern of their route and the class of their status; gone: the caller went away.",
);
const REQUEST_SECONDS: Metric = metric(
    "onceward_http_request_seconds",
    Histogram,
    &["route", "method"],
    "From a request's headers to those of its answer.",
);
const CONNECTIONS: Metric = metric("onceward_http_connections", Gauge, &[], "Connections that are open.");
const POLLS: Metric = metric("onceward_http_long_polls", Gauge, &[], "Leases that wait for work.");
const STREAMS: Metric = metric("onceward_http_streams", Gauge, &[], "Streams of the log that are open.");
const BODY_BYTES: Metric =
    metric("onceward_http_body_bytes", Gauge, &[], "Bytes of JSON bodies that have come and are not answered yet.");
const SPANS: Metric = metric(
    "onceward_trace_spans_total",
    Counter,
    &["fate"],
    "Spans of traces: exported, or lost for want of room or of a collector.",
);
const BUILD: Metric = metric("onceward_build_info", Gauge, &["version", "store"], "Always 1.");
const MEMORY: Metric = metric("process_resident_memory_bytes", Gauge, &[], "Bytes in memory.");
const FILES: Metric = metric("process_open_fds", Gauge, &[], "Files and connections that are open.");

fn lives(page: &mut Page, measures: &Measures) {
    let mut each = |metric: &Metric, of: fn(&Lived) -> u64| {
        let mut samples = page.metric(metric);
        measures.lives.iter().for_each(|(lifecycle, lived)| samples.add(&[lifecycle], of(lived)));
    };
    each(&CREATED, |lived| lived.created);
    each(&STUCK, |lived| lived.stuck);
    each(&LEASED, |lived| lived.leased);
    each(&REDELIVERED, |lived| lived.redelivered);
    each(&STARTED, |lived| lived.started);
    each(&COMMITTED, |lived| lived.committed);
    each(&RETRIED, |lived| lived.retried);
    let mut ended = page.metric(&EXECUTIONS);
    for (lifecycle, lived) in &measures.lives {
        let Lived { done, failed, lost, yielded, left, .. } = *lived;
        for (end, count) in [("done", done), ("failed", failed), ("lost", lost), ("yielded", yielded), ("left", left)] {
            ended.add(&[lifecycle, end], count);
        }
    }
    let mut duplicates = page.metric(&DUPLICATES);
    for (lifecycle, lived) in &measures.lives {
        for (kind, count) in [("report", lived.repeated), ("create", lived.returned), ("key", lived.replayed)] {
            duplicates.add(&[lifecycle, kind], count);
        }
    }
    let mut states = page.metric(&ENDED);
    measures.ended.iter().for_each(|((lifecycle, state), count)| states.add(&[lifecycle, state], count));
    let mut refused = page.metric(&REFUSED);
    measures.refused.iter().for_each(|((lifecycle, code), count)| refused.add(&[lifecycle, code], count));
    let mut failed = page.metric(&FAILED);
    measures.failed.iter().for_each(|(code, count)| failed.add(&[code], count));
}

fn engine(page: &mut Page, measures: &Measures) {
    let mut seconds = page.metric(&OPERATION_SECONDS);
    measures.latency.iter().for_each(|(kind, times)| seconds.spread(&[kind], times, MICROS));
    for (metric, spread, scale) in [
        (&BATCH_SIZE, &measures.sizes, 1.0),
        (&SAVE_SECONDS, &measures.saves, MICROS),
        (&COMMIT_SECONDS, &measures.commits, MICROS),
    ] {
        if let Some(spread) = spread {
            page.metric(metric).spread(&[], spread, scale);
        }
    }
    let tally = &measures.tally;
    let counts = [
        (&BATCHES, tally.batches),
        (&CONFLICTS, tally.conflicts),
        (&UNTOLD, tally.untold),
        (&OVERLOADED, tally.overloaded),
    ];
    for (metric, count) in counts {
        page.metric(metric).add(&[], count);
    }
    let sizes = [
        (&QUEUE, measures.waiting),
        (&QUEUE_LIMIT, measures.room),
        (&QUEUE_BYTES, measures.waiting_bytes),
        (&IDLE, measures.idle),
        (&SET_ASIDE, measures.set_aside),
    ];
    for (metric, size) in sizes {
        page.metric(metric).add(&[], size);
    }
}

fn store(page: &mut Page, look: &Look) {
    page.metric(&STORE_UP).add(&[], u8::from(look.glance.is_some()));
    let Some(glance) = &look.glance else { return };
    let mut records = page.metric(&RECORDS);
    glance.counts.iter().for_each(|own| records.add(&[&own.lifecycle, &own.state], own.count));
    let age = |since: Time| {
        let micros = look.at.micros().saturating_sub(since.micros());
        scaled(u64::try_from(micros).unwrap_or(0), MICROS)
    };
    let mut oldest = page.metric(&OLDEST);
    glance.oldest.iter().for_each(|own| oldest.add(&[&own.lifecycle, &own.state], age(own.since)));
    let mut ready = page.metric(&READY);
    glance.ready.iter().for_each(|own| ready.add(&[&own.lifecycle], own.jobs));
    page.metric(&LEASES).add(&[], glance.leases);
    page.metric(&OVERDUE).add(&[], glance.overdue);
    page.metric(&OVERDUE_AGE).add(&[], glance.overdue_since.map_or(0.0, age));
}

fn server(page: &mut Page, app: &App, observe: &Observe) {
    let counted = observe.requests.counted();
    let mut requests = page.metric(&REQUESTS);
    for own in &counted {
        own.classes.iter().for_each(|(class, count)| requests.add(&[&own.route, own.method, class], count));
    }
    let mut seconds = page.metric(&REQUEST_SECONDS);
    for own in &counted {
        seconds.spread(&[&own.route, own.method], &own.times, MICROS);
    }
    let held = app.gate().held();
    let counts = [
        (&CONNECTIONS, held.connections),
        (&POLLS, held.polls),
        (&STREAMS, held.streams),
        (&BODY_BYTES, held.body_bytes),
    ];
    for (metric, count) in counts {
        page.metric(metric).add(&[], count);
    }
    if let Some(exporter) = &observe.exporter {
        let (exported, lost) = exporter.counted();
        let mut spans = page.metric(&SPANS);
        spans.add(&["exported"], exported);
        spans.add(&["lost"], lost);
    }
    let store = match app.engine().store() {
        AnyStore::Memory(_) => "memory",
        AnyStore::Sqlite(_) => "sqlite",
        AnyStore::Postgres(_) => "postgres",
    };
    page.metric(&BUILD).add(&[env!("CARGO_PKG_VERSION"), store], 1);
    for (metric, value) in [(&MEMORY, process::resident()), (&FILES, process::open_files())] {
        if let Some(value) = value {
            page.metric(metric).add(&[], value);
        }
    }
}

/// Every metric that a server can tell, for the page of the documentation.
#[cfg(test)]
pub(super) const ALL: &[&Metric] = &[
    &CREATED,
    &ENDED,
    &STUCK,
    &LEASED,
    &REDELIVERED,
    &STARTED,
    &COMMITTED,
    &EXECUTIONS,
    &RETRIED,
    &DUPLICATES,
    &REFUSED,
    &FAILED,
    &OPERATION_SECONDS,
    &BATCHES,
    &BATCH_SIZE,
    &SAVE_SECONDS,
    &COMMIT_SECONDS,
    &CONFLICTS,
    &UNTOLD,
    &OVERLOADED,
    &QUEUE,
    &QUEUE_LIMIT,
    &QUEUE_BYTES,
    &IDLE,
    &SET_ASIDE,
    &STORE_UP,
    &RECORDS,
    &OLDEST,
    &READY,
    &LEASES,
    &OVERDUE,
    &OVERDUE_AGE,
    &REQUESTS,
    &REQUEST_SECONDS,
    &CONNECTIONS,
    &POLLS,
    &STREAMS,
    &BODY_BYTES,
    &SPANS,
    &BUILD,
    &MEMORY,
    &FILES,
];

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::ALL;

    /// The page has the table of all metrics, and no other metric. `ONCEWARD_BLESS=1` writes it.
    #[test]
    fn the_page_names_every_metric() {
        let mut table = "| metric | kind | labels | tells |\n| --- | --- | --- | --- |\n".to_owned();
        for metric in ALL {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
            writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observability.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once("<!-- metrics -->\n").expect("a place for the table");
        let (told, after) = rest.split_once("<!-- end -->").expect("its end");
        if told != table {
            if std::env::var_os("ONCEWARD_BLESS").is_some() {
                let page = format!("{before}<!-- metrics -->\n{table}<!-- end -->{after}");
                std::fs::write(path, page).unwrap();
            } else {
                assert_eq!(told, table, "ONCEWARD_BLESS=1 writes it");
            }
        }
        // What else the page says of metrics is true of these.
        for word in
            page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("onceward_"))
        {
            let base =
                ["_bucket", "_sum", "_count"].iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word);
            let known = ALL.iter().any(|metric| metric.name == base || metric.name == word);
            assert!(
                known || word.starts_with("onceward_engine") || word.starts_with("onceward_server"),
                "{word} is no metric"
            );
        }
    }
}
