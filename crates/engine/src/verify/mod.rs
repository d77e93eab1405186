//! `verify`: everything that a store keeps, worked out again from its log and compared.
//!
//! The log is read in order into a [`ReplayDatabase`]: its places without a gap, its hashes, what each entry makes of its record, and
//! whether `decide` still decides so. Then each table is read page by page. A page says how far the log went when it was read; the
//! scratch goes on to there, and the page is compared with it. So an engine may go on writing all the while.
//!
//! | file | duty |
//! | --- | --- |
//! | `log.rs` | the log: gaps, hashes, entries that do not fit |
//! | `pruned.rs` | checkpoints: what pruning took, and what is carried forward |
//! | `again.rs` | deciding an old operation again |
//! | `invariants.rs` | what must hold of every change, and of the whole |
//! | `tables.rs` | tables held against the scratch |
//! | `activations.rs` | versions that became current on somebody's word |
//! | `missing.rs` | rows that should be there and were not met |
//! | `row_bitmap.rs` | which rows were met, one bit each |
//! | `report.rs` | what was found |

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

/// Entries of the log, and rows of a table, that are read in one transaction.
const SCAN_PAGE_ROWS: usize = 2_000;

/// How often it starts again because pruning took what it had not read yet.
const MAX_PRUNE_RESTARTS: usize = 20;

/// Look through a store. `now` is the time, for leases that heartbeats have moved: none ends later than a day from now.
///
/// What is wrong with the store is in the report; an error means that it could not be read. The work is done in this very
/// task and takes as long as it takes: give it a thread of its own.
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
    let stopped = "entries were pruned again and again while the log was read: try again when pruning is over";
    Ok(VerifyReport { stopped: Some(stopped.to_owned()), ..VerifyReport::default() })
}

/// Why it does not go on.
enum VerifyStop {
    Store(StoreError),
    /// Entries that were still to be read are gone: from the start again, by the new checkpoint.
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
        verifier.report.stopped = Some("lifecycles are damaged: nothing can be worked out without them".to_owned());
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
    /// The latest time in the log.
    latest_at: Time,
    replay: ReplayDatabase,
    /// The last entry that was read, and where its batch says that it ends.
    last_batch_end: Option<(u64, i64)>,
    /// The newest checkpoint when the log was first looked at.
    newest_checkpoint_seq: u64,
    /// The current versions as they were, by the catalog's number.
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

    /// A table's name while it is read.
    fn report_progress(&mut self, table_name: &'static str, done: u64, total: u64) {
        self.observer.on_progress(table_name, done, total);
    }

    fn definitions_at(&mut self, revision: u32) -> Arc<Definitions> {
        let catalog = self.replay.catalog();
        let cached =
            self.definitions.entry(revision).or_insert_with(|| Arc::new(catalog.definitions_at_revision(revision)));
        Arc::clone(cached)
    }

    /// How many rows of a table there should be, about.
    fn expected_rows(&self, table: ProjectionTable) -> u64 {
        match table {
            ProjectionTable::LogSeq | ProjectionTable::PruneState | ProjectionTable::ApiKeysRevision => 1,
            _ => self.replay.created_records,
        }
    }
}
