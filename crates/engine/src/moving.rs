//! Moving records to another version of their lifecycle, a bounded number at a time.
//!
//! What keeps all records of a version from being moved is found before the first one is. Each record is moved by an operation of
//! its own, decided by core like any other; one that cannot be moved stays as it is and is named. Whoever stops in the middle
//! begins again: what is there already is passed over.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Move, Operation, carry_over, decide};
use onceward_core::model::{Definitions, Lifecycle};
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Base, Catalog, ListQuery, Store, short};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::keys::must_be_operator;
use crate::lifecycles::{refused, version_of};
use crate::queue::Submission;

/// Rounds of loading for one record that is only looked at.
const ROUNDS: usize = 1_000;

/// Records that one step moves at most.
pub const MOST_MOVED: usize = 1_000;

/// Which records are to be moved, and where.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    pub lifecycle: Arc<str>,
    /// Only those of this version: its hash, or the beginning of it. All others than the one they go to where absent.
    pub from: Option<Arc<str>>,
    /// The current version where absent.
    pub to: Option<Arc<str>>,
    /// State by state, where the other version calls it differently.
    pub states: BTreeMap<Arc<str>, Arc<str>>,
    /// Those that have ended, too.
    pub ended: bool,
    /// Find out who could be moved, and move nobody.
    pub dry_run: bool,
}

/// What a move comes to, before it begins.
#[derive(Clone, Debug)]
pub struct MovePlan {
    pub to: Arc<Lifecycle>,
    /// The versions that records come from, and how many records each has.
    pub from: Vec<(Arc<Lifecycle>, u64)>,
}

impl MovePlan {
    pub fn records(&self) -> u64 {
        self.from.iter().map(|(_, records)| *records).sum()
    }
}

/// What became of one step.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Or would be, where nobody is.
    pub moved: u64,
    pub left: Vec<Left>,
    /// Where to go on; `None` where all were looked at.
    pub next: Option<u64>,
}

/// A record that was not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub record: RecordId,
    pub state: Arc<str>,
    /// `already_leased` where a worker holds it: it can be moved later.
    pub code: Arc<str>,
    pub reason: String,
}

impl<S: Store + 'static> Engine<S> {
    /// What a move would come to; refused where no record could be moved as it says. For operators.
    pub async fn plan_move(&self, actor: &Actor, moving: &Moving) -> Result<MovePlan, EngineError> {
        must_be_operator(actor)?;
        let store = &self.shared.store;
        let catalog = store.newest_definitions().await?;
        let (from, to) = ends(&catalog, moving)?;
        let counts = store.counts_by_version().await?;
        let mut plan = MovePlan { to: Arc::clone(&to), from: Vec::new() };
        let mut wrong = String::new();
        known_states(&from, &to, moving, &mut wrong);
        for version in from {
            let own = || counts.iter().filter(|count| count.definition == version.hash);
            let own = || own().filter(|count| moving.ended || !count.is_final);
            let in_use = |state| {
                let name = &version.states[usize::from(state)].name;
                own().any(|count| count.state == *name)
            };
            let records = own().map(|count| count.count).sum();
            if records == 0 {
                continue;
            }
            for misfit in carry_over(&version, &to, &moving.states, in_use) {
                let _ = writeln!(wrong, "from {}: {misfit}", short(&version.hash));
            }
            plan.from.push((Arc::clone(&version), records));
        }
        if wrong.is_empty() {
            return Ok(plan);
        }
        let reason = format!("no record can be moved to {} so:\n{}", short(&to.hash), wrong.trim_end());
        Err(refused("move", 409, "cannot_move", reason))
    }

    /// Move some records: those after a place, at most so many. For operators.
    pub async fn move_some(
        &self,
        actor: &Actor,
        moving: &Moving,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Moved, EngineError> {
        let plan = self.plan_move(actor, moving).await?;
        let limit = limit.clamp(1, MOST_MOVED.min(self.shared.config.batch));
        let store = &self.shared.store;
        let (lifecycle, bytes) = (Some(Arc::clone(&moving.lifecycle)), Some(self.shared.config.page_bytes));
        let query = ListQuery { lifecycle, after, limit, bytes, ..ListQuery::default() };
        let page = store.list(&query).await?;
        let goes = |record: &Arc<Record>| {
            plan.from.iter().any(|(version, _)| version.hash == record.lifecycle.hash)
                && (moving.ended || !record.is_final())
        };
        let records: Vec<Arc<Record>> = page.records.into_iter().filter(goes).collect();
        let call = |record: &Arc<Record>| {
            let (to, states) = (Arc::clone(&plan.to.hash), moving.states.clone());
            Call::Move(Move { record: record.id, to, states, ended: moving.ended })
        };
        let answers = if moving.dry_run {
            let (catalog, now) = (store.newest_definitions().await?, store.now().await?);
            let mut answers = Vec::new();
            for record in &records {
                answers.push(self.tried(&catalog.definitions, actor, call(record), now).await);
            }
            answers
        } else {
            let submissions = records.iter().map(|record| Submission::new(actor, call(record))).collect();
            let answers = self.submit_all(submissions).await?;
            answers.into_iter().map(|answer| answer.map(drop)).collect()
        };
        let mut moved = Moved { next: page.next, ..Moved::default() };
        for (record, answer) in records.iter().zip(answers) {
            match answer {
                Ok(()) => moved.moved += 1,
                Err(EngineError::Refused(refusal)) => moved.left.push(Left {
                    record: record.id,
                    state: Arc::clone(record.state_name()),
                    code: Arc::clone(&refusal.code),
                    reason: refusal.reason.clone(),
                }),
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Decide a call, and forget it.
    async fn tried(&self, definitions: &Definitions, actor: &Actor, call: Call, now: Time) -> Result<(), EngineError> {
        let operation = Operation { seed: 0, actor: actor.clone(), call, answers: Vec::new(), trace: None };
        let mut base = Base::wary();
        for _ in 0..ROUNDS {
            match decide(definitions, base.snapshot(), &operation, now) {
                Decision::Missing(keys) => self.shared.store.load(&mut base, &keys).await?,
                Decision::Refusal(refusal) => return Err(EngineError::Refused(refusal)),
                // What is due is done first when it is moved; what comes of it is not known before.
                Decision::Changes(_) | Decision::NoOp(_) | Decision::Due { .. } | Decision::Ask(_) => return Ok(()),
            }
        }
        Err(EngineError::Undecided)
    }
}

/// The versions that records are moved from, and the one that they are moved to.
fn ends(catalog: &Catalog, moving: &Moving) -> Result<(Vec<Arc<Lifecycle>>, Arc<Lifecycle>), EngineError> {
    let name = &moving.lifecycle;
    let to = match &moving.to {
        Some(hash) => version_of(catalog, name, hash)?,
        None => catalog
            .definitions
            .get(name)
            .cloned()
            .ok_or_else(|| refused("move", 404, "no_such_lifecycle", catalog.definitions.no_lifecycle(name)))?,
    };
    let from = match &moving.from {
        Some(hash) => vec![version_of(catalog, name, hash)?],
        None => catalog.versions(name).into_iter().map(|version| version.lifecycle).collect(),
    };
    Ok((from.into_iter().filter(|version| version.hash != to.hash).collect(), to))
}

/// A state that is named must be there: a slip of the pen would leave records where they are, or send them nowhere.
fn known_states(from: &[Arc<Lifecycle>], to: &Lifecycle, moving: &Moving, wrong: &mut String) {
    for (old, new) in &moving.states {
        if !from.is_empty() && !from.iter().any(|version| version.state(old).is_some()) {
            let _ = writeln!(wrong, "no version that records come from has a state `{old}`");
        }
        if to.state(new).is_none() {
            let _ = writeln!(wrong, "there is no state `{new}` there");
        }
    }
}
