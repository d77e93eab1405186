//! Compiles the actions of a transition: spawns, events for other records, deliveries.

use std::sync::Arc;

use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use super::signature::TransitionSignature;
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::ExpectedType;
use crate::model::{DataType, DeliverAction, EventAction, EventKind, Formula, SpawnAction, SpawnPayload};
use crate::suggest;
use crate::syntax::ast::{self, NamedExpr, SourceText};

/// Why a transition of the target lifecycle does not accept the given inputs.
enum InputMismatch {
    /// The transition has no input of this name. Holds the index of the given input.
    UnknownInput(usize),
    /// A required input is not given.
    MissingInput(Arc<str>),
    /// An expression does not have the type of its input.
    InvalidExpression(Vec<Diagnostic>),
}

type TypedInputs = Vec<(Arc<str>, Formula)>;

impl LifecycleBuilder<'_> {
    pub(super) fn compile_spawns(&mut self, entries: &[ast::SpawnDecl], view: VisibleNames) -> Vec<SpawnAction> {
        let mut spawns = Vec::new();
        for entry in entries {
            let condition = self.compile_condition(entry.condition.as_ref(), view);
            let owner = entry
                .owner
                .as_ref()
                .and_then(|owner| self.compile_formula(owner, view, &expected_type(DataType::Text, false)));
            if entry.lifecycle.text.starts_with("onceward.") && !self.own_signature.name.starts_with("onceward.") {
                self.report(
                    Diagnostic::error(
                        "reserved-lifecycle",
                        entry.lifecycle.span(),
                        format!("`{}` cannot be spawned by a lifecycle file", entry.lifecycle.text),
                    )
                    .label("built in")
                    .help("use `deliver = [{ to, body }]` to send a delivery"),
                );
                continue;
            }
            if !self.declaration_compiler().require_lifecycle(&entry.lifecycle) {
                continue;
            }
            self.require_payload_fits(entry);
            let target = [entry.lifecycle.text.clone()];
            let Some(fields) = self.match_target_inputs(&target, "create", &entry.fields, view, entry.span) else {
                continue;
            };
            spawns.push(SpawnAction {
                lifecycle: entry.lifecycle.text.clone(),
                condition,
                fields,
                owner,
                payload: if entry.same_payload { SpawnPayload::CopyFromSpawner } else { SpawnPayload::None },
                span: entry.span,
            });
        }
        spawns
    }

    /// Reports a spawn that gives a lifecycle no payload, or one outside its `[payload]` bounds.
    fn require_payload_fits(&mut self, entry: &ast::SpawnDecl) {
        let context = self.context;
        let Some(target_bounds) = context.payload_bounds.get(&entry.lifecycle.text) else { return };
        let own_bounds = context.payload_bounds.get(&self.source.lifecycle.text).filter(|_| entry.same_payload);
        let fits = match own_bounds {
            None => target_bounds.min_bytes == 0,
            Some(own) => own.min_bytes >= target_bounds.min_bytes && own.max_bytes <= target_bounds.max_bytes,
        };
        if !fits {
            let (message, help) = if own_bounds.is_some() {
                (
                    format!("the record's payload may not fit {}", entry.lifecycle.text),
                    "give both lifecycles the same [payload] bounds",
                )
            } else {
                (
                    format!("{} needs a payload", entry.lifecycle.text),
                    "add payload = \"same\" to pass on the record's own payload",
                )
            };
            self.report(
                Diagnostic::error("payload-mismatch", entry.span, message)
                    .label("spawned without a fitting payload")
                    .help(help),
            );
        }
    }

    fn compile_condition(&mut self, condition: Option<&SourceText>, view: VisibleNames) -> Option<Formula> {
        condition.and_then(|condition| self.compile_formula(condition, view, &expected_type(DataType::Bool, false)))
    }

    pub(super) fn compile_event_actions(
        &mut self,
        entries: &[ast::EventActionDecl],
        view: VisibleNames,
    ) -> Vec<EventAction> {
        let mut actions = Vec::new();
        for entry in entries {
            let condition = self.compile_condition(entry.condition.as_ref(), view);
            if EventKind::from_name(&entry.event.text) != EventKind::Called {
                self.report(
                    Diagnostic::error(
                        "engine-event",
                        entry.event.span(),
                        format!("only the engine fires `{}`", entry.event.text),
                    )
                    .label("records cannot send it")
                    .help("send an event of another name; to create a record, use `spawn`"),
                );
                continue;
            }
            let Some(to) = self.compile_formula(&entry.to, view, &ExpectedType::Targets) else { continue };
            let targets = match &to.expr.value_type.ty {
                DataType::Ref(targets) => targets.clone(),
                DataType::List(of) => match &**of {
                    DataType::Ref(targets) => targets.clone(),
                    _ => [].into(),
                },
                _ => [].into(),
            };
            if !targets.iter().all(|target| self.require_event(target, &entry.event)) {
                continue;
            }
            let Some(input) = self.match_target_inputs(&targets, &entry.event.text, &entry.input, view, entry.span)
            else {
                continue;
            };
            actions.push(EventAction {
                condition,
                targets: to,
                event: entry.event.text.clone(),
                input,
                span: entry.span,
            });
        }
        actions
    }

    fn require_event(&mut self, target: &Arc<str>, event: &SourceText) -> bool {
        let context = self.context;
        let Some(signatures_by_event) = context.transition_signatures.get(target) else { return false };
        let is_known = signatures_by_event.contains_key(&event.text);
        if !is_known {
            let events = signatures_by_event
                .keys()
                .map(|name| &**name)
                .filter(|name| EventKind::from_name(name) == EventKind::Called);
            let help = suggest::suggestion_text(
                self.diagnostic_count(),
                &event.text,
                "events of the target",
                events.collect::<Vec<_>>(),
            );
            self.report(
                Diagnostic::error(
                    "unknown-event",
                    event.span(),
                    format!("{target} declares no event `{}`", event.text),
                )
                .label("no transition of the target answers it")
                .help(help),
            );
        }
        is_known
    }

    pub(super) fn compile_deliveries(
        &mut self,
        entries: &[ast::DeliverDecl],
        view: VisibleNames,
    ) -> Vec<DeliverAction> {
        let mut deliveries = Vec::new();
        for entry in entries {
            let condition = self.compile_condition(entry.condition.as_ref(), view);
            let to = self.compile_formula(&entry.to, view, &expected_type(DataType::Text, false));
            let mut body = Vec::new();
            for given in &entry.body {
                if let Some(formula) = self.compile_formula(&given.value, view, &ExpectedType::Any) {
                    body.push((given.name.text.clone(), formula));
                }
            }
            if let Some(to) = to {
                deliveries.push(DeliverAction { condition, url: to, body, span: entry.span });
            }
        }
        deliveries
    }

    /// Types the given inputs by the transitions that accept them. In each target, at least one transition must accept
    /// all inputs.
    fn match_target_inputs(
        &mut self,
        targets: &[Arc<str>],
        event: &str,
        given: &[NamedExpr],
        view: VisibleNames,
        span: Span,
    ) -> Option<TypedInputs> {
        let context = self.context;
        let mut first = None;
        if self.diagnostics.len() >= bounds::MAX_DIAGNOSTICS {
            return None;
        }
        for target in targets {
            let signatures = context
                .transition_signatures
                .get(target)
                .and_then(|shapes| shapes.get(event))
                .map_or(&[][..], Vec::as_slice);
            let mut mismatches = Vec::new();
            let mut fits = None;
            for signature in distinct_signatures(signatures) {
                match self.match_transition_inputs(signature, given, view) {
                    Ok(formulas) => {
                        fits = Some(formulas);
                        break;
                    }
                    Err(misfit) => mismatches.push(misfit),
                }
            }
            let Some(formulas) = fits else {
                self.report_no_transition_fits(target, event, given, mismatches, span);
                return None;
            };
            first.get_or_insert(formulas);
        }
        first
    }

    fn match_transition_inputs(
        &self,
        signature: &TransitionSignature,
        given: &[NamedExpr],
        view: VisibleNames,
    ) -> Result<TypedInputs, InputMismatch> {
        let mut formulas = Vec::new();
        let mut wrong = Vec::new();
        for (index, entry) in given.iter().enumerate() {
            let input = signature
                .inputs
                .iter()
                .find(|input| input.field.name == entry.name.text)
                .ok_or(InputMismatch::UnknownInput(index))?;
            let wanted = expected_type(input.field.ty.clone(), input.field.nullable);
            match self.try_compile_expr(&entry.value.text, entry.value.location, view, &wanted) {
                Ok(expr) => formulas.push((entry.name.text.clone(), Formula { expr, text: entry.value.text.clone() })),
                Err(diagnostics) => wrong.extend(diagnostics),
            }
        }
        let missing = signature
            .inputs
            .iter()
            .zip(&signature.required)
            .find(|(input, required)| **required && !given.iter().any(|entry| entry.name.text == input.field.name));
        if let Some((input, _)) = missing {
            return Err(InputMismatch::MissingInput(input.field.name.clone()));
        }
        if wrong.is_empty() { Ok(formulas) } else { Err(InputMismatch::InvalidExpression(wrong)) }
    }

    /// Reports the closest mismatch: a wrong expression, else a missing input, else an unknown input.
    fn report_no_transition_fits(
        &mut self,
        target: &Arc<str>,
        event: &str,
        given: &[NamedExpr],
        mut mismatches: Vec<InputMismatch>,
        span: Span,
    ) {
        mismatches.sort_by_key(|misfit| match misfit {
            InputMismatch::InvalidExpression(_) => 0,
            InputMismatch::MissingInput(_) => 1,
            InputMismatch::UnknownInput(_) => 2,
        });
        let message = format!("no `{event}` transition of {target} accepts the given inputs");
        match mismatches.into_iter().next() {
            Some(InputMismatch::InvalidExpression(diagnostics)) => self.report_expr_errors(diagnostics),
            Some(InputMismatch::MissingInput(name)) => self.report(
                Diagnostic::error("no-matching-transition", span, message)
                    .label(format!("`{name}` is missing"))
                    .help(format!("give `{name}`; the transition requires it")),
            ),
            Some(InputMismatch::UnknownInput(index)) => {
                let name = &given[index].name;
                let context = self.context;
                let signatures = context
                    .transition_signatures
                    .get(target)
                    .and_then(|shapes| shapes.get(event))
                    .into_iter()
                    .flatten();
                let mut accepted_names: Vec<&str> =
                    signatures.flat_map(|signature| signature.inputs.iter().map(|input| &*input.field.name)).collect();
                accepted_names.sort_unstable();
                accepted_names.dedup();
                let help = suggest::suggestion_text(
                    self.diagnostic_count(),
                    &name.text,
                    "inputs that its transitions accept",
                    accepted_names,
                );
                self.report(
                    Diagnostic::error("no-matching-transition", name.span(), message)
                        .label(format!("`{}` is not an accepted input", name.text))
                        .help(format!("{help}\none transition must accept all given inputs")),
                );
            }
            None => self.report(
                Diagnostic::error("no-matching-transition", span, message)
                    .label("it has no such transition")
                    .help(format!("add an [[on.{event}]] transition to {target}")),
            ),
        }
    }
}

/// Returns the transitions that differ in their inputs. The compiler tries each with every given expression, so their
/// number is bounded; hand-written files stay far below the bound.
fn distinct_signatures(signatures: &[TransitionSignature]) -> Vec<&TransitionSignature> {
    const MAX_TRIED_SIGNATURES: usize = 32;
    let mut distinct: Vec<&TransitionSignature> = Vec::new();
    for signature in signatures {
        let same = |other: &&TransitionSignature| {
            other.required == signature.required
                && other.inputs.len() == signature.inputs.len()
                && other.inputs.iter().zip(&signature.inputs).all(|(a, b)| {
                    a.field.name == b.field.name && a.field.ty == b.field.ty && a.field.nullable == b.field.nullable
                })
        };
        if !distinct.iter().any(same) {
            distinct.push(signature);
        }
        if distinct.len() == MAX_TRIED_SIGNATURES {
            break;
        }
    }
    distinct
}
