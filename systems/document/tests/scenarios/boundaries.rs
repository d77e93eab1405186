//! Boundary cases: limits from both sides, and events sent by other records.

use onceward_testkit::{Simulator, operator, systems, user};

use super::{create_job, create_queued_job, create_retrying_job, create_running_job, new_simulator};

/// A record that sends the named event to a job.
const FORWARDER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.boss"
about     = "Sends a job events of its owner and operators"

[states]
there = { about = "open", rest = true }

[fields]
job = { type = "ref", to = "document.job" }

[access]
read = ["anyone"]

[[on.create]]
go   = "-> there"
take = ["job"]

[[on.submit]]
go      = "there"
cascade = [{ to = "record.job", event = "submit" }]

[[on.exhaust]]
go      = "there"
cascade = [{ to = "record.job", event = "exhaust" }]

[[on.cancel]]
go      = "there"
cascade = [{ to = "record.job", event = "cancel" }]
"#;

/// DOC-1, DOC-7, DOC-16
#[test]
fn cascade_from_other_record_cannot_submit_exhaust_or_cancel() {
    let mut stage = Simulator::new(systems::load_with_files("document", &[("boss.toml", FORWARDER_LIFECYCLE)]));
    let (created, queued, running) =
        (create_job(&mut stage), create_queued_job(&mut stage), create_running_job(&mut stage).record);
    let retrying = create_retrying_job(&mut stage, 1);
    let stranger = user("stranger");
    for job in [created, queued, running, retrying] {
        let before = stage.record(job).version;
        let forwarder = stage.create("test.boss", &user("alice")).with("job", job.to_string()).expect_ok();
        for event in ["submit", "exhaust", "cancel"] {
            stage.fire(forwarder, event, &stranger).expect_unchanged();
        }
        assert_eq!(stage.record(job).version, before);
    }
}

/// DOC-1, DOC-7
#[test]
fn submit_and_exhaust_are_refused_outside_their_state() {
    let mut stage = new_simulator();
    let (created, lease) = (create_job(&mut stage), create_running_job(&mut stage));
    stage.fire(created, "exhaust", &operator("olga")).expect_wrong_state("CREATED", "exhaust");
    stage.fire(lease.record, "submit", &user("alice")).expect_wrong_state("RUNNING", "submit");
    stage.fail(&lease, "TIMEOUT").expect_ok();
    stage.fire(lease.record, "submit", &user("alice")).expect_wrong_state("RETRYING", "submit");
}

/// DOC-6
#[test]
fn created_and_queued_jobs_have_no_timer() {
    let mut stage = new_simulator();
    let (created, queued) = (create_job(&mut stage), create_queued_job(&mut stage));
    let versions = |stage: &Simulator| (stage.record(created).version, stage.record(queued).version);
    let before = versions(&stage);
    stage.advance("1d");
    assert_eq!(versions(&stage), before);
}

/// DOC-7, DOC-12
#[test]
fn exhaust_message_length_is_bounded() {
    let mut stage = new_simulator();
    stage.create("document.job", &user("alice")).with("requestId", "r").payload(b"x").expect_ok();
    for (message, fits) in [(String::new(), false), ("x".to_owned(), true), ("x".repeat(1_000), true)] {
        let id = create_queued_job(&mut stage);
        let attempt = stage.fire(id, "exhaust", &operator("olga")).with("message", message.as_str());
        if fits {
            attempt.expect_ok();
            assert_eq!(stage.field(id, "lastError"), message);
        } else {
            attempt.expect_bad_input();
        }
    }
}
