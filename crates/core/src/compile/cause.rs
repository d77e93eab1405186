//! What a row causes elsewhere: new records, events for others, messages to the outside.

use std::sync::Arc;

use super::lifecycle::{Builder, View, want};
use super::shape::RowShape;
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::Want;
use crate::model::{Cause, Deliver, EventKind, Formula, Spawn, SpawnPayload, Type};
use crate::near;
use crate::syntax::ast::{self, Given, Text};

/// Why a row of the other lifecycle does not take what is given.
enum Misfit {
    /// It knows no input of this name (an index into what is given).
    Stranger(usize),
    /// It needs an input that is not given.
    Missing(Arc<str>),
    /// An expression does not fit.
    Expression(Vec<Diagnostic>),
}

type Fitted = Vec<(Arc<str>, Formula)>;

impl Builder<'_> {
    pub(super) fn spawns(&mut self, entries: &[ast::Spawn], view: View) -> Vec<Spawn> {
        let mut spawns = Vec::new();
        for entry in entries {
            let condition = self.condition(entry.condition.as_ref(), view);
            let owner = entry.owner.as_ref().and_then(|owner| self.formula(owner, view, &want(Type::Text, false)));
            if entry.lifecycle.text.starts_with("onceward.") && !self.own.name.starts_with("onceward.") {
                self.report(
                    Diagnostic::error(
                        "reserved-lifecycle",
                        entry.lifecycle.at(),
                        format!("`{}` is not spawned by hand", entry.lifecycle.text),
                    )
                    .label("built in")
                    .help("use `deliver = [{ to, body }]` to send a message"),
                );
                continue;
            }
            if !self.declarer().lifecycle(&entry.lifecycle) {
                continue;
            }
            self.payload_fits(entry);
            let target = [entry.lifecycle.text.clone()];
            let Some(fields) = self.fitted(&target, "create", &entry.fields, view, entry.at) else { continue };
            spawns.push(Spawn {
                lifecycle: entry.lifecycle.text.clone(),
                condition,
                fields,
                owner,
                payload: if entry.same_payload { SpawnPayload::Same } else { SpawnPayload::None },
                at: entry.at,
            });
        }
        spawns
    }

    /// A lifecycle that wants a payload must get one that fits.
    fn payload_fits(&mut self, entry: &ast::Spawn) {
        let world = self.world;
        let Some(wanted) = world.payloads.get(&entry.lifecycle.text) else { return };
        let own = world.payloads.get(&self.source.lifecycle.text).filter(|_| entry.same_payload);
        let fits = match own {
            None => wanted.min == 0,
            Some(own) => own.min >= wanted.min && own.max <= wanted.max,
        };
        if !fits {
            let (message, help) = if own.is_some() {
                (
                    format!("this record's payload may not fit {}", entry.lifecycle.text),
                    "give both lifecycles the same [payload] bounds",
                )
            } else {
                (
                    format!("{} needs a payload", entry.lifecycle.text),
                    "add payload = \"same\" to pass this record's own on",
                )
            };
            self.report(Diagnostic::error("payload-mismatch", entry.at, message).label("this spawn").help(help));
        }
    }

    fn condition(&mut self, condition: Option<&Text>, view: View) -> Option<Formula> {
        condition.and_then(|condition| self.formula(condition, view, &want(Type::Bool, false)))
    }

    pub(super) fn causes(&mut self, entries: &[ast::Cause], view: View) -> Vec<Cause> {
        let mut causes = Vec::new();
        for entry in entries {
            let condition = self.condition(entry.condition.as_ref(), view);
            if EventKind::of(&entry.event.text) != EventKind::Called {
                self.report(
                    Diagnostic::error(
                        "engine-event",
                        entry.event.at(),
                        format!("`{}` is the engine's own event", entry.event.text),
                    )
                    .label("no record can send it")
                    .help("send an event of another name; to make a record, use `spawn`"),
                );
                continue;
            }
            let Some(to) = self.formula(&entry.to, view, &Want::Targets) else { continue };
            let targets = match &to.expr.typed.ty {
                Type::Ref(targets) => targets.clone(),
                Type::List(of) => match &**of {
                    Type::Ref(targets) => targets.clone(),
                    _ => [].into(),
                },
                _ => [].into(),
            };
            if !targets.iter().all(|target| self.declares(target, &entry.event)) {
                continue;
            }
            let Some(input) = self.fitted(&targets, &entry.event.text, &entry.input, view, entry.at) else { continue };
            causes.push(Cause { condition, to, event: entry.event.text.clone(), input, at: entry.at });
        }
        causes
    }

    fn declares(&mut self, target: &Arc<str>, event: &Text) -> bool {
        let world = self.world;
        let Some(shapes) = world.shapes.get(target) else { return false };
        let known = shapes.contains_key(&event.text);
        if !known {
            let events = shapes.keys().map(|name| &**name).filter(|name| EventKind::of(name) == EventKind::Called);
            let help = near::advice(self.told(), &event.text, "events it knows", events.collect::<Vec<_>>());
            self.report(
                Diagnostic::error("unknown-event", event.at(), format!("{target} knows no event `{}`", event.text))
                    .label("nobody answers it there")
                    .help(help),
            );
        }
        known
    }

    pub(super) fn deliveries(&mut self, entries: &[ast::Deliver], view: View) -> Vec<Deliver> {
        let mut deliveries = Vec::new();
        for entry in entries {
            let condition = self.condition(entry.condition.as_ref(), view);
            let to = self.formula(&entry.to, view, &want(Type::Text, false));
            let mut body = Vec::new();
            for given in &entry.body {
                if let Some(formula) = self.formula(&given.value, view, &Want::Any) {
                    body.push((given.name.text.clone(), formula));
                }
            }
            if let Some(to) = to {
                deliveries.push(Deliver { condition, to, body, at: entry.at });
            }
        }
        deliveries
    }

    /// What is given, typed by the rows that will take it: in each target at least one row must take all of it.
    fn fitted(&mut self, targets: &[Arc<str>], event: &str, given: &[Given], view: View, at: Span) -> Option<Fitted> {
        let world = self.world;
        let mut first = None;
        if self.out.len() >= bounds::DIAGNOSTICS {
            return None;
        }
        for target in targets {
            let rows = world.shapes.get(target).and_then(|shapes| shapes.get(event)).map_or(&[][..], Vec::as_slice);
            let mut misfits = Vec::new();
            let mut fits = None;
            for row in distinct(rows) {
                match self.fit(row, given, view) {
                    Ok(formulas) => {
                        fits = Some(formulas);
                        break;
                    }
                    Err(misfit) => misfits.push(misfit),
                }
            }
            let Some(formulas) = fits else {
                self.no_row_fits(target, event, given, misfits, at);
                return None;
            };
            first.get_or_insert(formulas);
        }
        first
    }

    fn fit(&self, row: &RowShape, given: &[Given], view: View) -> Result<Fitted, Misfit> {
        let mut formulas = Vec::new();
        let mut wrong = Vec::new();
        for (index, entry) in given.iter().enumerate() {
            let input =
                row.inputs.iter().find(|input| input.field.name == entry.name.text).ok_or(Misfit::Stranger(index))?;
            let wanted = want(input.field.ty.clone(), input.field.nullable);
            match self.try_expr(&entry.value.text, entry.value.place, view, &wanted) {
                Ok(expr) => formulas.push((entry.name.text.clone(), Formula { expr, text: entry.value.text.clone() })),
                Err(diagnostics) => wrong.extend(diagnostics),
            }
        }
        let missing = row
            .inputs
            .iter()
            .zip(&row.required)
            .find(|(input, required)| **required && !given.iter().any(|entry| entry.name.text == input.field.name));
        if let Some((input, _)) = missing {
            return Err(Misfit::Missing(input.field.name.clone()));
        }
        if wrong.is_empty() { Ok(formulas) } else { Err(Misfit::Expression(wrong)) }
    }

    /// Tell of the row that came closest: expressions that do not fit, then a missing input, then a stranger.
    fn no_row_fits(&mut self, target: &Arc<str>, event: &str, given: &[Given], mut misfits: Vec<Misfit>, at: Span) {
        misfits.sort_by_key(|misfit| match misfit {
            Misfit::Expression(_) => 0,
            Misfit::Missing(_) => 1,
            Misfit::Stranger(_) => 2,
        });
        let message = format!("no row of {target} under `{event}` takes this");
        match misfits.into_iter().next() {
            Some(Misfit::Expression(diagnostics)) => self.tell(diagnostics),
            Some(Misfit::Missing(name)) => self.report(
                Diagnostic::error("no-row-fits", at, message)
                    .label(format!("`{name}` is not given"))
                    .help(format!("give `{name}`; that row cannot do without it")),
            ),
            Some(Misfit::Stranger(index)) => {
                let name = &given[index].name;
                let world = self.world;
                let rows = world.shapes.get(target).and_then(|shapes| shapes.get(event)).into_iter().flatten();
                let mut known: Vec<&str> =
                    rows.flat_map(|row| row.inputs.iter().map(|input| &*input.field.name)).collect();
                known.sort_unstable();
                known.dedup();
                let help = near::advice(self.told(), &name.text, "inputs its rows take", known);
                self.report(
                    Diagnostic::error("no-row-fits", name.at(), message)
                        .label(format!("`{}` is not taken", name.text))
                        .help(format!("{help}\none row must take all that is given")),
                );
            }
            None => self.report(
                Diagnostic::error("no-row-fits", at, message)
                    .label("it has no such row at all")
                    .help(format!("add a row under [[on.{event}]] to {target}")),
            ),
        }
    }
}

/// Rows that differ in what they take. Each is tried with every expression that is given, so there is a bound; more
/// than so many shapes of one event no person has written yet.
fn distinct(rows: &[RowShape]) -> Vec<&RowShape> {
    const TRIED: usize = 32;
    let mut shapes: Vec<&RowShape> = Vec::new();
    for row in rows {
        let same = |other: &&RowShape| {
            other.required == row.required
                && other.inputs.len() == row.inputs.len()
                && other.inputs.iter().zip(&row.inputs).all(|(a, b)| {
                    a.field.name == b.field.name && a.field.ty == b.field.ty && a.field.nullable == b.field.nullable
                })
        };
        if !shapes.iter().any(same) {
            shapes.push(row);
        }
        if shapes.len() == TRIED {
            break;
        }
    }
    shapes
}
