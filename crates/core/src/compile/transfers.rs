//! Compiles transfers: accounts and amounts.

use std::ops::Range;
use std::sync::Arc;

use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{ExpectedType, ExprLocation};
use crate::model::{AccountRef, AccountTemplate, DataType, TemplatePart, TransferAction, TransferAmount};
use crate::syntax::ast::{self, SourceText};

const NEEDS_ASSET_CODE: &str = "needs-asset";

impl LifecycleBuilder<'_> {
    pub(super) fn compile_outside_accounts(&mut self) -> (Vec<Arc<str>>, Vec<Span>) {
        let source = self.source;
        let mut accounts = Vec::new();
        for account in &source.outside_accounts {
            if source.asset.is_none() {
                self.report_missing_asset(account.span());
            }
            if !is_account_name(&account.text) || &*account.text == "hold" {
                self.report_invalid_account(account, account.span(), "not an account's name");
                continue;
            }
            accounts.push((account.text.clone(), account.span()));
        }
        accounts.into_iter().unzip()
    }

    /// Reports a missing asset once per file: one line fixes all its transfers.
    fn report_missing_asset(&mut self, span: Span) {
        if self.diagnostics.iter().any(|earlier| earlier.code == NEEDS_ASSET_CODE && earlier.span.file == span.file) {
            return;
        }
        self.report(
            Diagnostic::error(NEEDS_ASSET_CODE, span, "the file has transfers, but the lifecycle declares no asset")
                .label("needs `asset`")
                .help("add `asset = \"credit\"` (or another unit) at the top of the file"),
        );
    }

    pub(super) fn compile_transfers(
        &mut self,
        entries: &[ast::TransferDecl],
        view: VisibleNames,
    ) -> Vec<TransferAction> {
        let mut transfers = Vec::new();
        for entry in entries {
            if self.source.asset.is_none() {
                self.report_missing_asset(entry.span);
            }
            let (from, to) = (self.compile_account(&entry.from, view), self.compile_account(&entry.to, view));
            let amount = if &*entry.amount.text == "rest" {
                if &*entry.from.text != "hold" {
                    self.report(
                        Diagnostic::error(
                            "rest-not-from-hold",
                            entry.amount.span(),
                            "`rest` works only for the record's hold",
                        )
                        .label("only the hold has a `rest`")
                        .related(entry.from.span(), "not the hold")
                        .help("transfer from \"hold\", or write an amount"),
                    );
                }
                Some(TransferAmount::Rest)
            } else {
                self.compile_formula(&entry.amount, view, &expected_type(DataType::Int, false))
                    .map(TransferAmount::Computed)
            };
            let short = entry.shortage_refusal.as_ref().map(|answer| (answer.status, answer.code.clone()));
            if let (Some(from), Some(to), Some(amount)) = (from, to, amount) {
                transfers.push(TransferAction { from, to, amount, shortage_refusal: short, span: entry.span });
            }
        }
        transfers
    }

    /// Compiles `hold`, or an account name with expressions in braces.
    fn compile_account(&mut self, text: &SourceText, view: VisibleNames) -> Option<AccountRef> {
        if &*text.text == "hold" {
            return Some(AccountRef::Hold);
        }
        let whole: &str = &text.text;
        let mut parts = Vec::new();
        let mut offset = 0;
        while offset < whole.len() {
            let rest = &whole[offset..];
            if rest.starts_with('{') {
                let Some(end) = rest.find('}') else {
                    self.report_invalid_account(text, text.part_span(offset..offset + 1), "the brace is never closed");
                    return None;
                };
                let content =
                    text.location.content_start.and_then(|start| start.checked_add(u32::try_from(offset + 1).ok()?));
                let location =
                    ExprLocation { value_span: text.part_span(offset..offset + end + 1), content_start: content };
                let expr = self.compile_expr(&rest[1..end], location, view, &ExpectedType::Any)?;
                if !matches!(expr.value_type.ty, DataType::Text | DataType::Enum(_) | DataType::Int | DataType::Ref(_))
                {
                    self.report_invalid_account(text, location.value_span, "not a string, an int or a ref");
                    return None;
                }
                parts.push(TemplatePart::Value(expr));
                offset += end + 1;
            } else {
                let end = rest.find('{').unwrap_or(rest.len());
                if !is_account_name(&rest[..end]) {
                    self.report_invalid_account(
                        text,
                        text.part_span(offset..offset + end),
                        "letters, digits, `:`, `_`, `-` and `.` only",
                    );
                    return None;
                }
                if let Some(path) = find_bare_path(&rest[..end]) {
                    self.report_missing_braces(text, offset + path.start..offset + path.end);
                    return None;
                }
                parts.push(TemplatePart::Literal(rest[..end].into()));
                offset += end;
            }
        }
        if parts.is_empty() {
            self.report_invalid_account(text, text.span(), "no name");
            return None;
        }
        Some(AccountRef::Named(AccountTemplate { parts, text: text.text.clone() }))
    }

    fn report_missing_braces(&mut self, text: &SourceText, path: Range<usize>) {
        let whole = &*text.text;
        let (before, bare, after) = (&whole[..path.start], &whole[path.clone()], &whole[path.end..]);
        self.report(
            Diagnostic::error(
                "invalid-account",
                text.part_span(path.clone()),
                format!("`{bare}` is used as plain text"),
            )
            .label("outside braces it is not evaluated, so all records would share one account")
            .help(format!("write \"{before}{{{bare}}}{after}\"")),
        );
    }

    fn report_invalid_account(&mut self, text: &SourceText, span: Span, label: &str) {
        self.report(
            Diagnostic::error("invalid-account", span, format!("`{}` cannot be an account", text.text))
                .label(label)
                .help(
                    "write a name, such as \"revenue\", with expressions in braces, such as \"user:{record.owner}\"; \
                     \"hold\" is the record's own account",
                ),
        );
    }
}

fn is_account_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'-' | b'.'))
}

/// First names of expression paths.
const EXPRESSION_ROOTS: [&str; 7] = ["record", "input", "actor", "result", "checks", "refs", "links"];

/// Finds a path that lacks braces: a root, a dot and a name.
fn find_bare_path(text: &str) -> Option<Range<usize>> {
    let mut start = 0;
    // Words of an account name are separated by colons and dashes.
    for word in text.split([':', '-']) {
        let path = word.trim_end_matches('.');
        if let Some((root, rest)) = path.split_once('.')
            && EXPRESSION_ROOTS.contains(&root)
            && rest.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            return Some(start..start + path.len());
        }
        start += word.len() + 1;
    }
    None
}
