//! Rows.

use super::asks::{self, Reads};
use super::lifecycle::{Builder, View, want};
use super::shape::{self, RowShape};
use crate::diagnostic::Diagnostic;
use crate::expr::{self, Expr, Kind};
use crate::model::{
    AccountRef, Amount, By, Event, EventKind, Field, Formula, Refuse, Row, Slot, StateSet, TemplatePart, Timing, Type,
    Typed,
};
use crate::syntax::ast::{self, Text};
use crate::syntax::{is_name, is_negative};
use crate::time::Duration;
use crate::value::Value;

impl Builder<'_> {
    /// All events with their rows, and which rows read which answers.
    pub(super) fn events(&mut self) -> (Vec<Event>, Vec<Reads>) {
        self.lifecycle_placement();
        let source = self.source;
        let world = self.world;
        let shapes = world.shapes.get(&source.lifecycle.text);
        let mut events = Vec::new();
        let mut readers = Vec::new();
        for event in &source.events {
            let kind = EventKind::of(&event.name.text);
            let shapes = shapes.and_then(|shapes| shapes.get(&event.name.text)).map_or(&[][..], Vec::as_slice);
            let mut rows = Vec::new();
            for (row, shape) in event.rows.iter().zip(shapes) {
                self.row_placement(event, kind, row);
                let inputs = shape.scope();
                let row = self.row(kind, row, shape, &inputs);
                readers.push(Reads { checks: row.checks.clone(), inputs, at: row.at });
                rows.push(row);
            }
            events.push(Event { name: event.name.text.clone(), kind, rows });
        }
        (events, readers)
    }

    fn row(&mut self, kind: EventKind, row: &ast::Row, shape: &RowShape, inputs: &[Field]) -> Row {
        let view = View {
            input: matches!(kind, EventKind::Called | EventKind::Create).then_some(inputs),
            result: kind == EventKind::Commit,
            error: kind == EventKind::Fail,
            checks: true,
            lookups: true,
            links: true,
            actor: true,
            now: true,
        };
        let from: StateSet = row.go.from.iter().filter_map(|state| self.state_at(&state.value, state.at)).collect();
        let to = row.go.to.as_ref().and_then(|state| self.state_at(&state.value, state.at));
        // Evaluated on entering, long before the guard: nothing that the guard says holds for it.
        let timing = self.timing(row);
        let when = row.when.as_ref().and_then(|when| self.formula(when, view, &want(Type::Bool, false)));
        self.learn(when.as_ref(), true);
        self.unsure = when.is_none() && row.when.is_some();
        let refuse = self.refuse(&row.refuse, view);
        let mut compiled = Row {
            from,
            to,
            by: self.by(row),
            when,
            refuse,
            inputs: shape.inputs.clone(),
            set: self.set(&row.set, view),
            moves: self.moves(&row.moves, view),
            spawn: self.spawns(&row.spawn, view),
            require: self.causes(&row.require, view),
            cascade: self.causes(&row.cascade, view),
            deliver: self.deliveries(&row.deliver, view),
            timing,
            forever: row.forever,
            audit: row.audit.as_ref().map(|audit| audit.text.clone()),
            rules: row.rules.clone(),
            checks: Vec::new(),
            at: row.go.at,
            line: row.line,
        };
        if kind == EventKind::Create {
            self.every_field_has_a_value(row);
        }
        compiled.checks = checks_read(&compiled);
        self.known.clear();
        self.unsure = false;
        self.can_wait(kind, &compiled);
        compiled
    }

    /// What the rest of the row may rely on: a guard was true, a reason to refuse was not.
    fn learn(&mut self, condition: Option<&Formula>, truth: bool) {
        let facts = condition.map_or_else(Vec::new, |formula| expr::learned(&formula.expr, Some(truth)));
        self.known.extend(facts);
    }

    /// A check may stay unanswered; what the engine fires by itself cannot wait for one.
    fn can_wait(&mut self, kind: EventKind, row: &Row) {
        if matches!(kind, EventKind::Called | EventKind::Create | EventKind::Commit) {
            return;
        }
        for check in &row.checks {
            let Some((name, _)) = self.checks.get(usize::from(*check)) else { continue };
            let message = format!("a row that the engine fires cannot read the check `{name}`");
            self.report(
                Diagnostic::error("misplaced", row.at, message)
                    .label("nobody is there to wait for the answer")
                    .help("ask in an earlier row that somebody calls, and keep the answer in a field"),
            );
        }
    }

    fn by(&mut self, row: &ast::Row) -> Vec<By> {
        let Some(by) = &row.by else { return Vec::new() };
        if by.value.is_empty() {
            self.report(
                Diagnostic::error("empty-by", by.at, "nobody may call a row with an empty `by`")
                    .label("no callers")
                    .help("name callers, or drop `by` to allow any key that may write"),
            );
        }
        let allowed: &[&str] = if self.source.work.is_some() {
            &["owner", "operator", "worker", "record"]
        } else {
            &["owner", "operator", "record"]
        };
        by.value.iter().filter_map(|name| self.caller(name, allowed)).collect()
    }

    fn refuse(&mut self, entries: &[ast::Refuse], view: View) -> Vec<Refuse> {
        let mut refuse = Vec::new();
        for entry in entries {
            let Some(condition) = self.formula(&entry.condition, view, &want(Type::Bool, false)) else {
                self.unsure = true;
                continue;
            };
            self.learn(Some(&condition), false);
            refuse.push(Refuse {
                condition,
                status: entry.answer.status,
                code: entry.answer.code.clone(),
                audit: entry.audit.as_ref().map(|audit| audit.text.clone()),
            });
        }
        refuse
    }

    fn set(&mut self, entries: &[ast::Given], view: View) -> Vec<(Slot, Formula)> {
        let own = self.own;
        let mut set = Vec::new();
        for entry in entries {
            let Some(slot) = shape::slot(own, &entry.name, &mut self.out) else { continue };
            let field = &own.fields[usize::from(slot)];
            if field.constant {
                shape::constant(&entry.name, field, &mut self.out);
                continue;
            }
            if let Some(formula) = self.formula(&entry.value, view, &want(field.ty.clone(), field.nullable)) {
                set.push((slot, formula));
            }
        }
        set
    }

    /// A new record has no field without a value, other than those that may be null.
    fn every_field_has_a_value(&mut self, row: &ast::Row) {
        let own = self.own;
        for field in &own.fields {
            let given = row.take.iter().flat_map(|take| &take.value).chain(row.set.iter().map(|set| &set.name));
            if field.nullable || field.default.is_some() || given.into_iter().any(|name| name.text == field.name) {
                continue;
            }
            self.report(
                Diagnostic::error(
                    "field-without-value",
                    row.go.at,
                    format!("a record created here would have no `{}`", field.name),
                )
                .label("neither takes nor sets it")
                .also(field.at, "declared without `default` or `optional`")
                .help(format!(
                    "add \"{}\" to `take`, set it, or declare it `optional` or with a `default`",
                    field.name
                )),
            );
        }
    }

    fn timing(&mut self, row: &ast::Row) -> Option<Timing> {
        if let Some(field) = &row.until {
            if !is_name(&field.text) {
                self.not_a_field(field);
                return None;
            }
            return self.time_field(field).map(Timing::At);
        }
        let after = row.after.as_ref()?;
        match after.text.parse::<Duration>() {
            Ok(length) => {
                let typed = Typed { ty: Type::Duration, nullable: false };
                let expr = Expr { kind: Kind::Const(Value::Duration(length)), typed, at: after.at() };
                Some(Timing::After(Formula { expr, text: after.text.clone() }))
            }
            // No expression that gives a duration starts with a digit.
            Err(_) if is_negative(&after.text) || after.text.starts_with(|c: char| c.is_ascii_digit()) => {
                let (label, help) = if is_negative(&after.text) {
                    (
                        "a timer cannot have run out before the state was entered",
                        "`after` counts from entering the state; for a point in time, use `at` with a time field",
                    )
                } else {
                    (
                        "a number and a unit are needed",
                        "write a number and us, ms, s, m, h or d, as \"30s\" or \"1h30m\"",
                    )
                };
                self.report(
                    Diagnostic::error(
                        "invalid-duration",
                        after.at(),
                        format!("`{}` cannot be a duration here", after.text),
                    )
                    .label(label)
                    .help(help),
                );
                None
            }
            Err(_) => self.formula(after, View::default(), &want(Type::Duration, false)).map(Timing::After),
        }
    }
}

impl Builder<'_> {
    /// `at = "record.due"`, or a sum: a timer follows a field, so that everybody can see what it waits for.
    fn not_a_field(&mut self, at: &Text) {
        let field = at.text.strip_prefix("record.").filter(|name| is_name(name));
        let help = match field {
            Some(name) => format!("write at = \"{name}\""),
            None => "keep the time in a field (type = \"time\"), `set` it in the row that enters the state, and name \
                     that field here\nor count from entering the state: after = \"1h\""
                .to_owned(),
        };
        self.report(
            Diagnostic::error("not-a-time", at.at(), "`at` names a time field; it takes no expression")
                .label("not a field's name")
                .help(help),
        );
    }
}

/// Every check that any expression of the row reads.
fn checks_read(row: &Row) -> Vec<u16> {
    let mut found = Vec::new();
    let mut look = |expr: &Expr| asks::read(expr, &mut found);
    let formulas = row
        .when
        .iter()
        .chain(row.refuse.iter().map(|refuse| &refuse.condition))
        .chain(row.set.iter().map(|(_, formula)| formula))
        .chain(row.spawn.iter().flat_map(|spawn| {
            spawn.condition.iter().chain(&spawn.owner).chain(spawn.fields.iter().map(|(_, formula)| formula))
        }))
        .chain(row.require.iter().chain(&row.cascade).flat_map(|cause| {
            cause.condition.iter().chain([&cause.to]).chain(cause.input.iter().map(|(_, formula)| formula))
        }))
        .chain(row.deliver.iter().flat_map(|deliver| {
            deliver.condition.iter().chain([&deliver.to]).chain(deliver.body.iter().map(|(_, formula)| formula))
        }));
    formulas.for_each(|formula| look(&formula.expr));
    for entry in &row.moves {
        for account in [&entry.from, &entry.to] {
            if let AccountRef::Named(template) = account {
                template.parts.iter().for_each(|part| {
                    if let TemplatePart::Value(expr) = part {
                        look(expr);
                    }
                });
            }
        }
        if let Amount::Formula(formula) = &entry.amount {
            look(&formula.expr);
        }
    }
    found.sort_unstable();
    found
}
