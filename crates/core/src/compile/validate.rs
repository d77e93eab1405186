//! Validates which keys an event allows and which states a transition may leave or enter.

use super::lifecycle::LifecycleBuilder;
use crate::diagnostic::{Diagnostic, Span};
use crate::model::EventKind;
use crate::suggest;
use crate::syntax::ast::{EventDecl, ReadyDecl, SourceText, StateDecl, TransitionDecl};

/// Events that the engine defines.
const ENGINE_EVENT_NAMES: [&str; 7] = ["create", "lease", "commit", "finish", "fail", "time", "enter"];

impl LifecycleBuilder<'_> {
    pub(super) fn validate_state(&mut self, state: &StateDecl) {
        let name = &state.name.text;
        let ready = state.ready.as_ref().map(|ready| match ready {
            ReadyDecl::Immediate(at) => *at,
            ReadyDecl::FromField(field) => field.span(),
        });
        let others = [("ready", ready), ("rest", state.rest_span)];
        for (key, at) in others {
            if let (Some(at), Some(end)) = (at, state.final_span) {
                self.report(
                    Diagnostic::error(
                        "conflicting-keys",
                        at,
                        format!("`{name}` is final: `{key}` means nothing there"),
                    )
                    .label(format!("`{key}` here"))
                    .related(end, "`final` here")
                    .help("keep one of them"),
                );
            }
        }
        if let Some(at) = ready {
            self.require_work(at, "a state is ready for workers");
            self.forbid_on_operation_clock(at, "`ready` states");
        }
    }

    fn require_work(&mut self, span: Span, what: &str) {
        if self.source.work.is_none() {
            self.report(
                Diagnostic::error("needs-work", span, format!("{what}, but the lifecycle has no [work]"))
                    .label("needs [work]")
                    .help("add a [work] table with at least `lease = \"30s\"`"),
            );
        }
    }

    fn forbid_on_operation_clock(&mut self, span: Span, what: &str) {
        if let Some(clock) = self.source.operation_clock {
            self.report(
                Diagnostic::error(
                    "operation-clock",
                    span,
                    format!("a lifecycle on the operation's clock has no {what}"),
                )
                .label("would need the engine's clock")
                .related(clock, "the clock is chosen here")
                .help("take it out, or drop `clock`"),
            );
        }
    }

    pub(super) fn validate_events(&mut self) {
        let source = self.source;
        if let Some(work) = &source.work {
            self.forbid_on_operation_clock(work.span, "[work]");
        }
        let creates = |event: &EventDecl| {
            EventKind::from_name(&event.name.text) == EventKind::Create && !event.transitions.is_empty()
        };
        if !source.states.is_empty() && !source.events.iter().any(creates) {
            self.report(
                Diagnostic::error(
                    "no-create-row",
                    source.lifecycle.span(),
                    format!("no record of {} can come into being", self.own_signature.name),
                )
                .label("no create row")
                .help("add a row under [[on.create]] with go = \"-> A\""),
            );
        }
        for event in &source.events {
            let kind = EventKind::from_name(&event.name.text);
            if matches!(kind, EventKind::Lease | EventKind::Commit | EventKind::Finish | EventKind::Fail) {
                self.require_work(event.name.span(), &format!("`{}` is a worker's event", event.name.text));
            }
            if kind == EventKind::Time {
                self.forbid_on_operation_clock(event.name.span(), "timers");
            }
            if kind == EventKind::Called && event.transitions.iter().any(|row| row.by.is_none()) {
                self.reject_near_engine_event(&event.name);
            }
        }
    }

    /// Rejects an event whose name is one typo away from an engine event.
    ///
    /// Such an event would be callable by every caller, and no other diagnostic would show it. To use such a name, an
    /// author declares its callers with `by`, which engine events never have.
    fn reject_near_engine_event(&mut self, name: &SourceText) {
        let Some(near) = suggest::find_single_typo(&name.text, ENGINE_EVENT_NAMES) else { return };
        self.report(
            Diagnostic::error(
                "near-engine-event",
                name.span(),
                format!("`{}` is too much like `{near}`, which the engine fires", name.text),
            )
            .label("would be an event that callers fire")
            .help(format!("did you mean `{near}`? If not, say with `by` who may call it")),
        );
    }

    pub(super) fn validate_transition(&mut self, event: &EventDecl, kind: EventKind, transition: &TransitionDecl) {
        let name = &event.name.text;
        let fired_by_engine = !matches!(kind, EventKind::Called | EventKind::Create);
        if fired_by_engine {
            let misplaced = [
                ("by", transition.by.as_ref().map(|by| by.span), "the engine fires it: nobody calls it"),
                (
                    "take",
                    transition.take.as_ref().map(|take| take.span),
                    "the engine fires it: nobody gives it anything",
                ),
                (
                    "input",
                    transition.input.as_ref().map(|input| input.span),
                    "the engine fires it: nobody gives it anything",
                ),
            ];
            for (key, at, why) in misplaced {
                if let Some(at) = at {
                    self.report_misplaced(at, &format!("`{key}` cannot stand under `{name}`"), why, "take it out");
                }
            }
        }
        let timing = [
            ("after", transition.after.as_ref().map(SourceText::span)),
            ("at", transition.at_field.as_ref().map(SourceText::span)),
        ];
        if kind == EventKind::Time {
            if let [(_, Some(after)), (_, Some(until))] = timing {
                self.report(
                    Diagnostic::error("conflicting-keys", until, "a timer has one time")
                        .label("`at` here")
                        .related(after, "`after` here")
                        .help("keep one of them, or make two rows of it"),
                );
            } else if timing.iter().all(|(_, at)| at.is_none()) {
                self.report(
                    Diagnostic::error(
                        "missing-key",
                        transition.path.span,
                        "a row under `time` needs the key `after` or `at`",
                    )
                    .label("when?")
                    .help("add `after = \"1s\"` (since entering) or `at = \"field\"` (a time field)"),
                );
            }
        } else {
            for (key, at) in timing {
                if let Some(at) = at {
                    self.report_misplaced(
                        at,
                        &format!("`{key}` cannot stand under `{name}`"),
                        "only timers have a time",
                        "move the row under [[on.time]]",
                    );
                }
            }
        }
        if let Some(at) = transition.forever_span.filter(|_| kind != EventKind::Fail) {
            let message = format!("`forever` cannot stand under `{name}`");
            self.report_misplaced(at, &message, "only a failure is retried", "take it out");
        }
        if (kind == EventKind::Create) != transition.path.is_creation() {
            let (message, help) = if transition.path.is_creation() {
                (
                    format!("a row under `{name}` cannot create a record"),
                    "name the states it answers in, or move it under [[on.create]]",
                )
            } else {
                ("a row under `create` starts from nothing".to_owned(), "write go = \"-> A\"")
            };
            self.report_misplaced(transition.path.span, &message, "wrong shape for this event", help);
        }
        self.validate_from_and_to_states(transition);
    }

    fn report_misplaced(&mut self, span: Span, message: &str, label: &str, help: &str) {
        self.report(Diagnostic::error("misplaced", span, message).label(label).help(help));
    }

    /// Reports transitions that leave a final state or enter a reserved one.
    fn validate_from_and_to_states(&mut self, transition: &TransitionDecl) {
        let source = self.source;
        let Some(to) = &transition.path.to else { return };
        let declared = |name: &str| source.states.iter().find(|state| *state.name.text == *name);
        for from in &transition.path.from {
            if let Some(end) = declared(&from.value).and_then(|state| state.final_span) {
                self.report(
                    Diagnostic::error(
                        "final-left",
                        from.span,
                        format!("`{}` is final: no row may leave it", from.value),
                    )
                    .label("would be left")
                    .related(end, "declared final here")
                    .help(format!("write go = \"{}\" to annotate it there, or spawn a new record", from.value)),
                );
            }
        }
        if let Some(reserved) = declared(&to.value).and_then(|state| state.reserved_span) {
            self.report(
                Diagnostic::error(
                    "reserved-reached",
                    to.span,
                    format!("`{}` is reserved: no row may go there", to.value),
                )
                .label("would be reached")
                .related(reserved, "declared reserved here")
                .help("drop `reserved` once the state is in use"),
            );
        }
    }
}
