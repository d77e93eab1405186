//! `verify`: everything that a store keeps, worked out again from its log and compared.
//!
//! The log is read in order into a [`Scratch`]: its places without a gap, its hashes, what each entry makes of its record, and
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
//! | `uses.rs` | versions that became current on somebody's word |
//! | `missing.rs` | rows that should be there and were not met |
//! | `seen.rs` | which rows were met, one bit each |
//! | `report.rs` | what was found |

mod again;
mod invariants;
mod log;
mod missing;
mod pruned;
mod report;
mod seen;
mod tables;
mod uses;
mod whole;

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::model::Definitions;
use onceward_core::time::Time;
use onceward_store::scan::{Scan, Table};
use onceward_store::{Difference, Scratch, StoreError};

pub use report::{Beyond, Drift, Report, Watch};
use uses::Uses;

/// Entries of the log, and rows of a table, that are read in one transaction.
const PAGE: usize = 2_000;

/// How often it starts again because pruning took what it had not read yet.
const TIMES: usize = 20;

/// Look through a store. `now` is the time, for leases that heartbeats have moved: none ends later than a day from now.
///
/// What is wrong with the store is in the report; an error means that it could not be read. The work is done in this very
/// task and takes as long as it takes: give it a thread of its own.
pub async fn verify<S: Scan>(store: &S, now: Time, watch: &mut dyn Watch) -> Result<Report, StoreError> {
    for _ in 0..TIMES {
        match once(store, now, watch).await {
            Ok(report) => return Ok(report),
            Err(Stop::Store(error)) => return Err(error),
            Err(Stop::Pruned) => {}
        }
    }
    let stopped = "entries were pruned again and again while the log was read: try again when pruning is over";
    Ok(Report { stopped: Some(stopped.to_owned()), ..Report::default() })
}

/// Why it does not go on.
enum Stop {
    Store(StoreError),
    /// Entries that were still to be read are gone: from the start again, by the new checkpoint.
    Pruned,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

async fn once<S: Scan>(store: &S, now: Time, watch: &mut dyn Watch) -> Result<Report, Stop> {
    let learned = store.learn().await?;
    let mut verify = Verify {
        store,
        now,
        latest: Time::MIN,
        scratch: Scratch::new(&learned.catalog)?,
        batch_end: None,
        newest: 0,
        definitions: HashMap::new(),
        uses: Uses::of(&learned.catalog),
        report: Report::default(),
        watch,
    };
    for difference in learned.differences {
        verify.found(difference);
    }
    if !learned.is_whole {
        verify.report.stopped = Some("lifecycles are damaged: nothing can be worked out without them".to_owned());
        return Ok(verify.report);
    }
    verify.stand().await?;
    verify.read_log().await?;
    verify.tables().await?;
    verify.whole()?;
    verify.uses_untold();
    verify.report.seq = verify.scratch.seq;
    verify.report.records = verify.scratch.records - verify.scratch.gone;
    Ok(verify.report)
}

struct Verify<'a, S> {
    store: &'a S,
    now: Time,
    /// The latest time in the log.
    latest: Time,
    scratch: Scratch,
    /// The last entry that was read, and where its batch says that it ends.
    batch_end: Option<(u64, i64)>,
    /// The newest checkpoint when the log was first looked at.
    newest: u64,
    /// The current versions as they were, by the catalog's number.
    definitions: HashMap<u32, Arc<Definitions>>,
    uses: Uses,
    report: Report,
    watch: &'a mut dyn Watch,
}

impl<S: Scan> Verify<'_, S> {
    fn found(&mut self, difference: Difference) {
        self.watch.difference(&difference);
        self.report.add(difference);
    }

    /// A table's name while it is read.
    fn at(&mut self, what: &'static str, done: u64, all: u64) {
        self.watch.progress(what, done, all);
    }

    fn definitions(&mut self, number: u32) -> Arc<Definitions> {
        let catalog = self.scratch.catalog();
        let old = self.definitions.entry(number).or_insert_with(|| Arc::new(catalog.as_of(number)));
        Arc::clone(old)
    }

    /// How many rows of a table there should be, about.
    fn about(&self, table: Table) -> u64 {
        match table {
            Table::Counter | Table::Pruned | Table::KeyChanges => 1,
            _ => self.scratch.records,
        }
    }
}
