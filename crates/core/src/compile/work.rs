//! `[work]`: what workers are told of a job before they have it.

use super::lifecycle::{Builder, View, want};
use crate::diagnostic::Diagnostic;
use crate::model::{Formula, Type, Work, WorkKey};
use crate::syntax::ast;

impl Builder<'_> {
    /// The result's fields, before any row reads them.
    pub(super) fn declare_answers(&mut self) {
        let source = self.source;
        for check in &source.checks {
            let fields = check.answer.iter().filter_map(|field| self.declarer().field(field)).collect();
            self.checks.push((check.name.text.clone(), fields));
        }
        let declared = source.work.as_ref().and_then(|work| work.result.as_ref());
        self.result = declared.map(|fields| fields.iter().filter_map(|field| self.declarer().field(field)).collect());
    }

    pub(super) fn work(&mut self) -> Option<Work> {
        let work = self.source.work.as_ref()?;
        let told = View { now: true, ..View::default() };
        let stop = work.stop.as_ref().and_then(|stop| self.formula(stop, told, &want(Type::Bool, false)));
        let priority = work.priority.as_ref().and_then(|text| self.formula(text, View::default(), &want(Type::Int, false)));
        let key = work.key.as_ref().and_then(|key| self.work_key(key));
        Some(Work {
            lease: work.lease,
            result: self.result.clone(),
            stop,
            priority,
            key,
            rules: work.rules.clone(),
            at: work.at,
        })
    }

    fn work_key(&mut self, key: &ast::WorkKey) -> Option<WorkKey> {
        if let (Some(limit), true) = (key.limit, key.ordered) {
            self.report(
                Diagnostic::error("conflicting-keys", limit.at, "jobs that go one after another need no `limit`")
                    .label("`limit` beside `ordered = true`")
                    .help("keep one of them"),
            );
        }
        let expr = self.expr(&key.on.text, key.on.place, View::default(), &crate::expr::Want::Any)?;
        if !matches!(expr.typed.ty, Type::Text | Type::Enum(_) | Type::Int | Type::Bool | Type::Ref(_)) {
            self.report(
                Diagnostic::error("invalid-key", key.on.at(), "jobs cannot be grouped by a value of this type")
                    .label("not a string, int, bool or ref")
                    .help("group by a string, an int, a bool or a ref"),
            );
            return None;
        }
        let on = Formula { expr, text: key.on.text.clone() };
        Some(WorkKey { on, limit: key.limit.map(|limit| limit.value), ordered: key.ordered })
    }
}
