//! Parses values inside strings: names, `go`, sizes, durations, refusal responses, rule ids.

use std::sync::Arc;

use toml::de::DeValue;

use super::ast::{RefusalResponse, SourceText, StatePath, WithSpan};
use super::toml_reader::{TomlNode, TomlReader, TomlTable};
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::time::{Duration, TimeError};

/// Matches `[A-Za-z][A-Za-z0-9_]*`: states, fields, events and all other names of a file.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Matches `[a-z][a-z0-9_]*`: refusal codes and the parts of a lifecycle name.
fn is_lower_name(text: &str) -> bool {
    is_name(text) && !text.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_lifecycle_name(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_lower_name)
}

/// Matches `[A-Z]+-[0-9]+`.
fn is_rule_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(letters, digits)| {
        !letters.is_empty()
            && !digits.is_empty()
            && letters.bytes().all(|b| b.is_ascii_uppercase())
            && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Matches a duration with a minus sign, such as `-24h`.
pub(crate) fn is_negative_duration(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|length| length.trim_start().parse::<Duration>().is_ok())
}

impl TomlReader<'_> {
    /// Returns whether a name is valid, and reports why not.
    pub(crate) fn validate_name(&mut self, name: &SourceText, what: &str) -> bool {
        if !self.require_short_name(name, what) {
            return false;
        }
        if !is_name(&name.text) {
            self.report(
                Diagnostic::error("invalid-name", name.span(), format!("`{}` cannot be {what}", name.text))
                    .label("not a name")
                    .help("start with a letter, then use letters, digits and `_`"),
            );
            return false;
        }
        true
    }

    fn require_short_name(&mut self, name: &SourceText, what: &str) -> bool {
        let fits = name.text.len() <= bounds::MAX_NAME_BYTES;
        if !fits {
            let shown: String = name.text.chars().take(20).collect();
            self.report(
                Diagnostic::error("name-too-long", name.span(), format!("`{shown}…` is too long to be {what}"))
                    .label(format!("{} bytes", name.text.len()))
                    .help(format!("use at most {} bytes", bounds::MAX_NAME_BYTES)),
            );
        }
        fits
    }

    pub(crate) fn validate_lifecycle_name(&mut self, name: &SourceText) -> bool {
        if !self.require_short_name(name, "the name of a lifecycle") {
            return false;
        }
        if !is_lifecycle_name(&name.text) {
            self.report(
                Diagnostic::error(
                    "invalid-name",
                    name.span(),
                    format!("`{}` cannot be the name of a lifecycle", name.text),
                )
                .label("not the name of a lifecycle")
                .help("write system and noun in lower case, such as `document.job`"),
            );
            return false;
        }
        true
    }

    /// Parses `"A | B -> C"`, `"A | B"` or `"-> A"`.
    pub(crate) fn parse_state_path(&mut self, text: &SourceText) -> Option<StatePath> {
        let whole: &str = &text.text;
        let mut halves = whole.split("->");
        let (left, right, extra) = (halves.next().unwrap_or_default(), halves.next(), halves.next());
        if extra.is_some() {
            let second =
                whole.find("->").and_then(|first| whole[first + 2..].find("->").map(|at| first + 2 + at)).unwrap_or(0);
            self.report_invalid_go(
                text.part_span(second..second + 2),
                "a transition leads to one state, so write `->` once",
            );
            return None;
        }
        let from = if left.trim().is_empty() {
            if right.is_none() {
                self.report_invalid_go(text.span(), "it names no state");
                return None;
            }
            Vec::new()
        } else {
            self.parse_states(text, 0, left)?
        };
        let to = match right {
            None => None,
            Some(right) => {
                let mut states = self.parse_states(text, left.len() + 2, right)?;
                if states.len() != 1 {
                    let at = states[1].span;
                    self.report_invalid_go(at, "a transition leads to one state");
                    return None;
                }
                states.pop()
            }
        };
        Some(StatePath { from, to, span: text.span() })
    }

    fn parse_states(&mut self, text: &SourceText, offset: usize, half: &str) -> Option<Vec<WithSpan<Arc<str>>>> {
        let mut states: Vec<WithSpan<Arc<str>>> = Vec::new();
        let mut start = offset;
        for piece in half.split('|') {
            let name = piece.trim();
            let lead = piece.len() - piece.trim_start().len();
            let at = text.part_span(start + lead..start + lead + name.len().max(1));
            if !is_name(name) {
                let why = if name.is_empty() {
                    "the name of a state is missing".into()
                } else {
                    format!("`{name}` is not a name")
                };
                self.report_invalid_go(at, &why);
                return None;
            }
            if states.iter().any(|state| *state.value == *name) {
                self.report_invalid_go(at, &format!("`{name}` is listed twice"));
                return None;
            }
            states.push(WithSpan { value: name.into(), span: at });
            start += piece.len() + 1;
        }
        Some(states)
    }

    fn report_invalid_go(&mut self, span: Span, why: &str) {
        self.report(
            Diagnostic::error("invalid-go", span, format!("`go` is malformed: {why}"))
                .label("unexpected")
                .help("write \"A | B -> C\" to change the state, \"A | B\" to stay, \"-> A\" to create"),
        );
    }

    /// Parses a size in bytes, such as `100 MB`, `8 KB` or `1 B`. Units are powers of 1024.
    pub(crate) fn parse_size(&mut self, text: &SourceText) -> Option<u64> {
        let parsed = text.text.split_once(' ').and_then(|(number, unit)| {
            let factor: u64 = match unit {
                "B" => 1,
                "KB" => 1 << 10,
                "MB" => 1 << 20,
                "GB" => 1 << 30,
                _ => return None,
            };
            number.parse::<u64>().ok()?.checked_mul(factor)
        });
        if parsed.is_none() {
            self.report(
                Diagnostic::error("invalid-size", text.span(), format!("`{}` is not a size", text.text))
                    .label("not a size")
                    .help("write a whole number, a space and B, KB, MB or GB (powers of 1024), such as \"100 MB\""),
            );
        }
        parsed
    }

    /// Parses a duration that must not be zero.
    pub(crate) fn parse_positive_duration(&mut self, text: &SourceText) -> Option<Duration> {
        let length = self.parse_duration(text)?;
        if length == Duration::ZERO {
            self.report_invalid_duration(text, "must be above zero");
            return None;
        }
        Some(length)
    }

    /// Parses a duration that may be zero.
    pub(crate) fn parse_duration(&mut self, text: &SourceText) -> Option<Duration> {
        match text.text.parse::<Duration>() {
            Ok(duration) => Some(duration),
            Err(TimeError::DurationTooLong(_)) => {
                self.report_invalid_duration(text, "too long");
                None
            }
            Err(_) if is_negative_duration(&text.text) => {
                self.report_invalid_duration(text, "must not be negative");
                None
            }
            Err(_) => {
                self.report_invalid_duration(text, "not a number and a unit");
                None
            }
        }
    }

    pub(crate) fn read_duration_at(&mut self, table: TomlTable, key: &str) -> Option<WithSpan<Duration>> {
        let node = Self::get(table, key)?;
        let text = self.read_duration_text(node, key)?;
        Some(WithSpan { value: self.parse_positive_duration(&text)?, span: text.span() })
    }

    /// Reads the text of a duration, or of an expression that returns one. Reports a bare number, the most likely
    /// mistake.
    pub(crate) fn read_duration_text(&mut self, node: &TomlNode, key: &str) -> Option<SourceText> {
        let (DeValue::Integer(_) | DeValue::Float(_)) = node.get_ref() else {
            return self.read_text(node, &format!("`{key}`"));
        };
        let at = self.span(node);
        let written = self.source.get(at.range()).unwrap_or("30").to_owned();
        let is_non_negative_int = matches!(node.get_ref(), DeValue::Integer(_)) && !written.starts_with('-');
        let example = if is_non_negative_int { written.trim_start_matches('+') } else { "30" };
        self.report(
            Diagnostic::error("invalid-duration", at, format!("`{key}` is a duration and needs a unit"))
                .label("a number without a unit")
                .help(format!(
                    "write {key} = \"{example}s\" for seconds, in quotes; the units are us, ms, s, m, h and d"
                )),
        );
        None
    }

    fn report_invalid_duration(&mut self, text: &SourceText, why: &str) {
        self.report(
            Diagnostic::error("invalid-duration", text.span(), format!("`{}` is not a valid duration", text.text))
                .label(why)
                .help("write a number and us, ms, s, m, h or d, such as \"30s\" or \"1h30m\""),
        );
    }

    /// Parses `"409 code"`.
    pub(crate) fn parse_response(&mut self, text: &SourceText) -> Option<RefusalResponse> {
        let parsed = text.text.split_once(' ').and_then(|(status, code)| {
            let status: u16 = status.parse().ok()?;
            let good = (400..=499).contains(&status) && is_lower_name(code) && code.len() <= bounds::MAX_NAME_BYTES;
            good.then(|| RefusalResponse { status, code: code.into() })
        });
        if parsed.is_none() {
            self.report(
                Diagnostic::error("invalid-answer", text.span(), format!("`{}` is not a status and a code", text.text))
                    .label("not a status from 400 to 499 and a code")
                    .help("write a status from 400 to 499 and a code in lower case, such as \"409 already_claimed\""),
            );
        }
        parsed
    }

    /// Reads rule ids separated by spaces.
    pub(crate) fn read_rule_ids(&mut self, table: TomlTable) -> Vec<Arc<str>> {
        let mut rules = Vec::new();
        let Some(text) = Self::get(table, "rule").and_then(|node| self.read_rule_text(node)) else { return rules };
        for id in text.text.split_whitespace() {
            if is_rule_id(id) {
                rules.push(id.into());
                continue;
            }
            // `id` is a slice of the text, so the difference of the pointers is its offset.
            let offset = id.as_ptr() as usize - text.text.as_ptr() as usize;
            self.report(
                Diagnostic::error(
                    "invalid-rule",
                    text.part_span(offset..offset + id.len()),
                    format!("`{id}` is not a rule id"),
                )
                .label("not a rule id")
                .help("write capitals, a hyphen and a number, such as \"DOC-5\"; separate several ids by spaces"),
            );
        }
        rules
    }

    /// Reads the text of `rule`. Reports a list, a likely mistake because other keys with several values take lists.
    fn read_rule_text(&mut self, node: &TomlNode) -> Option<SourceText> {
        let DeValue::Array(items) = node.get_ref() else {
            return self.read_text(node, "`rule`");
        };
        let ids: Vec<&str> = items
            .iter()
            .take(bounds::MAX_TRANSITION_ENTRIES)
            .filter_map(|item| item.get_ref().as_str())
            .flat_map(str::split_whitespace)
            .collect();
        let example =
            if !ids.is_empty() && ids.iter().all(|id| is_rule_id(id)) { ids.join(" ") } else { "DOC-5".into() };
        self.report(
            Diagnostic::error(
                "wrong-kind",
                self.span(node),
                "the ids of `rule` must be in one string, not in an array",
            )
            .label("an array")
            .help(format!("write rule = \"{example}\"")),
        );
        None
    }
}
