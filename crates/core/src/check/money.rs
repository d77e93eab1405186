//! Money: accounts that stand for the world are to be seen as such from every file that names them.

use super::engine_rows::Studies;
use super::survey::rows;
use crate::diagnostic::Diagnostic;
use crate::model::{AccountRef, Lifecycle, TemplatePart};

pub(super) fn check(studies: &Studies, found: &mut Vec<Diagnostic>) {
    for studied in studies.values() {
        let lifecycle = studied.survey.lifecycle;
        for (_, row) in rows(lifecycle) {
            for step in &row.moves {
                for account in [&step.from, &step.to] {
                    let Some(name) = literal(account) else { continue };
                    let here = lifecycle.outside.iter().any(|outside| **outside == *name);
                    if let (false, Some(other)) = (here, outside_in(studies, lifecycle, name)) {
                        found.push(
                            Diagnostic::warning(
                                "outside-elsewhere",
                                step.at,
                                format!("`{name}` may go below zero, as `{}` says", other.name),
                            )
                            .label("not to be seen from this file")
                            .help(format!("add `outside = [\"{name}\"]` here too")),
                        );
                    }
                }
            }
        }
    }
}

fn literal(account: &AccountRef) -> Option<&str> {
    match account {
        AccountRef::Hold => None,
        AccountRef::Named(template) => match template.parts.as_slice() {
            [TemplatePart::Literal(name)] => Some(name),
            _ => None,
        },
    }
}

fn outside_in<'a>(studies: &'a Studies, lifecycle: &Lifecycle, account: &str) -> Option<&'a Lifecycle> {
    lifecycle.asset.as_ref()?;
    studies
        .values()
        .map(|studied| studied.survey.lifecycle)
        .find(|other| other.asset == lifecycle.asset && other.outside.iter().any(|name| **name == *account))
}
