//! The edges of what is allowed: one more, one fewer, one too early, and somebody who is not a caller at all.

use onceward_testkit::{Stage, operator, systems, user};

use super::{created, queued, retrying, running, stage};

/// Another record, which tells a job whatever it is told to.
const BOSS: &str = r#"
language  = 1
lifecycle = "test.boss"
about     = "Sends a job what its own people may"

[states]
there = { about = "at hand", rest = true }

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

/// DOC-1, DOC-7, DOC-16: only people submit, exhaust and cancel; no other record does it for them.
#[test]
fn no_record_speaks_for_its_people() {
    let mut stage = Stage::new(systems::load_with("document", &[("boss.toml", BOSS)]));
    let (created, queued, running) = (created(&mut stage), queued(&mut stage), running(&mut stage).record);
    let retrying = retrying(&mut stage, 1);
    let nobody = user("nobody");
    for job in [created, queued, running, retrying] {
        let before = stage.record(job).version;
        let boss = stage.create("test.boss", &user("alice")).with("job", job.to_string()).ok();
        for event in ["submit", "exhaust", "cancel"] {
            stage.fire(boss, event, &nobody).unchanged();
        }
        assert_eq!(stage.record(job).version, before);
    }
}

/// DOC-1, DOC-7: a job is submitted and exhausted in one state each, and in no other.
#[test]
fn each_event_has_its_state() {
    let mut stage = stage();
    let (fresh, lease) = (created(&mut stage), running(&mut stage));
    stage.fire(fresh, "exhaust", &operator("olga")).wrong_state("CREATED", "exhaust");
    stage.fire(lease.record, "submit", &user("alice")).wrong_state("RUNNING", "submit");
    stage.fail(&lease, "TIMEOUT").ok();
    stage.fire(lease.record, "submit", &user("alice")).wrong_state("RETRYING", "submit");
}

/// DOC-6: only the retry delay runs by the clock; a queued or created job waits untouched.
#[test]
fn only_retries_are_timed() {
    let mut stage = stage();
    let (created, queued) = (created(&mut stage), queued(&mut stage));
    let versions = |stage: &Stage| (stage.record(created).version, stage.record(queued).version);
    let before = versions(&stage);
    stage.pass("1d");
    assert_eq!(versions(&stage), before);
}

/// DOC-7, DOC-12: the bounds of what callers write, from both sides.
#[test]
fn texts_keep_to_their_bounds() {
    let mut stage = stage();
    stage.create("document.job", &user("alice")).with("requestId", "r").payload(b"x").ok();
    for (message, fits) in [(String::new(), false), ("x".to_owned(), true), ("x".repeat(1_000), true)] {
        let id = queued(&mut stage);
        let attempt = stage.fire(id, "exhaust", &operator("olga")).with("message", message.as_str());
        if fits {
            attempt.ok();
            assert_eq!(stage.field(id, "lastError"), message);
        } else {
            attempt.bad_input();
        }
    }
}
