//! `[work]`: what workers are told of a job before they have it.

use super::lifecycle::{Builder, View, want};
use crate::diagnostic::Diagnostic;
use crate::model::{Type, Work, WorkKey};
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
        let priority =
            work.priority.as_ref().and_then(|text| self.formula(text, View::default(), &want(Type::Int, false)));
        let key = work.key.as_ref().map(|key| self.work_key(work, key));
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

    fn work_key(&mut self, work: &ast::Work, key: &ast::WorkKey) -> WorkKey {
        if let (Some(limit), true) = (key.limit, key.ordered) {
            self.report(
                Diagnostic::error("conflicting-keys", limit.at, "jobs that go one after another need no `limit`")
                    .label("`limit` beside `ordered = true`")
                    .help("keep one of them"),
            );
        }
        if key.on.is_empty() {
            self.empty_key(work.at, "a key of nothing would hold all jobs together");
        }
        let on = self.key_parts(&key.on);
        WorkKey { on, limit: key.limit.map(|limit| limit.value), ordered: key.ordered }
    }
}
