//! Whether a spawned record is sure to be made, and by which rows.

use super::super::faults::{Env, Known, Sent, is_required, judge_of, misfit, start};
use super::Studied;
use crate::model::{By, EventKind, Row};

/// The rows that may take what is sent.
#[derive(Default)]
pub(super) struct Taking {
    /// With what is known of their inputs.
    pub(super) rows: Vec<(usize, Vec<Known>)>,
    /// Why perhaps none does.
    pub(super) unsure: Option<String>,
}

/// What was sent, as a row's inputs.
pub(super) struct Fit {
    pub(super) given: Vec<Known>,
    /// Why it may not fit all the same.
    pub(super) unsure: Option<String>,
}

/// Follow the create rows in order, as the engine will.
pub(super) fn rows_taking(target: &Studied, sent: &Sent) -> Taking {
    let mut taking = Taking::default();
    let mut why = None;
    let lifecycle = target.survey.lifecycle;
    let Some(event) = lifecycle.events.iter().find(|event| event.kind == EventKind::Create) else {
        taking.unsure = Some(format!("`{}` has no `create` row", lifecycle.name));
        return taking;
    };
    for (at, row) in event.rows.iter().enumerate() {
        if !super::closure::may_be_caused(row) {
            continue;
        }
        let Some(fit) = fitted(row, sent, true) else {
            why.get_or_insert_with(|| misses(row, sent));
            continue;
        };
        let mut judge = judge_of(&target.survey, event, row, Some(&fit.given));
        let env = start(&target.flow, lifecycle, event, row, None, &fit.given);
        // Whether an earlier row was passed over is not asked: each may be the one.
        let Some((holds, fails)) = env.map(|env| ways(&mut judge, row, &env)) else { continue };
        target.survey.spend(judge.steps);
        if !holds {
            continue;
        }
        taking.rows.push((at, fit.given));
        let admitted = row.by.is_empty() || row.by.contains(&By::Record);
        match fit.unsure {
            None if admitted && !fails && row.require.is_empty() => return taking,
            None if !admitted => why.get_or_insert_with(|| "its `create` row does not admit `record`".to_owned()),
            None => why.get_or_insert_with(|| "no `create` row is sure to hold".to_owned()),
            Some(unsure) => why.get_or_insert(unsure),
        };
    }
    taking.unsure = Some(why.unwrap_or_else(|| format!("no `create` row of `{}` takes it", lifecycle.name)));
    taking
}

/// Whether the row's guard may hold, and whether it may not.
fn ways(judge: &mut super::super::faults::Judge, row: &Row, env: &Env) -> (bool, bool) {
    match &row.when {
        Some(when) => {
            let (yes, no) = judge.split(&when.expr, env);
            (yes.is_some(), no.is_some())
        }
        None => (true, false),
    }
}

/// Nothing where the row surely does not take it.
pub(super) fn fitted(row: &Row, sent: &Sent, creating: bool) -> Option<Fit> {
    let known_name = |name: &str| row.inputs.iter().any(|input| *input.field.name == *name);
    if sent.iter().any(|(name, _)| !known_name(name)) {
        return None;
    }
    let mut fit = Fit { given: Vec::new(), unsure: None };
    for input in &row.inputs {
        let field = &input.field;
        match sent.iter().find(|(name, _)| *name == field.name) {
            Some((name, value)) => {
                let declared = Known::of_type(&field.ty, &field.bounds, field.nullable);
                let fits = value.meet(&declared);
                if fits.is_impossible() && !value.is_impossible() {
                    return None;
                }
                if let Some(why) = misfit(value, &field.ty, &field.bounds, field.nullable) {
                    fit.unsure.get_or_insert_with(|| format!("`{name}` {why}"));
                }
                fit.given.push(fits);
            }
            None if is_required(input, row, creating) => return None,
            None => fit.given.push(match (&input.take, &field.default) {
                (None, Some(default)) => Known::of_value(default),
                _ => Known::only_null(),
            }),
        }
    }
    Some(fit)
}

fn misses(row: &Row, sent: &Sent) -> String {
    let unknown = sent.iter().find(|(name, _)| !row.inputs.iter().any(|input| input.field.name == *name));
    if let Some((name, _)) = unknown {
        return format!("its `create` row does not take `{name}`");
    }
    let missing = row
        .inputs
        .iter()
        .find(|input| is_required(input, row, true) && !sent.iter().any(|(name, _)| *name == input.field.name));
    match missing {
        Some(input) => format!("`{}` is missing", input.field.name),
        None => "a value never fits its `create` row".to_owned(),
    }
}
