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
                    Diagnostic::error("conflicting-keys", at, format!("`{name}` is final, so `{key}` has no effect"))
                        .label(format!("`{key}`"))
                        .related(end, "`final`")
                        .help("remove one of them"),
                );
            }
        }
        if let (Some(at), None) = (state.keep_span, state.final_span) {
            let message = format!("`{name}` is not final, so retention never deletes a record in it");
            self.report(
                Diagnostic::error("conflicting-keys", at, message)
                    .label("`keep` has no effect")
                    .help("remove `keep`, or make the state final"),
            );
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
                    format!("a lifecycle with `clock = \"operation\"` cannot have {what}"),
                )
                .label("needs the engine's clock")
                .related(clock, "the clock of the lifecycle")
                .help("remove it, or remove `clock`"),
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
                    "no-create-transition",
                    source.lifecycle.span(),
                    format!("no record of {} can be created", self.own_signature.name),
                )
                .label("no `create` transition")
                .help("add an [[on.create]] transition with go = \"-> A\""),
            );
        }
        for event in &source.events {
            let kind = EventKind::from_name(&event.name.text);
            if matches!(kind, EventKind::Lease | EventKind::Commit | EventKind::Finish | EventKind::Fail) {
                self.require_work(event.name.span(), &format!("workers fire `{}`", event.name.text));
            }
            if kind == EventKind::Time {
                self.forbid_on_operation_clock(event.name.span(), "timers");
            }
            if kind == EventKind::Called && event.transitions.iter().any(|transition| transition.by.is_none()) {
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
                format!("`{}` looks like a typo of `{near}`, which the engine fires", name.text),
            )
            .label("would be an event for callers")
            .help(format!("did you mean `{near}`? If not, name the callers in `by`")),
        );
    }

    pub(super) fn validate_transition(&mut self, event: &EventDecl, kind: EventKind, transition: &TransitionDecl) {
        let name = &event.name.text;
        let fired_by_engine = !matches!(kind, EventKind::Called | EventKind::Create);
        if fired_by_engine {
            let misplaced = [
                ("by", transition.by.as_ref().map(|by| by.span), "the engine fires the event, not a caller"),
                ("take", transition.take.as_ref().map(|take| take.span), "the engine fires the event without inputs"),
                (
                    "input",
                    transition.input.as_ref().map(|input| input.span),
                    "the engine fires the event without inputs",
                ),
            ];
            for (key, at, why) in misplaced {
                if let Some(at) = at {
                    self.report_misplaced(at, &format!("a `{name}` transition cannot have `{key}`"), why, "remove it");
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
                    Diagnostic::error("conflicting-keys", until, "a timer has either `at` or `after`, not both")
                        .label("`at`")
                        .related(after, "`after`")
                        .help("remove one of them, or write two transitions"),
                );
            } else if timing.iter().all(|(_, at)| at.is_none()) {
                self.report(
                    Diagnostic::error(
                        "missing-key",
                        transition.path.span,
                        "a `time` transition needs the key `after` or `at`",
                    )
                    .label("when?")
                    .help("add `after = \"1s\"` (since the entry into the state) or `at = \"field\"` (a time field)"),
                );
            }
        } else {
            for (key, at) in timing {
                if let Some(at) = at {
                    self.report_misplaced(
                        at,
                        &format!("a `{name}` transition cannot have `{key}`"),
                        "only timers have a due time",
                        "move the transition to [[on.time]]",
                    );
                }
            }
        }
        if let Some(at) = transition.forever_span.filter(|_| kind != EventKind::Fail) {
            let message = format!("a `{name}` transition cannot have `forever`");
            self.report_misplaced(at, &message, "only failures are retried", "remove it");
        }
        if (kind == EventKind::Create) != transition.path.is_creation() {
            let (message, help) = if transition.path.is_creation() {
                (
                    format!("a `{name}` transition cannot create a record"),
                    "name the states from which it starts, or move it to [[on.create]]",
                )
            } else {
                ("a `create` transition starts from no state".to_owned(), "write go = \"-> A\"")
            };
            self.report_misplaced(transition.path.span, &message, "wrong form for the event", help);
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
                        "leaves-final-state",
                        from.span,
                        format!("`{}` is final, so no transition may leave it", from.value),
                    )
                    .label("leaves a final state")
                    .related(end, "declared final")
                    .help(format!("write go = \"{}\" to stay in the state, or spawn a new record", from.value)),
                );
            }
        }
        if let Some(reserved) = declared(&to.value).and_then(|state| state.reserved_span) {
            self.report(
                Diagnostic::error(
                    "enters-reserved-state",
                    to.span,
                    format!("`{}` is reserved, so no transition may enter it", to.value),
                )
                .label("enters a reserved state")
                .related(reserved, "declared reserved")
                .help("remove `reserved` once the state is in use"),
            );
        }
    }
}
