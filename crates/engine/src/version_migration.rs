//! Migrates records to another version of their lifecycle, in bounded steps.
//!
//! Problems that affect all records of a version are found before the first step. Each record is migrated by its own
//! operation, which core decides; a record that cannot be migrated stays unchanged and is reported. An interrupted
//! migration can be repeated: migrated records are skipped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Operation, RecordMigration, find_mismatches};
use onceward_core::model::{Definitions, Lifecycle};
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Catalog, ListQuery, ReadSet, Store, short_hash};

use crate::api_keys::require_operator;
use crate::decision::load_until_decided;
use crate::decision::retry_policy::MAX_LOAD_ROUNDS;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::lifecycles::{find_version, refusal_error};
use crate::submission::queue::Submission;

/// Fits one batch with the default configuration.
pub const MAX_RECORDS_PER_STEP: usize = 1_000;

/// Which records to migrate, and to which version.
#[derive(Clone, Debug, Default)]
pub struct VersionMigration {
    pub lifecycle: Arc<str>,
    /// Only records of this version: its hash, or a prefix. `None` for all other versions.
    pub from: Option<Arc<str>>,
    /// Target version; `None` for the current one.
    pub to: Option<Arc<str>>,
    /// Renamed states, old to new.
    pub state_map: BTreeMap<Arc<str>, Arc<str>>,
    /// Migrates ended records too.
    pub include_ended: bool,
    /// Decides, but migrates no record.
    pub dry_run: bool,
}

/// The scope of a migration.
#[derive(Clone, Debug)]
pub struct VersionMigrationPlan {
    pub target: Arc<Lifecycle>,
    /// Source versions with their number of records.
    pub sources: Vec<(Arc<Lifecycle>, u64)>,
}

impl VersionMigrationPlan {
    pub fn records(&self) -> u64 {
        self.sources.iter().map(|(_, records)| *records).sum()
    }
}

/// The result of one step.
#[derive(Clone, Debug, Default)]
pub struct VersionMigrationStep {
    /// In a dry run: records that would be migrated.
    pub migrated: u64,
    pub skipped: Vec<SkippedRecord>,
    /// Where to continue; `None` at the end.
    pub next: Option<u64>,
}

/// A record that was not migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRecord {
    pub record: RecordId,
    pub state: Arc<str>,
    /// `already_leased` if a worker holds it: retry later.
    pub code: Arc<str>,
    pub reason: String,
}

impl<S: Store + 'static> Engine<S> {
    /// Plans a migration. Refused if no record could be migrated this way. Requires an operator.
    pub async fn plan_migration(
        &self,
        actor: &Actor,
        migration: &VersionMigration,
    ) -> Result<VersionMigrationPlan, EngineError> {
        require_operator(actor)?;
        let store = &self.shared.store;
        let catalog = store.refresh_catalog().await?;
        let (from, to) = resolve_versions(&catalog, migration)?;
        let counts = store.counts_by_version().await?;
        let mut plan = VersionMigrationPlan { target: Arc::clone(&to), sources: Vec::new() };
        let mut problems = String::new();
        validate_state_map(&from, &to, migration, &mut problems);
        for version in from {
            let own_counts = || counts.iter().filter(|count| count.definition == version.hash);
            let own_counts = || own_counts().filter(|count| migration.include_ended || !count.is_final);
            let in_use = |state| {
                let name = &version.states[usize::from(state)].name;
                own_counts().any(|count| count.state == *name)
            };
            let records = own_counts().map(|count| count.count).sum();
            if records == 0 {
                continue;
            }
            for mismatch in find_mismatches(&version, &to, &migration.state_map, in_use) {
                let _ = writeln!(problems, "from {}: {mismatch}", short_hash(&version.hash));
            }
            plan.sources.push((Arc::clone(&version), records));
        }
        if problems.is_empty() {
            return Ok(plan);
        }
        let reason = format!("no record can be migrated to {}:\n{}", short_hash(&to.hash), problems.trim_end());
        Err(refusal_error("move", 409, "incompatible_lifecycle_version", reason))
    }

    /// Migrates up to `limit` records after `after`. Requires an operator.
    pub async fn migrate_records(
        &self,
        actor: &Actor,
        migration: &VersionMigration,
        after: Option<u64>,
        limit: usize,
    ) -> Result<VersionMigrationStep, EngineError> {
        let plan = self.plan_migration(actor, migration).await?;
        let limit = limit.clamp(1, MAX_RECORDS_PER_STEP.min(self.shared.config.max_batch_operations));
        let store = &self.shared.store;
        let (lifecycle, bytes) = (Some(Arc::clone(&migration.lifecycle)), Some(self.shared.config.max_page_bytes));
        let query = ListQuery { lifecycle, after, limit, max_bytes: bytes, ..ListQuery::default() };
        let page = store.list(&query).await?;
        let is_selected = |record: &Arc<Record>| {
            plan.sources.iter().any(|(version, _)| version.hash == record.lifecycle.hash)
                && (migration.include_ended || !record.is_final())
        };
        let records: Vec<Arc<Record>> = page.records.into_iter().filter(is_selected).collect();
        let call = |record: &Arc<Record>| {
            let (to, states) = (Arc::clone(&plan.target.hash), migration.state_map.clone());
            Call::MigrateVersion(RecordMigration {
                record: record.id,
                target_hash: to,
                state_map: states,
                include_ended: migration.include_ended,
            })
        };
        let answers = if migration.dry_run {
            let (catalog, now) = (store.refresh_catalog().await?, store.now().await?);
            let mut answers = Vec::new();
            for record in &records {
                answers.push(self.dry_run_call(&catalog.definitions, actor, call(record), now).await);
            }
            answers
        } else {
            let submissions = records.iter().map(|record| Submission::new(actor, call(record))).collect();
            let answers = self.submit_all(submissions).await?;
            answers.into_iter().map(|answer| answer.map(drop)).collect()
        };
        let mut step = VersionMigrationStep { next: page.next, ..VersionMigrationStep::default() };
        for (record, answer) in records.iter().zip(answers) {
            match answer {
                Ok(()) => step.migrated += 1,
                Err(EngineError::Refused(refusal)) => step.skipped.push(SkippedRecord {
                    record: record.id,
                    state: Arc::clone(record.state_name()),
                    code: Arc::clone(&refusal.code),
                    reason: refusal.reason.clone(),
                }),
                Err(error) => return Err(error),
            }
        }
        Ok(step)
    }

    /// Decides a call without saving it.
    async fn dry_run_call(
        &self,
        definitions: &Definitions,
        actor: &Actor,
        call: Call,
        now: Time,
    ) -> Result<(), EngineError> {
        let operation = Operation { seed: 0, actor: actor.clone(), call, check_answers: Vec::new(), trace: None };
        let mut read_set = ReadSet::uncached();
        let (store, mut loads) = (&self.shared.store, MAX_LOAD_ROUNDS);
        match load_until_decided(store, definitions, &mut read_set, &operation, now, &mut loads).await? {
            None => Err(EngineError::Undecided),
            Some(Decision::Refusal(refusal)) => Err(EngineError::Refused(refusal)),
            // A migration fires due timers first; its result is not known before.
            Some(_) => Ok(()),
        }
    }
}

/// Returns the source versions and the target version.
fn resolve_versions(
    catalog: &Catalog,
    migration: &VersionMigration,
) -> Result<(Vec<Arc<Lifecycle>>, Arc<Lifecycle>), EngineError> {
    let name = &migration.lifecycle;
    let to = match &migration.to {
        Some(hash) => find_version(catalog, name, hash)?,
        None => catalog.definitions.get(name).cloned().ok_or_else(|| {
            refusal_error("move", 404, "unknown_lifecycle", catalog.definitions.unknown_lifecycle_message(name))
        })?,
    };
    let from = match &migration.from {
        Some(hash) => vec![find_version(catalog, name, hash)?],
        None => catalog.versions(name).into_iter().map(|version| version.lifecycle).collect(),
    };
    Ok((from.into_iter().filter(|version| version.hash != to.hash).collect(), to))
}

/// Every named state must exist: a typo would leave records behind.
fn validate_state_map(from: &[Arc<Lifecycle>], to: &Lifecycle, migration: &VersionMigration, problems: &mut String) {
    for (old, new) in &migration.state_map {
        if !from.is_empty() && !from.iter().any(|version| version.state_index(old).is_some()) {
            let _ = writeln!(problems, "no source version has a state `{old}`");
        }
        if to.state_index(new).is_none() {
            let _ = writeln!(problems, "the target version has no state `{new}`");
        }
    }
}
