//! Invariants of execution jobs under random operations of owners, strangers, operators and workers. `ONCEWARD_SEED=…`
//! replays one case.

use onceward_core::projection::project_job_state;
use onceward_core::record::ExecutionStatus;
use onceward_core::time::Duration;
use onceward_testkit::random::RandomWalk;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::{Value, json};

/// EXE-3, EXE-10, EXE-11, INV-1: the state follows from the executions; attempts, failures and yields add up; the
/// budget is kept; an effect exists if and only if a worker committed; a succeeded job has no error.
#[test]
fn random_operations_keep_job_invariants() {
    RandomWalk::with_actors(&[user("alice"), user("mallory"), operator("olga")])
        .error_codes(&["boom", "lost", "yielded"])
        .values_for("budget", [json!(1), json!(2), json!(3)])
        .run("execution", 12, 160, || systems::new_simulator("execution"), assert_invariants);
}

fn assert_invariants(stage: &Simulator) {
    for job in stage.records_of("execution.job") {
        let int = |name: &str| stage.field(job.id, name).as_i64().expect("a number");
        let (budget, failures, yields) = (int("budget"), int("failures"), int("yields"));
        let executions = stage.executions(job.id);
        assert_eq!(&**job.state_name(), project_job_state(budget, &executions).name(), "EXE-3");
        let aborted = executions.iter().filter(|execution| execution.status == ExecutionStatus::Aborted).count();
        assert_eq!(failures + yields, i64::try_from(aborted).expect("few"), "every ended attempt is counted once");
        assert!(failures <= budget, "EXE-11: {failures} failures of {budget}");
        assert_eq!(stage.effects(job.id).len(), usize::from(job.committed_token.is_some()), "INV-1");
        let error = stage.field(job.id, "lastError");
        match &**job.state_name() {
            "SUCCEEDED" => assert!(job.committed_token.is_some() && error == Value::Null),
            "FAILED" => assert!(job.committed_token.is_none() && error != Value::Null),
            "PENDING" if failures + yields > 0 => {
                let wait = stage.time_until(job.id, "readyAt");
                assert!(wait <= Duration::from_secs(301), "the delay is bounded");
            }
            _ => {}
        }
    }
}
