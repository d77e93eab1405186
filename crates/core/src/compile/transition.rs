//! Compiles events and their transitions.

use super::checks::{self, CheckReader};
use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use super::signature::{self, TransitionSignature};
use crate::diagnostic::Diagnostic;
use crate::expr::{self, Expr, ExprKind};
use crate::model::{
    AccountRef, AllowedCaller, DataType, EventDef, EventKind, FieldDef, FieldIndex, Formula, RefusalClause, StateSet,
    TemplatePart, TimerSpec, TransferAmount, Transition, ValueType,
};
use crate::syntax::ast::{self, SourceText};
use crate::syntax::{is_name, is_negative_duration};
use crate::time::Duration;
use crate::value::Value;

impl LifecycleBuilder<'_> {
    /// Compiles all events, and returns which transitions read which check answers.
    pub(super) fn compile_events(&mut self) -> (Vec<EventDef>, Vec<CheckReader>) {
        self.validate_events();
        let source = self.source;
        let context = self.context;
        let signatures_by_event = context.transition_signatures.get(&source.lifecycle.text);
        let mut events = Vec::new();
        let mut readers = Vec::new();
        for event in &source.events {
            let kind = EventKind::from_name(&event.name.text);
            let transition_signatures =
                signatures_by_event.and_then(|shapes| shapes.get(&event.name.text)).map_or(&[][..], Vec::as_slice);
            let mut transitions = Vec::new();
            for (transition, signature) in event.transitions.iter().zip(transition_signatures) {
                self.validate_transition(event, kind, transition);
                let inputs = signature.scope_fields();
                let compiled = self.compile_transition(kind, transition, signature, &inputs);
                readers.push(CheckReader { check_indexes: compiled.checks.clone(), inputs, span: compiled.span });
                transitions.push(compiled);
            }
            events.push(EventDef { name: event.name.text.clone(), kind, transitions });
        }
        (events, readers)
    }

    fn compile_transition(
        &mut self,
        kind: EventKind,
        transition: &ast::TransitionDecl,
        signature: &TransitionSignature,
        inputs: &[FieldDef],
    ) -> Transition {
        let view = VisibleNames {
            input: matches!(kind, EventKind::Called | EventKind::Create).then_some(inputs),
            result: kind == EventKind::Commit,
            error: kind == EventKind::Fail,
            checks: true,
            lookups: true,
            links: true,
            actor: true,
            now: true,
        };
        let from: StateSet =
            transition.path.from.iter().filter_map(|state| self.resolve_state_at(&state.value, state.span)).collect();
        let to = transition.path.to.as_ref().and_then(|state| self.resolve_state_at(&state.value, state.span));
        // The engine evaluates the timer on entering the state, before the guard. It must not rely on the guard.
        let timing = self.compile_timer(transition);
        let when = transition
            .when
            .as_ref()
            .and_then(|when| self.compile_formula(when, view, &expected_type(DataType::Bool, false)));
        self.assume_condition(when.as_ref(), true);
        self.has_unreadable_guard = when.is_none() && transition.when.is_some();
        let refuse = self.compile_refusals(&transition.refuse, view);
        let mut compiled = Transition {
            from,
            to,
            by: self.compile_allowed_callers(transition),
            when,
            refuse,
            inputs: signature.inputs.clone(),
            set: self.compile_assignments(&transition.set, view),
            transfers: self.compile_transfers(&transition.transfers, view),
            spawn: self.compile_spawns(&transition.spawn, view),
            require: self.compile_event_actions(&transition.require, view),
            cascade: self.compile_event_actions(&transition.cascade, view),
            deliver: self.compile_deliveries(&transition.deliver, view),
            timer: timing,
            forever_span: transition.forever_span,
            audit: transition.audit.as_ref().map(|audit| audit.text.clone()),
            rules: transition.rules.clone(),
            checks: Vec::new(),
            span: transition.path.span,
            header_line: transition.line,
        };
        if kind == EventKind::Create {
            self.require_field_values(transition);
        }
        compiled.checks = collect_check_reads(&compiled);
        self.non_null_paths.clear();
        self.has_unreadable_guard = false;
        self.forbid_checks_in_engine_events(kind, &compiled);
        compiled
    }

    /// Records which paths cannot be null in the rest of the transition: its guard was true, or a refusal condition was
    /// false.
    fn assume_condition(&mut self, condition: Option<&Formula>, truth: bool) {
        let facts = condition.map_or_else(Vec::new, |formula| expr::non_null_paths(&formula.expr, Some(truth)));
        self.non_null_paths.extend(facts);
    }

    /// Reports checks in transitions that the engine fires. An external check may stay unanswered, and such a
    /// transition cannot wait.
    fn forbid_checks_in_engine_events(&mut self, kind: EventKind, transition: &Transition) {
        if matches!(kind, EventKind::Called | EventKind::Create | EventKind::Commit) {
            return;
        }
        for check in &transition.checks {
            let Some((name, _)) = self.checks.get(usize::from(*check)) else { continue };
            let message = format!("a transition that the engine fires cannot read the check `{name}`");
            self.report(
                Diagnostic::error("misplaced", transition.span, message).label("no caller waits for the answer").help(
                    "read the check in an earlier transition that a caller fires, and set a field from the answer",
                ),
            );
        }
    }

    fn compile_allowed_callers(&mut self, transition: &ast::TransitionDecl) -> Vec<AllowedCaller> {
        let Some(by) = &transition.by else { return Vec::new() };
        if by.value.is_empty() {
            self.report(
                Diagnostic::error("empty-by", by.span, "an empty `by` admits no caller")
                    .label("no callers")
                    .help("name callers, or remove `by` to admit every API key that may write"),
            );
        }
        let allowed: &[&str] = if self.source.work.is_some() {
            &["owner", "operator", "worker", "record"]
        } else {
            &["owner", "operator", "record"]
        };
        by.value.iter().filter_map(|name| self.resolve_caller(name, allowed)).collect()
    }

    fn compile_refusals(&mut self, entries: &[ast::RefusalDecl], view: VisibleNames) -> Vec<RefusalClause> {
        let mut refusals = Vec::new();
        for entry in entries {
            let Some(condition) = self.compile_formula(&entry.condition, view, &expected_type(DataType::Bool, false))
            else {
                self.has_unreadable_guard = true;
                continue;
            };
            self.assume_condition(Some(&condition), false);
            refusals.push(RefusalClause {
                condition,
                status: entry.response.status,
                code: entry.response.code.clone(),
                audit: entry.audit.as_ref().map(|audit| audit.text.clone()),
            });
        }
        refusals
    }

    fn compile_assignments(&mut self, entries: &[ast::NamedExpr], view: VisibleNames) -> Vec<(FieldIndex, Formula)> {
        let own = self.own_signature;
        let mut assignments = Vec::new();
        for entry in entries {
            let Some(field_index) = signature::resolve_field(own, &entry.name, &mut self.diagnostics) else { continue };
            let field = &own.fields[usize::from(field_index)];
            if field.is_constant {
                signature::report_const_changed(&entry.name, field, &mut self.diagnostics);
                continue;
            }
            if let Some(formula) =
                self.compile_formula(&entry.value, view, &expected_type(field.ty.clone(), field.nullable))
            {
                assignments.push((field_index, formula));
            }
        }
        assignments
    }

    /// Reports fields that would have no value in a new record and are not nullable.
    fn require_field_values(&mut self, transition: &ast::TransitionDecl) {
        let own = self.own_signature;
        for field in &own.fields {
            let given =
                transition.take.iter().flat_map(|take| &take.value).chain(transition.set.iter().map(|set| &set.name));
            if field.nullable || field.default.is_some() || given.into_iter().any(|name| name.text == field.name) {
                continue;
            }
            self.report(
                Diagnostic::error(
                    "field-without-value",
                    transition.path.span,
                    format!("a new record would have no `{}`", field.name),
                )
                .label("the transition neither takes nor sets it")
                .related(field.span, "declared without `default` or `optional`")
                .help(format!(
                    "add \"{}\" to `take`, set it, or declare it `optional` or with a `default`",
                    field.name
                )),
            );
        }
    }

    fn compile_timer(&mut self, transition: &ast::TransitionDecl) -> Option<TimerSpec> {
        if let Some(field) = &transition.at_field {
            if !is_name(&field.text) {
                self.report_not_a_time_field(field);
                return None;
            }
            return self.resolve_time_field(field).map(TimerSpec::AtField);
        }
        let after = transition.after.as_ref()?;
        match after.text.parse::<Duration>() {
            Ok(length) => {
                let typed = ValueType { ty: DataType::Duration, nullable: false };
                let expr =
                    Expr { kind: ExprKind::Const(Value::Duration(length)), value_type: typed, span: after.span() };
                Some(TimerSpec::AfterEntering(Formula { expr, text: after.text.clone() }))
            }
            // No valid expression of type duration starts with a digit.
            Err(_) if is_negative_duration(&after.text) || after.text.starts_with(|c: char| c.is_ascii_digit()) => {
                let (label, help) = if is_negative_duration(&after.text) {
                    (
                        "a timer cannot be due before the state is entered",
                        "`after` counts from the entry into the state; for a point in time, use `at` with a time field",
                    )
                } else {
                    ("not a number and a unit", "write a number and us, ms, s, m, h or d, such as \"30s\" or \"1h30m\"")
                };
                self.report(
                    Diagnostic::error(
                        "invalid-duration",
                        after.span(),
                        format!("`{}` is not a valid duration", after.text),
                    )
                    .label(label)
                    .help(help),
                );
                None
            }
            Err(_) => self
                .compile_formula(after, VisibleNames::default(), &expected_type(DataType::Duration, false))
                .map(TimerSpec::AfterEntering),
        }
    }
}

impl LifecycleBuilder<'_> {
    /// Reports `at` with an expression. A timer follows a field, so that readers of a record see when the timer fires.
    fn report_not_a_time_field(&mut self, text: &SourceText) {
        let field = text.text.strip_prefix("record.").filter(|name| is_name(name));
        let help = match field {
            Some(name) => format!("write at = \"{name}\""),
            None => "declare a field with type = \"time\", `set` it in the transition that enters the state, and name \
                     that field\nor count from the entry into the state: after = \"1h\""
                .to_owned(),
        };
        self.report(
            Diagnostic::error("not-a-time", text.span(), "`at` must name a time field, not an expression")
                .label("not the name of a field")
                .help(help),
        );
    }
}

/// Returns every check that an expression of the transition reads.
fn collect_check_reads(transition: &Transition) -> Vec<u16> {
    let mut found = Vec::new();
    let mut collect = |expr: &Expr| checks::collect_checks(expr, &mut found);
    let formulas = transition
        .when
        .iter()
        .chain(transition.refuse.iter().map(|refuse| &refuse.condition))
        .chain(transition.set.iter().map(|(_, formula)| formula))
        .chain(transition.spawn.iter().flat_map(|spawn| {
            spawn.condition.iter().chain(&spawn.owner).chain(spawn.fields.iter().map(|(_, formula)| formula))
        }))
        .chain(transition.require.iter().chain(&transition.cascade).flat_map(|cause| {
            cause.condition.iter().chain([&cause.targets]).chain(cause.input.iter().map(|(_, formula)| formula))
        }))
        .chain(transition.deliver.iter().flat_map(|deliver| {
            deliver.condition.iter().chain([&deliver.url]).chain(deliver.body.iter().map(|(_, formula)| formula))
        }));
    formulas.for_each(|formula| collect(&formula.expr));
    for entry in &transition.transfers {
        for account in [&entry.from, &entry.to] {
            if let AccountRef::Named(template) = account {
                template.parts.iter().for_each(|part| {
                    if let TemplatePart::Value(expr) = part {
                        collect(expr);
                    }
                });
            }
        }
        if let TransferAmount::Computed(formula) = &entry.amount {
            collect(&formula.expr);
        }
    }
    found.sort_unstable();
    found
}
