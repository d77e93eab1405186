//! `verify`: replays the log and compares the result with every table.
//!
//! The log is replayed in order into a [`ReplayDatabase`]. This checks that seqs have no gap, that the hash chain
//! holds, that each entry fits its record, and that `decide` decides the same again. Then each table is read page by
//! page. A page says up to which seq the log was written when it was read; the replay continues to that seq, and the
//! page is compared. So an engine may write meanwhile.

mod activations;
mod checkpoints;
mod global_invariants;
mod invariants;
mod log;
mod missing;
mod redecide;
mod report;
mod row_bitmap;
mod tables;

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::model::Definitions;
use onceward_core::time::Time;
use onceward_store::scan::{ProjectionTable, Scan};
use onceward_store::{ReplayDatabase, StoreError, TableDifference};

use activations::Activations;
pub use report::{DecisionDrift, ProgressObserver, PrunedSummary, VerifyReport};

/// Keeps each read transaction short.
const SCAN_PAGE_ROWS: usize = 2_000;

/// Pruning runs rarely, so that a few restarts are enough.
const MAX_PRUNE_RESTARTS: usize = 20;

/// Verifies a store. `now` bounds the leases that heartbeats extended: none ends later than a day from now.
///
/// The report contains what is wrong with the store; an error means that it could not be read. The work runs in the
/// current task and may take long: use a dedicated thread.
pub async fn verify<S: Scan>(
    store: &S,
    now: Time,
    observer: &mut dyn ProgressObserver,
) -> Result<VerifyReport, StoreError> {
    for _ in 0..MAX_PRUNE_RESTARTS {
        match verify_once(store, now, observer).await {
            Ok(report) => return Ok(report),
            Err(VerifyStop::Store(error)) => return Err(error),
            Err(VerifyStop::Pruned) => {}
        }
    }
    let stopped = "entries were pruned repeatedly while the log was read; run it again when pruning has finished";
    Ok(VerifyReport { stopped: Some(stopped.to_owned()), ..VerifyReport::default() })
}

enum VerifyStop {
    Store(StoreError),
    /// Entries that were not read yet were pruned: start again with the new checkpoint.
    Pruned,
}

impl From<StoreError> for VerifyStop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

async fn verify_once<S: Scan>(
    store: &S,
    now: Time,
    observer: &mut dyn ProgressObserver,
) -> Result<VerifyReport, VerifyStop> {
    let catalog_scan = store.scan_catalog().await?;
    let mut verifier = Verifier {
        store,
        now,
        latest_at: Time::MIN,
        replay: ReplayDatabase::new(&catalog_scan.catalog)?,
        last_batch_end: None,
        newest_checkpoint_seq: 0,
        definitions: HashMap::new(),
        activations: Activations::from_catalog(&catalog_scan.catalog),
        report: VerifyReport::default(),
        observer,
    };
    for difference in catalog_scan.differences {
        verifier.add_difference(difference);
    }
    if !catalog_scan.is_complete {
        verifier.report.stopped =
            Some("stored lifecycles are damaged, and nothing can be verified without them".to_owned());
        return Ok(verifier.report);
    }
    verifier.preload_checkpoints().await?;
    verifier.read_log().await?;
    verifier.verify_tables().await?;
    verifier.verify_global_invariants()?;
    verifier.report_unlogged_activations();
    verifier.report.seq = verifier.replay.seq;
    verifier.report.records = verifier.replay.created_records - verifier.replay.pruned_records;
    Ok(verifier.report)
}

struct Verifier<'a, S> {
    store: &'a S,
    now: Time,
    latest_at: Time,
    replay: ReplayDatabase,
    /// Seq of the last entry, and the end of its batch by its own claim.
    last_batch_end: Option<(u64, i64)>,
    /// Newest checkpoint at the start.
    newest_checkpoint_seq: u64,
    /// Current versions by catalog revision.
    definitions: HashMap<u32, Arc<Definitions>>,
    activations: Activations,
    report: VerifyReport,
    observer: &'a mut dyn ProgressObserver,
}

impl<S: Scan> Verifier<'_, S> {
    fn add_difference(&mut self, difference: TableDifference) {
        self.observer.on_difference(&difference);
        self.report.add_difference(difference);
    }

    fn report_progress(&mut self, table_name: &'static str, done: u64, total: u64) {
        self.observer.on_progress(table_name, done, total);
    }

    fn definitions_at(&mut self, revision: u32) -> Arc<Definitions> {
        let catalog = self.replay.catalog();
        let cached =
            self.definitions.entry(revision).or_insert_with(|| Arc::new(catalog.definitions_at_revision(revision)));
        Arc::clone(cached)
    }

    /// Estimates the number of rows of a table.
    fn expected_rows(&self, table: ProjectionTable) -> u64 {
        match table {
            ProjectionTable::LogSeq | ProjectionTable::PruneState | ProjectionTable::ApiKeysRevision => 1,
            _ => self.replay.created_records,
        }
    }
}
