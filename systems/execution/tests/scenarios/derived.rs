//! EXE-3 on random plays: the second opinion of `project`, asked after every operation.

use std::collections::BTreeSet;

use onceward_core::decide::Decision;
use onceward_core::project::job_state;
use onceward_core::record::Token;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::random::{Chance, seeds};
use onceward_testkit::{Lease, Stage, user};
use serde_json::json;

use super::stage;

const PLAYS: u64 = 60;
const OPERATIONS: usize = 250;
/// Of a play whose workers mostly give back.
const MANY: usize = 700;

/// A play: its jobs with their budgets, and every lease that was ever granted, so that late workers come back too.
struct Play {
    stage: Stage,
    chance: Chance,
    jobs: Vec<(RecordId, i64)>,
    leases: Vec<Lease>,
    /// Its workers give back whatever they get, and quickly, to get past the free yields.
    gives_back: bool,
}

impl Play {
    fn new(seed: u64) -> Self {
        let (mut stage, mut chance) = (stage(), Chance::new(seed));
        let gives_back = chance.yes(20);
        let jobs = (0..if gives_back { 1 } else { 3 })
            .map(|_| {
                let budget = chance.between(1, 4);
                (stage.create("execution.job", &user("alice")).with("budget", budget).ok(), budget)
            })
            .collect();
        Self { stage, chance, jobs, leases: Vec::new(), gives_back }
    }

    /// One thing that a worker, the engine or the clock may do; most are in place, some late or made up.
    fn step(&mut self) {
        if self.chance.yes(40) {
            let longest = if self.gives_back { 1_000 } else { 40_000 };
            let length = Duration::from_millis(self.chance.between(1, longest));
            if self.chance.yes(70) {
                self.stage.pass_for(length);
            } else {
                self.stage.doze_for(length);
            }
        }
        let Some((job, _)) = self.chance.pick(&self.jobs).copied() else { return };
        let live = self.stage.record(job).live_execution().is_some();
        if !live && self.chance.yes(80) {
            if matches!(self.stage.try_lease(job, "w1").outcome().decision, Decision::Refusal(_)) {
                self.stage.pass("2s");
                return;
            }
            let execution = self.stage.record(job).execution.clone().expect("a lease has an execution");
            let worker = onceward_testkit::worker("w1");
            self.leases.push(Lease { record: job, worker, token: execution.token, execution });
            return;
        }
        let newest = self.leases.iter().rev().find(|lease| lease.record == job).cloned();
        let any = self.chance.pick(&self.leases).cloned();
        let Some(mut lease) = (if self.chance.yes(80) { newest } else { any }) else { return };
        if self.chance.yes(3) {
            lease.token = Token(lease.token.0 + 1);
        }
        self.report(&lease);
    }

    fn report(&mut self, lease: &Lease) {
        let stage = &mut self.stage;
        if self.chance.yes(if self.gives_back { 100 } else { 15 }) {
            stage.give_back(lease).outcome();
            return;
        }
        match self.chance.below(9) {
            0 => stage.start(lease).outcome(),
            1 => stage.heartbeat(lease).outcome(),
            2 => stage.commit(lease, json!(1)).outcome(),
            3 => stage.commit_only(lease, json!(1)).outcome(),
            4 => stage.finish(lease).outcome(),
            5 => stage.lost(lease).outcome(),
            6 => stage.fail(lease, "HICCUP").outcome(),
            _ => stage.fail(lease, "HICCUP").retryable(true).outcome(),
        };
    }
}

/// EXE-3: whatever workers, the engine and the clock do, in time, late or not at all, a job's state is at every moment the
/// one that its budget and its executions give.
#[test]
fn the_state_always_follows_from_the_executions() {
    let (mut seen, mut charged_yields) = (BTreeSet::new(), 0);
    let seeds = seeds("derived", PLAYS);
    for seed in &seeds {
        let mut play = Play::new(*seed);
        for operation in 0..if play.gives_back { MANY } else { OPERATIONS } {
            play.step();
            for (id, budget) in &play.jobs {
                let state = play.stage.state(*id);
                let derived = job_state(*budget, &play.stage.executions(*id));
                assert_eq!(state, derived.name(), "ONCEWARD_SEED={seed}, operation {operation}, {id}");
                seen.insert(state);
            }
        }
        charged_yields += play.jobs.iter().filter(|(id, _)| play.stage.executions(*id).len() > 100).count();
    }
    // One seed alone is somebody looking at a failure; all of them must have been everywhere.
    if seeds.len() > 1 {
        assert_eq!(seen.len(), 4, "the plays saw only {seen:?}");
        assert!(charged_yields > 0, "no job was given back more than a hundred times");
    }
}
