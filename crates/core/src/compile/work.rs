//! Compiles `[work]`: the policy for leasing jobs to workers.

use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use crate::diagnostic::Diagnostic;
use crate::model::{ConcurrencyPolicy, DataType, WorkPolicy};
use crate::syntax::ast;

impl LifecycleBuilder<'_> {
    /// Declares the fields of check answers and of the result, before transitions read them.
    pub(super) fn declare_answers_and_result(&mut self) {
        let source = self.source;
        for check in &source.checks {
            let fields = check
                .answer_fields
                .iter()
                .filter_map(|field| self.declaration_compiler().compile_field(field))
                .collect();
            self.checks.push((check.name.text.clone(), fields));
        }
        let declared = source.work.as_ref().and_then(|work| work.result.as_ref());
        self.result = declared
            .map(|fields| fields.iter().filter_map(|field| self.declaration_compiler().compile_field(field)).collect());
    }

    pub(super) fn compile_work(&mut self) -> Option<WorkPolicy> {
        let work = self.source.work.as_ref()?;
        let visible_names = VisibleNames { now: true, ..VisibleNames::default() };
        let stop = work
            .stop_condition
            .as_ref()
            .and_then(|stop| self.compile_formula(stop, visible_names, &expected_type(DataType::Bool, false)));
        let priority = work
            .priority
            .as_ref()
            .and_then(|text| self.compile_formula(text, VisibleNames::default(), &expected_type(DataType::Int, false)));
        let key = work.concurrency.as_ref().map(|key| self.compile_concurrency_policy(work, key));
        Some(WorkPolicy {
            lease_duration: work.lease_duration,
            result: self.result.clone(),
            stop_condition: stop,
            priority,
            concurrency: key,
            rules: work.rules.clone(),
            span: work.span,
        })
    }

    fn compile_concurrency_policy(&mut self, work: &ast::WorkDecl, key: &ast::ConcurrencyDecl) -> ConcurrencyPolicy {
        if let (Some(limit), true) = (key.limit, key.ordered) {
            self.report(
                Diagnostic::error("conflicting-keys", limit.span, "jobs that run one after another need no `limit`")
                    .label("`limit` beside `ordered = true`")
                    .help("remove one of them"),
            );
        }
        if key.on.is_empty() {
            self.report_empty_key(work.span, "a concurrency key without fields would be shared by all jobs");
        }
        let on = self.compile_key_parts(&key.on);
        ConcurrencyPolicy { on, limit: key.limit.map(|limit| limit.value), ordered: key.ordered }
    }
}
