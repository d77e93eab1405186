//! Accounts that no money ever comes into, and outside ones that nothing names.
//!
//! Money comes from outside accounts alone, and goes where moves take it. Names are compared up to their first
//! placeholder, so two templates that could name the same account count as the same.

use std::collections::BTreeSet;

use super::engine_rows::Studies;
use super::survey::{list, rows};
use crate::diagnostic::Diagnostic;
use crate::expr::Kind;
use crate::model::{AccountRef, Amount, Lifecycle, Move, Template, TemplatePart};
use crate::value::Value;

pub(super) fn check(studies: &Studies, found: &mut Vec<Diagnostic>) {
    let lifecycles: Vec<&Lifecycle> = studies.values().map(|studied| studied.survey.lifecycle).collect();
    let assets: BTreeSet<&str> = lifecycles.iter().filter_map(|lifecycle| lifecycle.asset.as_deref()).collect();
    for asset in assets {
        let sharing: Vec<&Lifecycle> =
            lifecycles.iter().copied().filter(|lifecycle| lifecycle.asset.as_deref() == Some(asset)).collect();
        never_filled(&sharing, found);
        unused_outside(&sharing, found);
    }
}

/// The beginning of an account's name, and whether that is all of it.
type Name<'a> = (&'a str, bool);

/// One move: where it stands, and from where to where. No name is the lifecycle's own hold.
struct Flow<'a> {
    at: usize,
    step: &'a Move,
    from: Option<Name<'a>>,
    to: Option<Name<'a>>,
}

fn flows<'a>(sharing: &[&'a Lifecycle]) -> Vec<Flow<'a>> {
    let mut flows = Vec::new();
    for (at, lifecycle) in sharing.iter().enumerate() {
        for step in rows(lifecycle).flat_map(|(_, row)| &row.moves).filter(|step| !is_nothing(step)) {
            flows.push(Flow { at, step, from: name_of(&step.from), to: name_of(&step.to) });
        }
    }
    flows
}

fn is_nothing(step: &Move) -> bool {
    matches!(&step.amount, Amount::Formula(formula) if matches!(formula.expr.kind, Kind::Const(Value::Int(0))))
}

fn name_of(account: &AccountRef) -> Option<Name<'_>> {
    match account {
        AccountRef::Hold => None,
        AccountRef::Named(template) => Some(beginning(template)),
    }
}

fn beginning(template: &Template) -> Name<'_> {
    match template.parts.as_slice() {
        [TemplatePart::Literal(name)] => (name, true),
        [TemplatePart::Literal(name), ..] => (name, false),
        _ => ("", false),
    }
}

/// Whether both may be the name of one account.
fn may_be_same(a: Name, b: Name) -> bool {
    match (a.1, b.1) {
        (true, true) => a.0 == b.0,
        (true, false) => a.0.starts_with(b.0),
        (false, true) => b.0.starts_with(a.0),
        (false, false) => a.0.starts_with(b.0) || b.0.starts_with(a.0),
    }
}

/// Circles of money that are told of, for each asset; a file with more has been told enough.
const CIRCLES: usize = 16;

/// What money can come into.
struct Filled<'a> {
    names: Vec<Name<'a>>,
    /// By lifecycle.
    holds: Vec<bool>,
}

impl<'a> Filled<'a> {
    fn has(&self, name: Name) -> bool {
        self.names.iter().any(|own| may_be_same(*own, name))
    }

    fn pays(&self, flow: &Flow) -> bool {
        flow.from.map_or_else(|| self.holds[flow.at], |from| self.has(from))
    }

    /// Follows all moves from what is filled. Each round fills one more account or hold, or ends.
    fn spread(&mut self, flows: &[Flow<'a>]) {
        let mut grown = true;
        while std::mem::take(&mut grown) {
            for flow in flows {
                if !self.pays(flow) {
                    continue;
                }
                match flow.to {
                    None => grown |= !std::mem::replace(&mut self.holds[flow.at], true),
                    Some(to) if !self.names.contains(&to) => {
                        self.names.push(to);
                        grown = true;
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn never_filled(sharing: &[&Lifecycle], found: &mut Vec<Diagnostic>) {
    let flows = flows(sharing);
    let outside = sharing.iter().flat_map(|lifecycle| &lifecycle.outside).map(|name| (&**name, true));
    let names = outside.collect::<BTreeSet<_>>().into_iter().collect();
    let mut filled = Filled { names, holds: vec![false; sharing.len()] };
    filled.spread(&flows);
    let mut told: Vec<(usize, Name)> = Vec::new();
    for flow in &flows {
        let (Some(from), AccountRef::Named(template)) = (flow.from, &flow.step.from) else { continue };
        // Where another empty account pays into it, that one is told of.
        let mut paying = flows.iter().filter(|other| other.to.is_some_and(|to| may_be_same(to, from)));
        let first = paying.all(|other| other.from.is_some_and(|other| may_be_same(other, from)));
        if first && !filled.has(from) && !told.contains(&(flow.at, from)) {
            told.push((flow.at, from));
            found.push(unfilled(sharing, flow, template));
        }
    }
    filled.names.extend(told.into_iter().map(|(_, name)| name));
    filled.spread(&flows);
    // What is empty now is paid into, by what has its money from there or from nowhere: told of once for each circle.
    for _ in 0..CIRCLES {
        let empty = || flows.iter().filter(|flow| flow.from.is_some_and(|from| !filled.has(from)));
        let circle = empty().find_map(|flow| Some((flow, Some(gives_back(sharing, &flows, flow.from?)?))));
        let Some((flow, back)) = circle.or_else(|| empty().next().map(|flow| (flow, None))) else { return };
        let (Some(from), AccountRef::Named(template)) = (flow.from, &flow.step.from) else { return };
        found.push(circling(flow, template, back));
        filled.names.push(from);
        filled.spread(&flows);
    }
}

/// A move by which an account's own money comes back to it.
fn gives_back<'a, 'b>(sharing: &[&Lifecycle], flows: &'b [Flow<'a>], name: Name<'a>) -> Option<&'b Flow<'a>> {
    let mut own = Filled { names: vec![name], holds: vec![false; sharing.len()] };
    own.spread(flows);
    flows.iter().find(|flow| flow.to.is_some_and(|to| may_be_same(to, name)) && own.pays(flow))
}

fn unfilled(sharing: &[&Lifecycle], flow: &Flow, template: &Template) -> Diagnostic {
    let looked = list(sharing.iter().map(|lifecycle| format!("`{}`", lifecycle.name)));
    let name = &template.text;
    Diagnostic::warning(
        "never-filled-account",
        flow.step.at,
        format!("nothing here pays into `{name}`, so this runs short"),
    )
    .label(format!("no move of {looked} pays into it"))
    .help(how_to_fill(template))
}

fn circling(flow: &Flow, template: &Template, back: Option<&Flow>) -> Diagnostic {
    let name = &template.text;
    let warning = Diagnostic::warning(
        "never-filled-account",
        flow.step.at,
        format!("no money ever comes into `{name}`, so this runs short"),
    )
    .label("no way of moves leads here from an `outside` account")
    .help(how_to_fill(template));
    match back {
        Some(back) => warning.also(back.step.at, "this only gives back what came from there"),
        None => warning,
    }
}

fn how_to_fill(template: &Template) -> String {
    match template.parts.as_slice() {
        [TemplatePart::Literal(name)] => format!(
            "correct the name, move money there first, check these files together with the one that does, or say that it stands \
             for the world with `outside = [\"{name}\"]`"
        ),
        _ => {
            "correct the name, move money there first (from an `outside` account), or check these files together with \
              the one that does"
                .to_owned()
        }
    }
}

fn unused_outside(sharing: &[&Lifecycle], found: &mut Vec<Diagnostic>) {
    let flows = flows(sharing);
    let is_named = |name: &str| {
        let names = flows.iter().flat_map(|flow| [flow.from, flow.to]).flatten();
        names.into_iter().any(|other| may_be_same((name, true), other))
    };
    for lifecycle in sharing {
        for (name, at) in lifecycle.outside.iter().zip(&lifecycle.outside_at).filter(|(name, _)| !is_named(name)) {
            found.push(
                Diagnostic::warning("unused-outside", *at, format!("no move names `{name}`"))
                    .label("declared, and never used")
                    .help("take it away, or correct its name here or in the moves"),
            );
        }
    }
}
