//! EXE-3 in random runs: compares each state with the one that `project_job_state` derives from the executions.

use std::collections::BTreeSet;

use onceward_core::decide::Decision;
use onceward_core::projection::project_job_state;
use onceward_core::record::FencingToken;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::random::{Rng, theme_seeds};
use onceward_testkit::{SimulatedLease, Simulator, user};
use serde_json::json;

use super::new_simulator;

const DEFAULT_RUNS: u64 = 60;
const OPERATIONS_PER_RUN: usize = 250;
/// Enough to use up the free yields.
const OPERATIONS_PER_YIELDING_RUN: usize = 700;

/// A random run: its jobs with their budgets, and every lease ever granted, so that late workers report too.
struct RandomRun {
    stage: Simulator,
    rng: Rng,
    jobs: Vec<(RecordId, i64)>,
    granted_leases: Vec<SimulatedLease>,
    /// If set, workers yield every job quickly, to use up the free yields.
    always_yields: bool,
}

impl RandomRun {
    fn new(seed: u64) -> Self {
        let (mut stage, mut rng) = (new_simulator(), Rng::new(seed));
        let always_yields = rng.percent(20);
        let jobs = (0..if always_yields { 1 } else { 3 })
            .map(|_| {
                let budget = rng.between(1, 4);
                (stage.create("execution.job", &user("alice")).with("budget", budget).expect_ok(), budget)
            })
            .collect();
        Self { stage, rng, jobs, granted_leases: Vec::new(), always_yields }
    }

    /// Performs one step of a worker, the engine or the clock. Most are valid; some are late or invalid.
    fn step(&mut self) {
        if self.rng.percent(40) {
            let max_millis = if self.always_yields { 1_000 } else { 40_000 };
            let length = Duration::from_millis(self.rng.between(1, max_millis));
            if self.rng.percent(70) {
                self.stage.advance_by(length);
            } else {
                self.stage.advance_without_engine_by(length);
            }
        }
        let Some((job, _)) = self.rng.pick(&self.jobs).copied() else { return };
        let has_live_execution = self.stage.record(job).live_execution().is_some();
        if !has_live_execution && self.rng.percent(80) {
            if matches!(self.stage.try_lease(job, "w1").run().decision, Decision::Refusal(_)) {
                self.stage.advance("2s");
                return;
            }
            let execution = self.stage.record(job).execution.clone().expect("a leased job has an execution");
            let worker = onceward_testkit::worker("w1");
            self.granted_leases.push(SimulatedLease { record: job, worker, token: execution.token, execution });
            return;
        }
        let newest = self.granted_leases.iter().rev().find(|lease| lease.record == job).cloned();
        let random_lease = self.rng.pick(&self.granted_leases).cloned();
        let Some(mut lease) = (if self.rng.percent(80) { newest } else { random_lease }) else { return };
        if self.rng.percent(3) {
            lease.token = FencingToken(lease.token.0 + 1);
        }
        self.report(&lease);
    }

    fn report(&mut self, lease: &SimulatedLease) {
        let stage = &mut self.stage;
        if self.rng.percent(if self.always_yields { 100 } else { 15 }) {
            stage.yield_job(lease).run();
            return;
        }
        match self.rng.below(9) {
            0 => stage.start(lease).run(),
            1 => stage.heartbeat(lease).run(),
            2 => stage.commit(lease, json!(1)).run(),
            3 => stage.commit_only(lease, json!(1)).run(),
            4 => stage.finish(lease).run(),
            5 => stage.lose_lease(lease).run(),
            6 => stage.fail(lease, "HICCUP").run(),
            _ => stage.fail(lease, "HICCUP").retryable(true).run(),
        };
    }
}

/// EXE-3
#[test]
fn state_equals_derived_state_in_random_runs() {
    let (mut seen_states, mut charged_yields) = (BTreeSet::new(), 0);
    let seeds = theme_seeds("derived", DEFAULT_RUNS);
    for seed in &seeds {
        let mut run = RandomRun::new(*seed);
        for operation in 0..if run.always_yields { OPERATIONS_PER_YIELDING_RUN } else { OPERATIONS_PER_RUN } {
            run.step();
            for (id, budget) in &run.jobs {
                let state = run.stage.state(*id);
                let derived = project_job_state(*budget, &run.stage.executions(*id));
                assert_eq!(state, derived.name(), "ONCEWARD_SEED={seed}, operation {operation}, {id}");
                seen_states.insert(state);
            }
        }
        charged_yields += run.jobs.iter().filter(|(id, _)| run.stage.executions(*id).len() > 100).count();
    }
    // A single seed is a debugging run; only all seeds together must cover every state.
    if seeds.len() > 1 {
        assert_eq!(seen_states.len(), 4, "the runs covered only {seen_states:?}");
        assert!(charged_yields > 0, "no job was yielded more than a hundred times");
    }
}
