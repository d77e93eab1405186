//! A sound lifecycle and helpers to change it.

use onceward_core::diagnostic::{InputFile, InputFiles, Severity};
use onceward_core::load_definitions;

/// A job with a retry budget, money in a hold, a timer that follows a field, and a spawned record.
pub(crate) const JOB_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.job"
about     = "a job"
asset     = "coin"
outside   = ["mint"]

[states]
NEW     = { rest = true }
QUEUED  = { ready = true }
RUNNING = {}
WAITING = {}
DONE    = { final = true }
FAILED  = { final = true }

[fields]
tries   = { type = "int", default = 0, min = 0, max = 3 }
most    = { type = "int", const = 3 }
retryAt = { type = "time", optional = true }
note    = { type = "string", optional = true }
price   = { type = "int", min = 1, max = 100, default = 5 }
kind    = { type = "string", enum = ["small", "large"], default = "small" }

[errors]
retryable = ["yielded"]

[work]
lease  = "30s"
result = { note = { type = "string", max = 100 }, count = { type = "int", min = 0, max = 9 } }

[[on.create]]
go   = "-> NEW"
take = ["price", "kind", "note"]

[[on.fund]]
go   = "NEW"
move = [{ from = "mint", to = "user:{record.owner}", amount = "100" }]

[[on.pay]]
go   = "NEW -> QUEUED"
move = [{ from = "user:{record.owner}", to = "hold", amount = "record.price" }]

[[on.lease]]
go = "QUEUED -> RUNNING"

[[on.commit]]
go    = "RUNNING -> DONE"
set   = { note = "result.note" }
move  = [{ from = "hold", to = "revenue", amount = "rest" }]
spawn = [{ lifecycle = "test.thing", fields = { job = "record.id", count = "result.count" } }]

[[on.fail]]
go   = "RUNNING -> WAITING"
when = "error.retryable && record.tries < record.most"
set  = { tries = "record.tries + 1", retryAt = "now + backoff(record.tries, '2s', 2, '30s') + jitter('1s')" }

[[on.fail]]
go   = "RUNNING -> FAILED"
set  = { note = "error.message" }
move = [{ from = "hold", to = "user:{record.owner}", amount = "rest" }]

[[on.time]]
go = "WAITING -> QUEUED"
at = "retryAt"
"#;

pub(crate) const THING_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.thing"
about     = "what a job makes"

[states]
MADE = { rest = true }
GONE = { final = true }

[fields]
job   = { type = "ref", to = "test.job" }
count = { type = "int", min = 0, max = 9 }

[[on.create]]
go   = "-> MADE"
by   = "record"
take = ["job", "count"]

[[on.drop]]
go = "MADE -> GONE"
"#;

/// Returns the codes of the diagnostics, errors first.
pub(crate) fn diagnostic_codes(texts: &[&str]) -> Vec<&'static str> {
    let files =
        texts.iter().enumerate().map(|(at, text)| InputFile { name: format!("{at}.toml"), text: (*text).into() });
    let files = InputFiles { files: files.collect() };
    let mut found = match load_definitions(&files) {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    };
    found.sort_by_key(|diagnostic| diagnostic.severity);
    found.iter().map(|diagnostic| diagnostic.code).collect()
}

pub(crate) fn error_codes(texts: &[&str]) -> Vec<&'static str> {
    let files =
        texts.iter().enumerate().map(|(at, text)| InputFile { name: format!("{at}.toml"), text: (*text).into() });
    match load_definitions(&InputFiles { files: files.collect() }) {
        Ok(_) => Vec::new(),
        Err(found) => {
            found.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).map(|error| error.code).collect()
        }
    }
}

/// Returns the job with replacements. Each old text must occur.
pub(crate) fn changed_job(changes: &[(&str, &str)]) -> String {
    changed_text(JOB_LIFECYCLE, changes)
}

pub(crate) fn changed_text(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "not there: {old}");
        text.replacen(old, new, 1)
    })
}

/// Analyzes the changed job together with the lifecycle that it spawns.
#[track_caller]
pub(crate) fn assert_no_diagnostics(changes: &[(&str, &str)]) {
    let text = changed_job(changes);
    assert_eq!(diagnostic_codes(&[&text, THING_LIFECYCLE]), Vec::<&str>::new(), "{text}");
}

#[track_caller]
pub(crate) fn assert_only_error(changes: &[(&str, &str)], code: &str) {
    let text = changed_job(changes);
    let found = error_codes(&[&text, THING_LIFECYCLE]);
    assert!(found.contains(&code), "{found:?} has no {code}: {text}");
    assert!(found.iter().all(|other| *other == code), "{found:?} has more than {code}: {text}");
}

#[track_caller]
pub(crate) fn assert_only_warning(changes: &[(&str, &str)], code: &str) {
    let text = changed_job(changes);
    assert_eq!(diagnostic_codes(&[&text, THING_LIFECYCLE]), vec![code], "{text}");
}

#[test]
fn base_lifecycles_have_no_diagnostics() {
    assert_no_diagnostics(&[]);
}
