//! Ledger moves: accounts and amounts.

use std::ops::Range;
use std::sync::Arc;

use super::lifecycle::{Builder, View, want};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{Place, Want};
use crate::model::{AccountRef, Amount, Move, Template, TemplatePart, Type};
use crate::syntax::ast::{self, Text};

const NEEDS_ASSET: &str = "needs-asset";

impl Builder<'_> {
    pub(super) fn outside(&mut self) -> (Vec<Arc<str>>, Vec<Span>) {
        let source = self.source;
        let mut accounts = Vec::new();
        for account in &source.outside {
            if source.asset.is_none() {
                self.needs_asset(account.at());
            }
            if !is_account(&account.text) || &*account.text == "hold" {
                self.invalid_account(account, account.at(), "not an account's name");
                continue;
            }
            accounts.push((account.text.clone(), account.at()));
        }
        accounts.into_iter().unzip()
    }

    /// Said once: all moves of a file want the same line.
    fn needs_asset(&mut self, at: Span) {
        if self.out.iter().any(|earlier| earlier.code == NEEDS_ASSET && earlier.at.file == at.file) {
            return;
        }
        self.report(
            Diagnostic::error(NEEDS_ASSET, at, "money is moved, but the lifecycle names no unit of it")
                .label("of what?")
                .help("add `asset = \"credit\"` (or whatever it counts) at the top of the file"),
        );
    }

    pub(super) fn moves(&mut self, entries: &[ast::Move], view: View) -> Vec<Move> {
        let mut moves = Vec::new();
        for entry in entries {
            if self.source.asset.is_none() {
                self.needs_asset(entry.at);
            }
            let (from, to) = (self.account(&entry.from, view), self.account(&entry.to, view));
            let amount = if &*entry.amount.text == "rest" {
                if &*entry.from.text != "hold" {
                    self.report(
                        Diagnostic::error(
                            "rest-not-from-hold",
                            entry.amount.at(),
                            "`rest` empties the record's own hold only",
                        )
                        .label("all of what?")
                        .also(entry.from.at(), "not the hold")
                        .help("move from \"hold\", or write an amount"),
                    );
                }
                Some(Amount::Rest)
            } else {
                self.formula(&entry.amount, view, &want(Type::Int, false)).map(Amount::Formula)
            };
            let short = entry.short.as_ref().map(|answer| (answer.status, answer.code.clone()));
            if let (Some(from), Some(to), Some(amount)) = (from, to, amount) {
                moves.push(Move { from, to, amount, short, at: entry.at });
            }
        }
        moves
    }

    /// `hold`, or a name with expressions in braces.
    fn account(&mut self, text: &Text, view: View) -> Option<AccountRef> {
        if &*text.text == "hold" {
            return Some(AccountRef::Hold);
        }
        let whole: &str = &text.text;
        let mut parts = Vec::new();
        let mut at = 0;
        while at < whole.len() {
            let rest = &whole[at..];
            if rest.starts_with('{') {
                let Some(end) = rest.find('}') else {
                    self.invalid_account(text, text.part(at..at + 1), "this brace is never closed");
                    return None;
                };
                let content = text.place.content.and_then(|start| start.checked_add(u32::try_from(at + 1).ok()?));
                let place = Place { whole: text.part(at..at + end + 1), content };
                let expr = self.expr(&rest[1..end], place, view, &Want::Any)?;
                if !matches!(expr.typed.ty, Type::Text | Type::Enum(_) | Type::Int | Type::Ref(_)) {
                    self.invalid_account(text, place.whole, "not a string, an int or a ref");
                    return None;
                }
                parts.push(TemplatePart::Value(expr));
                at += end + 1;
            } else {
                let end = rest.find('{').unwrap_or(rest.len());
                if !is_account(&rest[..end]) {
                    self.invalid_account(text, text.part(at..at + end), "letters, digits, `:`, `_`, `-` and `.` only");
                    return None;
                }
                if let Some(path) = bare_path(&rest[..end]) {
                    self.without_braces(text, at + path.start..at + path.end);
                    return None;
                }
                parts.push(TemplatePart::Literal(rest[..end].into()));
                at += end;
            }
        }
        if parts.is_empty() {
            self.invalid_account(text, text.at(), "no name");
            return None;
        }
        Some(AccountRef::Named(Template { parts, text: text.text.clone() }))
    }

    fn without_braces(&mut self, text: &Text, path: Range<usize>) {
        let whole = &*text.text;
        let (before, bare, after) = (&whole[..path.start], &whole[path.clone()], &whole[path.end..]);
        self.report(
            Diagnostic::error("invalid-account", text.part(path.clone()), format!("`{bare}` is not looked up here"))
                .label("outside braces these are mere letters, so all records would share this one account")
                .help(format!("write \"{before}{{{bare}}}{after}\"")),
        );
    }

    fn invalid_account(&mut self, text: &Text, at: Span, label: &str) {
        self.report(
            Diagnostic::error("invalid-account", at, format!("`{}` cannot be an account", text.text))
                .label(label)
                .help("write a name, as \"revenue\", with expressions in braces, as \"user:{record.owner}\"; \"hold\" is the record's own"),
        );
    }
}

fn is_account(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'-' | b'.'))
}

/// What expressions begin with.
const ROOTS: [&str; 7] = ["record", "input", "actor", "result", "checks", "refs", "links"];

/// Where a name contains what was surely meant as an expression: one of the roots, a dot and a name.
fn bare_path(text: &str) -> Option<Range<usize>> {
    let mut start = 0;
    // A word is what stands between colons and dashes.
    for word in text.split([':', '-']) {
        let path = word.trim_end_matches('.');
        if let Some((root, rest)) = path.split_once('.')
            && ROOTS.contains(&root)
            && rest.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            return Some(start..start + path.len());
        }
        start += word.len() + 1;
    }
    None
}
