//! What a program's end means for its job.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::value::RawValue;

use crate::payload::Payload;
use crate::work::{BAD_RESULT, Failure};

/// `EX_TEMPFAIL` of sysexits: try again later.
pub(super) const TRY_AGAIN: i32 = 75;

/// How a program's output becomes the job's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultKind {
    /// JSON where it is some, else text, else bytes; nothing where there is none.
    #[default]
    Auto,
    Json,
    /// A JSON string, without the last line's end.
    Text,
    Bytes,
}

/// How it ended, in the worker's eyes.
#[derive(Debug)]
pub(super) enum Verdict {
    Done(Vec<u8>),
    Failed(Failure),
    /// Here it can never be run: the worker is to stop.
    CannotRun(String),
}

/// By its exit code, and the last line that it wrote to standard error.
pub(super) fn of(status: ExitStatus, output: Vec<u8>, last: &str) -> Verdict {
    match (status.code(), status.signal()) {
        (Some(0), _) => Verdict::Done(output),
        (Some(TRY_AGAIN), _) => Verdict::Failed(failure("EXIT_75", last, "exit code 75", true)),
        (Some(126 | 127), _) => Verdict::CannotRun(if last.is_empty() { status.to_string() } else { last.to_owned() }),
        (Some(code), _) => Verdict::Failed(failure(&format!("EXIT_{code}"), last, &format!("exit code {code}"), false)),
        (None, signal) => {
            let code = format!("SIGNAL_{}", signal.unwrap_or_default());
            Verdict::Failed(failure(&code, last, &status.to_string(), true))
        }
    }
}

/// `CODE: message` names the code.
fn failure(code: &str, last: &str, otherwise: &str, retryable: bool) -> Failure {
    let is_code = |code: &str| {
        code.starts_with(|char: char| char.is_ascii_uppercase())
            && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let (code, message) = match last.split_once(':') {
        Some((named, message)) if is_code(named) => (named, message.trim_start()),
        _ => (code, last),
    };
    let message = if message.is_empty() { otherwise } else { message };
    Failure { retryable: Some(retryable), ..Failure::terminal(code, message) }
}

/// What stands on standard output, as a result.
pub(super) fn result(output: Vec<u8>, kind: ResultKind) -> Result<Option<Payload>, Failure> {
    match kind {
        ResultKind::Bytes => Ok(Some(Payload::Bytes(output.into()))),
        ResultKind::Json => match json(&output) {
            Some(json) => Ok(Some(json)),
            None => Err(Failure::terminal(BAD_RESULT, "standard output is not JSON")),
        },
        ResultKind::Text => match text(&output) {
            Some(text) => Ok(Some(text)),
            None => Err(Failure::terminal(BAD_RESULT, "standard output is not UTF-8, or has a NUL in it")),
        },
        ResultKind::Auto if output.iter().all(u8::is_ascii_whitespace) => Ok(None),
        ResultKind::Auto => {
            let found = json(&output).or_else(|| text(&output));
            Ok(Some(found.unwrap_or_else(|| Payload::Bytes(output.into()))))
        }
    }
}

/// Byte for byte, but for the space around it.
fn json(output: &[u8]) -> Option<Payload> {
    let json: Box<RawValue> = serde_json::from_slice(output).ok()?;
    // A NUL may stand in a JSON string as an escape, where the server refuses it.
    (!json.get().contains("\\u0000")).then_some(Payload::Json(json))
}

fn text(output: &[u8]) -> Option<Payload> {
    let text = std::str::from_utf8(output).ok().filter(|text| !text.contains('\0'))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    Some(Payload::text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `wait` numbers them: exit codes above the first byte, signals in it.
    fn ended(raw: i32, last: &str) -> Verdict {
        of(ExitStatus::from_raw(raw), b"out".to_vec(), last)
    }

    fn failed(raw: i32, last: &str) -> (String, String, Option<bool>) {
        match ended(raw, last) {
            Verdict::Failed(failure) => (failure.code, failure.message, failure.retryable),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_end_means_what_the_interface_says() {
        assert!(matches!(ended(0, "warning"), Verdict::Done(output) if output == b"out"));
        let told = |code: &str, message: &str, retryable| (code.to_owned(), message.to_owned(), Some(retryable));
        assert_eq!(failed(75 << 8, ""), told("EXIT_75", "exit code 75", true));
        assert_eq!(failed(75 << 8, "BUSY: come back"), told("BUSY", "come back", true));
        assert_eq!(failed(1 << 8, "no such file"), told("EXIT_1", "no such file", false));
        assert_eq!(failed(3 << 8, "CORRUPT_DATA: page 2: gone"), told("CORRUPT_DATA", "page 2: gone", false));
        assert_eq!(failed(3 << 8, "Error: lower case"), told("EXIT_3", "Error: lower case", false));
        assert_eq!(failed(3 << 8, "1A: digit"), told("EXIT_3", "1A: digit", false));
        assert_eq!(failed(9, "").0, "SIGNAL_9");
        assert_eq!(failed(9, "").2, Some(true));
        assert!(matches!(ended(126 << 8, ""), Verdict::CannotRun(_)));
        assert!(matches!(ended(127 << 8, "sh: x: not found"), Verdict::CannotRun(why) if why == "sh: x: not found"));
    }

    fn shown(output: &[u8], kind: ResultKind) -> String {
        match result(output.to_vec(), kind) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(Payload::Json(json))) => json.get().to_owned(),
            Ok(Some(Payload::Bytes(bytes))) => format!("{bytes:?}"),
            Err(failure) => failure.code,
        }
    }

    #[test]
    fn output_is_json_or_text_or_bytes() {
        use ResultKind::{Auto, Bytes, Json, Text};
        assert_eq!(shown(b"", Auto), "nothing");
        assert_eq!(shown(b" \n", Auto), "nothing");
        assert_eq!(shown(b"{\"a\":  1.50}\n", Auto), "{\"a\":  1.50}");
        assert_eq!(shown(b"two words\n", Auto), "\"two words\"");
        assert_eq!(shown(b"a\nb\r\n", Auto), "\"a\\nb\"");
        assert_eq!(shown(b"\0", Auto), "b\"\\0\"");
        assert_eq!(shown(b"\xff", Auto), "b\"\\xff\"");
        assert_eq!(shown(b"12\n", Text), "\"12\"");
        assert_eq!(shown(b"\xff", Text), "BAD_RESULT");
        assert_eq!(shown(b"two words", Json), "BAD_RESULT");
        assert_eq!(shown(b"12\n", Bytes), "b\"12\\n\"");
    }
}
