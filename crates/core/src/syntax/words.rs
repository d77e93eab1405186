//! The small languages inside strings: names, `go`, sizes, durations, answers, rule ids.

use std::sync::Arc;

use toml::de::DeValue;

use super::ast::{Answer, At, Go, Text};
use super::read::{Node, Reader, Table};
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::time::{Duration, TimeError};

/// `[A-Za-z][A-Za-z0-9_]*`: states, fields, events and every other name a file gives.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `[a-z][a-z0-9_]*`: answer codes and the parts of a lifecycle's name.
fn is_lower_name(text: &str) -> bool {
    is_name(text) && !text.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_lifecycle_name(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_lower_name)
}

/// `[A-Z]+-[0-9]+`.
fn is_rule(text: &str) -> bool {
    text.split_once('-').is_some_and(|(letters, digits)| {
        !letters.is_empty()
            && !digits.is_empty()
            && letters.bytes().all(|b| b.is_ascii_uppercase())
            && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// `-24h`: a duration with a sign before it.
pub(crate) fn is_negative(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|length| length.trim_start().parse::<Duration>().is_ok())
}

impl Reader<'_> {
    /// Whether a name may be used; says why not.
    pub(crate) fn name(&mut self, name: &Text, what: &str) -> bool {
        if !self.short_enough(name, what) {
            return false;
        }
        if !is_name(&name.text) {
            self.report(
                Diagnostic::error("invalid-name", name.at(), format!("`{}` cannot be {what}", name.text))
                    .label("not a name")
                    .help("a name is a letter, then letters, digits and `_`"),
            );
            return false;
        }
        true
    }

    fn short_enough(&mut self, name: &Text, what: &str) -> bool {
        let fits = name.text.len() <= bounds::NAME_BYTES;
        if !fits {
            let shown: String = name.text.chars().take(20).collect();
            self.report(
                Diagnostic::error("name-too-long", name.at(), format!("`{shown}…` is too long to be {what}"))
                    .label(format!("{} bytes", name.text.len()))
                    .help(format!("a name has at most {} bytes", bounds::NAME_BYTES)),
            );
        }
        fits
    }

    pub(crate) fn lifecycle_name(&mut self, name: &Text) -> bool {
        if !self.short_enough(name, "a lifecycle's name") {
            return false;
        }
        if !is_lifecycle_name(&name.text) {
            self.report(
                Diagnostic::error("invalid-name", name.at(), format!("`{}` cannot be a lifecycle's name", name.text))
                    .label("not a lifecycle's name")
                    .help("write the system and the thing in lower case, as `document.job`"),
            );
            return false;
        }
        true
    }

    /// `"A | B -> C"`, `"A | B"`, `"-> A"`.
    pub(crate) fn go(&mut self, text: &Text) -> Option<Go> {
        let whole: &str = &text.text;
        let mut halves = whole.split("->");
        let (left, right, extra) = (halves.next().unwrap_or_default(), halves.next(), halves.next());
        if extra.is_some() {
            let second =
                whole.find("->").and_then(|first| whole[first + 2..].find("->").map(|at| first + 2 + at)).unwrap_or(0);
            self.invalid_go(text.part(second..second + 2), "a row goes to one state: one `->` only");
            return None;
        }
        let from = if left.trim().is_empty() {
            if right.is_none() {
                self.invalid_go(text.at(), "no state is named");
                return None;
            }
            Vec::new()
        } else {
            self.states(text, 0, left)?
        };
        let to = match right {
            None => None,
            Some(right) => {
                let mut states = self.states(text, left.len() + 2, right)?;
                if states.len() != 1 {
                    let at = states[1].at;
                    self.invalid_go(at, "a row goes to one state");
                    return None;
                }
                states.pop()
            }
        };
        Some(Go { from, to, at: text.at() })
    }

    fn states(&mut self, text: &Text, offset: usize, half: &str) -> Option<Vec<At<Arc<str>>>> {
        let mut states: Vec<At<Arc<str>>> = Vec::new();
        let mut start = offset;
        for piece in half.split('|') {
            let name = piece.trim();
            let lead = piece.len() - piece.trim_start().len();
            let at = text.part(start + lead..start + lead + name.len().max(1));
            if !is_name(name) {
                let why = if name.is_empty() {
                    "a state's name is missing".into()
                } else {
                    format!("`{name}` is not a name")
                };
                self.invalid_go(at, &why);
                return None;
            }
            if states.iter().any(|state| *state.value == *name) {
                self.invalid_go(at, &format!("`{name}` stands here twice"));
                return None;
            }
            states.push(At { value: name.into(), at });
            start += piece.len() + 1;
        }
        Some(states)
    }

    fn invalid_go(&mut self, at: Span, why: &str) {
        self.report(
            Diagnostic::error("invalid-go", at, format!("`go` cannot be read: {why}"))
                .label("here")
                .help("write \"A | B -> C\" to move, \"A | B\" to stay, \"-> A\" to create"),
        );
    }

    /// Bytes: `100 MB`, `8 KB`, `1 B`; powers of 1024.
    pub(crate) fn size(&mut self, text: &Text) -> Option<u64> {
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
                Diagnostic::error("invalid-size", text.at(), format!("`{}` is not a size", text.text))
                    .label("not a size")
                    .help("write a whole number, a space and B, KB, MB or GB (powers of 1024), as \"100 MB\""),
            );
        }
        parsed
    }

    /// A duration in which something is to happen.
    pub(crate) fn duration(&mut self, text: &Text) -> Option<Duration> {
        let length = self.length(text)?;
        if length == Duration::ZERO {
            self.invalid_duration(text, "nothing would ever be in time");
            return None;
        }
        Some(length)
    }

    /// A duration that may be zero.
    pub(crate) fn length(&mut self, text: &Text) -> Option<Duration> {
        match text.text.parse::<Duration>() {
            Ok(duration) => Some(duration),
            Err(TimeError::TooLong(_)) => {
                self.invalid_duration(text, "too long");
                None
            }
            Err(_) if is_negative(&text.text) => {
                self.invalid_duration(text, "a length of time is not negative");
                None
            }
            Err(_) => {
                self.invalid_duration(text, "a number and a unit are needed");
                None
            }
        }
    }

    pub(crate) fn duration_at(&mut self, table: Table, key: &str) -> Option<At<Duration>> {
        let node = Self::get(table, key)?;
        let text = self.duration_text(node, key)?;
        Some(At { value: self.duration(&text)?, at: text.at() })
    }

    /// The text of a duration, or of an expression that gives one. A bare number is the likeliest slip.
    pub(crate) fn duration_text(&mut self, node: &Node, key: &str) -> Option<Text> {
        let (DeValue::Integer(_) | DeValue::Float(_)) = node.get_ref() else {
            return self.text(node, &format!("`{key}`"));
        };
        let at = self.span(node);
        let written = self.source.get(at.range()).unwrap_or("30").to_owned();
        let whole = matches!(node.get_ref(), DeValue::Integer(_)) && !written.starts_with('-');
        let example = if whole { written.trim_start_matches('+') } else { "30" };
        self.report(
            Diagnostic::error("invalid-duration", at, format!("`{key}` is a length of time: it needs a unit"))
                .label("a number without a unit")
                .help(format!(
                    "write {key} = \"{example}s\" for seconds, in quotes; the units are us, ms, s, m, h and d"
                )),
        );
        None
    }

    fn invalid_duration(&mut self, text: &Text, why: &str) {
        self.report(
            Diagnostic::error("invalid-duration", text.at(), format!("`{}` cannot be a duration here", text.text))
                .label(why)
                .help("write a number and us, ms, s, m, h or d, as \"30s\" or \"1h30m\""),
        );
    }

    /// `"409 code"`.
    pub(crate) fn answer(&mut self, text: &Text) -> Option<Answer> {
        let parsed = text.text.split_once(' ').and_then(|(status, code)| {
            let status: u16 = status.parse().ok()?;
            let good = (400..=499).contains(&status) && is_lower_name(code) && code.len() <= bounds::NAME_BYTES;
            good.then(|| Answer { status, code: code.into() })
        });
        if parsed.is_none() {
            self.report(
                Diagnostic::error("invalid-answer", text.at(), format!("`{}` is not an answer", text.text))
                    .label("not a status from 400 to 499 and a code")
                    .help("write a status from 400 to 499 and a code in lower case, as \"409 already_claimed\""),
            );
        }
        parsed
    }

    /// Ids separated by spaces.
    pub(crate) fn rules(&mut self, table: Table) -> Vec<Arc<str>> {
        let mut rules = Vec::new();
        let Some(text) = Self::get(table, "rule").and_then(|node| self.rule_text(node)) else { return rules };
        for id in text.text.split_whitespace() {
            if is_rule(id) {
                rules.push(id.into());
                continue;
            }
            // `id` is a slice of the text: the distance of their starts is its offset.
            let offset = id.as_ptr() as usize - text.text.as_ptr() as usize;
            self.report(
                Diagnostic::error(
                    "invalid-rule",
                    text.part(offset..offset + id.len()),
                    format!("`{id}` is not a rule id"),
                )
                .label("not a rule id")
                .help("write capitals, a hyphen and a number, as \"DOC-5\"; several with spaces between"),
            );
        }
        rules
    }

    /// Other keys with several values take a list, so a list of ids is the likeliest slip.
    fn rule_text(&mut self, node: &Node) -> Option<Text> {
        let DeValue::Array(items) = node.get_ref() else {
            return self.text(node, "`rule`");
        };
        let ids: Vec<&str> = items
            .iter()
            .take(bounds::ENTRIES)
            .filter_map(|item| item.get_ref().as_str())
            .flat_map(str::split_whitespace)
            .collect();
        let example = if !ids.is_empty() && ids.iter().all(|id| is_rule(id)) { ids.join(" ") } else { "DOC-5".into() };
        self.report(
            Diagnostic::error("wrong-kind", self.span(node), "the ids of `rule` stand in one string, not in an array")
                .label("this is an array")
                .help(format!("write rule = \"{example}\"")),
        );
        None
    }
}
