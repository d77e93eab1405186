//! Proofs about lifecycles: what can never go wrong, whatever happens. One proof a file.
//!
//! Everything is decided on the compiled model. Each proof counts too much as possible rather than too little, so that
//! what is called sound is sound; what cannot be known is said as a warning whose code begins with `unproven-`.

mod accounts;
mod admits;
mod bounded;
mod budgets;
mod callers;
mod cases;
mod causes;
mod dead_rows;
mod declarations;
mod effects;
mod engine_rows;
mod enter_cycles;
mod faults;
mod holds;
mod leased;
mod money;
mod never_from;
mod orphans;
mod prospects;
mod retries;
mod shadowing;
mod states;
mod survey;
mod timer_circles;
mod timers;
mod yields;

use std::collections::HashSet;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::model::Definitions;

use engine_rows::{Studied, Studies};
use faults::Flow;
use survey::Survey;

/// What is wrong with these lifecycles, and what cannot be known about them.
pub fn check(definitions: &Definitions) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let studies = study(definitions);
    for studied in studies.values() {
        let (survey, flow) = (&studied.survey, &studied.flow);
        states::check(survey, &mut found);
        orphans::check(survey, flow, &mut found);
        leased::check(survey, flow, &mut found);
        effects::check(survey, &mut found);
        enter_cycles::check(survey, &mut found);
        holds::check(survey, &mut found);
        callers::check(survey, &mut found);
        never_from::check(survey, &mut found);
        shadowing::check(survey, flow, &mut found);
        retries::check(survey, flow, &mut found);
        timers::check(survey, flow, &mut found);
        timer_circles::check(survey, flow, &mut found);
        declarations::check(survey, &mut found);
    }
    engine_rows::check(&studies, &mut found);
    causes::check(&studies, &mut found);
    money::check(&studies, &mut found);
    accounts::check(&studies, &mut found);
    // Last, because a warning less is better than a proof less where a file is too much work.
    for studied in studies.values() {
        dead_rows::check(&studied.survey, &studied.flow, &mut found);
        yields::check(&studied.survey, &studied.flow, &mut found);
    }
    found.sort_by(|a, b| (a.at, a.severity, a.code).cmp(&(b.at, b.severity, b.code)));
    found
}

/// Whether a warning says that something cannot be known, rather than that something looks wrong.
pub fn is_unproven(diagnostic: &Diagnostic) -> bool {
    diagnostic.code.starts_with("unproven-") && diagnostic.severity == crate::diagnostic::Severity::Warning
}

fn study(definitions: &Definitions) -> Studies<'_> {
    let sent = causes::sent(definitions);
    let study = |name: &Arc<str>, lifecycle| {
        let survey = Survey::new(definitions, lifecycle);
        let caused = |event: &str| sent.contains(&(Arc::clone(name), Arc::from(event)));
        let flow = Flow::new(&survey, &caused);
        (Arc::clone(name), Studied { survey, flow })
    };
    definitions.lifecycles.iter().map(|(name, lifecycle)| study(name, lifecycle)).collect()
}

/// Events that records send one another: the lifecycle and the event.
type Sent = HashSet<(Arc<str>, Arc<str>)>;
