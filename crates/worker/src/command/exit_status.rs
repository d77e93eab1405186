//! Converts a command's exit status and output into the job's result.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::value::RawValue;

use crate::payload::Payload;
use crate::work::{BAD_RESULT_CODE, Failure};

/// `EX_TEMPFAIL` of sysexits: a temporary failure.
pub(super) const EX_TEMPFAIL: i32 = 75;

/// How a command's output becomes the job's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultKind {
    /// JSON if valid, otherwise text if valid, otherwise bytes; no result if the output is blank.
    #[default]
    Auto,
    Json,
    /// A JSON string without the final line break.
    Text,
    Bytes,
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum ProcessOutcome {
    Succeeded(Vec<u8>),
    Failed(Failure),
    /// The command can never run on this machine, so the worker stops.
    CannotRun(String),
}

/// Determines the outcome from the exit status and the last line of standard error.
pub(super) fn from_exit_status(status: ExitStatus, output: Vec<u8>, last_line: &str) -> ProcessOutcome {
    match (status.code(), status.signal()) {
        (Some(0), _) => ProcessOutcome::Succeeded(output),
        (Some(EX_TEMPFAIL), _) => {
            ProcessOutcome::Failed(failure_from_stderr("EXIT_75", last_line, "exit code 75", true))
        }
        (Some(126 | 127), _) => {
            ProcessOutcome::CannotRun(if last_line.is_empty() { status.to_string() } else { last_line.to_owned() })
        }
        (Some(code), _) => ProcessOutcome::Failed(failure_from_stderr(
            &format!("EXIT_{code}"),
            last_line,
            &format!("exit code {code}"),
            false,
        )),
        (None, signal) => {
            let code = format!("SIGNAL_{}", signal.unwrap_or_default());
            ProcessOutcome::Failed(failure_from_stderr(&code, last_line, &status.to_string(), true))
        }
    }
}

/// A last line of the form `CODE: message` sets the code.
fn failure_from_stderr(code: &str, last_line: &str, default_message: &str, retryable: bool) -> Failure {
    let is_code = |code: &str| {
        code.starts_with(|char: char| char.is_ascii_uppercase())
            && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let (code, message) = match last_line.split_once(':') {
        Some((named, message)) if is_code(named) => (named, message.trim_start()),
        _ => (code, last_line),
    };
    let message = if message.is_empty() { default_message } else { message };
    Failure { retryable: Some(retryable), ..Failure::terminal(code, message) }
}

/// Converts standard output into a result.
pub(super) fn result_from_stdout(output: Vec<u8>, kind: ResultKind) -> Result<Option<Payload>, Failure> {
    match kind {
        ResultKind::Bytes => Ok(Some(Payload::Bytes(output.into()))),
        ResultKind::Json => match json_payload(&output) {
            Some(json) => Ok(Some(json)),
            None => Err(Failure::terminal(BAD_RESULT_CODE, "standard output is not valid JSON")),
        },
        ResultKind::Text => match text_payload(&output) {
            Some(text) => Ok(Some(text)),
            None => Err(Failure::terminal(BAD_RESULT_CODE, "standard output is not valid UTF-8, or contains NUL")),
        },
        ResultKind::Auto if output.iter().all(u8::is_ascii_whitespace) => Ok(None),
        ResultKind::Auto => {
            let found = json_payload(&output).or_else(|| text_payload(&output));
            Ok(Some(found.unwrap_or_else(|| Payload::Bytes(output.into()))))
        }
    }
}

/// Keeps the JSON byte for byte, without surrounding whitespace.
fn json_payload(output: &[u8]) -> Option<Payload> {
    let json: Box<RawValue> = serde_json::from_slice(output).ok()?;
    // The server refuses NUL, which JSON strings may contain as an escape.
    (!json.get().contains("\\u0000")).then_some(Payload::Json(json))
}

fn text_payload(output: &[u8]) -> Option<Payload> {
    let text = std::str::from_utf8(output).ok().filter(|text| !text.contains('\0'))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    Some(Payload::text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `raw` is a `wait` status: the exit code in the second byte, a signal in the first.
    fn outcome_of(raw: i32, last_line: &str) -> ProcessOutcome {
        from_exit_status(ExitStatus::from_raw(raw), b"out".to_vec(), last_line)
    }

    fn failure_of(raw: i32, last_line: &str) -> (String, String, Option<bool>) {
        match outcome_of(raw, last_line) {
            ProcessOutcome::Failed(failure) => (failure.code, failure.message, failure.retryable),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exit_status_maps_to_documented_outcome() {
        assert!(matches!(outcome_of(0, "warning"), ProcessOutcome::Succeeded(output) if output == b"out"));
        let expected = |code: &str, message: &str, retryable| (code.to_owned(), message.to_owned(), Some(retryable));
        assert_eq!(failure_of(75 << 8, ""), expected("EXIT_75", "exit code 75", true));
        assert_eq!(failure_of(75 << 8, "BUSY: come back"), expected("BUSY", "come back", true));
        assert_eq!(failure_of(1 << 8, "no such file"), expected("EXIT_1", "no such file", false));
        assert_eq!(failure_of(3 << 8, "CORRUPT_DATA: page 2: gone"), expected("CORRUPT_DATA", "page 2: gone", false));
        assert_eq!(failure_of(3 << 8, "Error: lower case"), expected("EXIT_3", "Error: lower case", false));
        assert_eq!(failure_of(3 << 8, "1A: digit"), expected("EXIT_3", "1A: digit", false));
        assert_eq!(failure_of(9, "").0, "SIGNAL_9");
        assert_eq!(failure_of(9, "").2, Some(true));
        assert!(matches!(outcome_of(126 << 8, ""), ProcessOutcome::CannotRun(_)));
        assert!(
            matches!(outcome_of(127 << 8, "sh: x: not found"), ProcessOutcome::CannotRun(reason) if reason == "sh: x: not found")
        );
    }

    fn rendered_result(output: &[u8], kind: ResultKind) -> String {
        match result_from_stdout(output.to_vec(), kind) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(Payload::Json(json))) => json.get().to_owned(),
            Ok(Some(Payload::Bytes(bytes))) => format!("{bytes:?}"),
            Err(failure) => failure.code,
        }
    }

    #[test]
    fn stdout_becomes_json_text_or_bytes_by_result_kind() {
        use ResultKind::{Auto, Bytes, Json, Text};
        assert_eq!(rendered_result(b"", Auto), "nothing");
        assert_eq!(rendered_result(b" \n", Auto), "nothing");
        assert_eq!(rendered_result(b"{\"a\":  1.50}\n", Auto), "{\"a\":  1.50}");
        assert_eq!(rendered_result(b"two words\n", Auto), "\"two words\"");
        assert_eq!(rendered_result(b"a\nb\r\n", Auto), "\"a\\nb\"");
        assert_eq!(rendered_result(b"\0", Auto), "b\"\\0\"");
        assert_eq!(rendered_result(b"\xff", Auto), "b\"\\xff\"");
        assert_eq!(rendered_result(b"12\n", Text), "\"12\"");
        assert_eq!(rendered_result(b"\xff", Text), "BAD_RESULT");
        assert_eq!(rendered_result(b"two words", Json), "BAD_RESULT");
        assert_eq!(rendered_result(b"12\n", Bytes), "b\"12\\n\"");
    }
}
