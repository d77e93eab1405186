//! Every record starts whole: some row makes it, and no field that must have a value is left without one.

use super::faults::is_required;
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::EventKind;

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    let lifecycle = survey.lifecycle;
    let rows = lifecycle.rows(EventKind::Create);
    if rows.is_empty()
        && let Some(state) = lifecycle.states.first()
    {
        found.push(
            Diagnostic::error("no-create", state.at, format!("nothing makes a `{}`", lifecycle.name))
                .help(format!("add an `[[on.create]]` row with `go = \"-> {}\"`", state.name)),
        );
    }
    for row in rows {
        for (slot, field) in (0..).zip(&lifecycle.fields) {
            let starts = field.nullable || field.constant || field.default.is_some();
            let set = row.set.iter().any(|(set, _)| *set == slot);
            let given = row.inputs.iter().any(|input| input.take == Some(slot) && is_required(input, row, true));
            if !starts && !set && !given {
                found.push(
                    Diagnostic::error("unset-field", row.at, format!("a record made by this row has no `{}`", field.name))
                        .also(field.at, "must have a value, and has no default")
                        .help(format!("add `{}` to `take` or `set` here, or give the field a `default` or `optional = true`", field.name)),
                );
            }
        }
    }
}
