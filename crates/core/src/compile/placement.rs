//! What may stand where: keys that belong to some events only, states that some rows may not leave or reach.

use super::lifecycle::Builder;
use crate::diagnostic::{Diagnostic, Span};
use crate::model::EventKind;
use crate::near;
use crate::syntax::ast::{Event, Ready, Row, State, Text};

/// The events that have a meaning of their own.
const ENGINE_EVENTS: [&str; 7] = ["create", "lease", "commit", "finish", "fail", "time", "enter"];

impl Builder<'_> {
    pub(super) fn state_placement(&mut self, state: &State) {
        let name = &state.name.text;
        let ready = state.ready.as_ref().map(|ready| match ready {
            Ready::Yes(at) => *at,
            Ready::From(field) => field.at(),
        });
        let others = [("ready", ready), ("rest", state.rest)];
        for (key, at) in others {
            if let (Some(at), Some(end)) = (at, state.is_final) {
                self.report(
                    Diagnostic::error(
                        "conflicting-keys",
                        at,
                        format!("`{name}` is final: `{key}` means nothing there"),
                    )
                    .label(format!("`{key}` here"))
                    .also(end, "`final` here")
                    .help("keep one of them"),
                );
            }
        }
        if let Some(at) = ready {
            self.needs_work(at, "a state is ready for workers");
            self.not_on_operation_clock(at, "`ready` states");
        }
    }

    fn needs_work(&mut self, at: Span, what: &str) {
        if self.source.work.is_none() {
            self.report(
                Diagnostic::error("needs-work", at, format!("{what}, but the lifecycle has no [work]"))
                    .label("needs [work]")
                    .help("add a [work] table with at least `lease = \"30s\"`"),
            );
        }
    }

    fn not_on_operation_clock(&mut self, at: Span, what: &str) {
        if let Some(clock) = self.source.operation_clock {
            self.report(
                Diagnostic::error("operation-clock", at, format!("a lifecycle on the operation's clock has no {what}"))
                    .label("would need the engine's clock")
                    .also(clock, "the clock is chosen here")
                    .help("take it out, or drop `clock`"),
            );
        }
    }

    pub(super) fn lifecycle_placement(&mut self) {
        let source = self.source;
        if let Some(work) = &source.work {
            self.not_on_operation_clock(work.at, "[work]");
        }
        let creates = |event: &Event| EventKind::of(&event.name.text) == EventKind::Create && !event.rows.is_empty();
        if !source.states.is_empty() && !source.events.iter().any(creates) {
            self.report(
                Diagnostic::error(
                    "no-create-row",
                    source.lifecycle.at(),
                    format!("no record of {} can come into being", self.own.name),
                )
                .label("no create row")
                .help("add a row under [[on.create]] with go = \"-> A\""),
            );
        }
        for event in &source.events {
            let kind = EventKind::of(&event.name.text);
            if matches!(kind, EventKind::Lease | EventKind::Commit | EventKind::Finish | EventKind::Fail) {
                self.needs_work(event.name.at(), &format!("`{}` is a worker's event", event.name.text));
            }
            if kind == EventKind::Time {
                self.not_on_operation_clock(event.name.at(), "timers");
            }
            if kind == EventKind::Called && event.rows.iter().any(|row| row.by.is_none()) {
                self.no_slip_of_the_pen(&event.name);
            }
        }
    }

    /// An event that anybody may call instead of one that the engine fires would be a hole, and nothing else would show
    /// it. Whoever means such a name says who may call it, which rows of the engine's own events never do.
    fn no_slip_of_the_pen(&mut self, name: &Text) {
        let Some(near) = near::slip_of(&name.text, ENGINE_EVENTS) else { return };
        self.report(
            Diagnostic::error(
                "near-engine-event",
                name.at(),
                format!("`{}` is too much like `{near}`, which the engine fires", name.text),
            )
            .label("would be an event that callers fire")
            .help(format!("did you mean `{near}`? If not, say with `by` who may call it")),
        );
    }

    pub(super) fn row_placement(&mut self, event: &Event, kind: EventKind, row: &Row) {
        let name = &event.name.text;
        let engine = !matches!(kind, EventKind::Called | EventKind::Create);
        if engine {
            let misplaced = [
                ("by", row.by.as_ref().map(|by| by.at), "the engine fires it: nobody calls it"),
                ("take", row.take.as_ref().map(|take| take.at), "the engine fires it: nobody gives it anything"),
                ("input", row.input.as_ref().map(|input| input.at), "the engine fires it: nobody gives it anything"),
            ];
            for (key, at, why) in misplaced {
                if let Some(at) = at {
                    self.misplaced(at, &format!("`{key}` cannot stand under `{name}`"), why, "take it out");
                }
            }
        }
        let timing = [("after", row.after.as_ref().map(Text::at)), ("at", row.until.as_ref().map(Text::at))];
        if kind == EventKind::Time {
            if let [(_, Some(after)), (_, Some(until))] = timing {
                self.report(
                    Diagnostic::error("conflicting-keys", until, "a timer has one time")
                        .label("`at` here")
                        .also(after, "`after` here")
                        .help("keep one of them, or make two rows of it"),
                );
            } else if timing.iter().all(|(_, at)| at.is_none()) {
                self.report(
                    Diagnostic::error("missing-key", row.go.at, "a row under `time` needs the key `after` or `at`")
                        .label("when?")
                        .help("add `after = \"1s\"` (since entering) or `at = \"field\"` (a time field)"),
                );
            }
        } else {
            for (key, at) in timing {
                if let Some(at) = at {
                    self.misplaced(
                        at,
                        &format!("`{key}` cannot stand under `{name}`"),
                        "only timers have a time",
                        "move the row under [[on.time]]",
                    );
                }
            }
        }
        if let Some(at) = row.forever.filter(|_| kind != EventKind::Fail) {
            let message = format!("`forever` cannot stand under `{name}`");
            self.misplaced(at, &message, "only a failure is retried", "take it out");
        }
        if (kind == EventKind::Create) != row.go.creates() {
            let (message, help) = if row.go.creates() {
                (
                    format!("a row under `{name}` cannot create a record"),
                    "name the states it answers in, or move it under [[on.create]]",
                )
            } else {
                ("a row under `create` starts from nothing".to_owned(), "write go = \"-> A\"")
            };
            self.misplaced(row.go.at, &message, "wrong shape for this event", help);
        }
        self.state_rules(row);
    }

    fn misplaced(&mut self, at: Span, message: &str, label: &str, help: &str) {
        self.report(Diagnostic::error("misplaced", at, message).label(label).help(help));
    }

    /// Final states are not left; reserved ones are not reached.
    fn state_rules(&mut self, row: &Row) {
        let source = self.source;
        let Some(to) = &row.go.to else { return };
        let declared = |name: &str| source.states.iter().find(|state| *state.name.text == *name);
        for from in &row.go.from {
            if let Some(end) = declared(&from.value).and_then(|state| state.is_final) {
                self.report(
                    Diagnostic::error("final-left", from.at, format!("`{}` is final: no row may leave it", from.value))
                        .label("would be left")
                        .also(end, "declared final here")
                        .help(format!("write go = \"{}\" to annotate it there, or spawn a new record", from.value)),
                );
            }
        }
        if let Some(reserved) = declared(&to.value).and_then(|state| state.reserved) {
            self.report(
                Diagnostic::error(
                    "reserved-reached",
                    to.at,
                    format!("`{}` is reserved: no row may go there", to.value),
                )
                .label("would be reached")
                .also(reserved, "declared reserved here")
                .help("drop `reserved` once the state is in use"),
            );
        }
    }
}
