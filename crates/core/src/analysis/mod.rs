//! Static analysis of lifecycles: proves properties of every possible run. One property per file.
//!
//! The analysis works on the compiled model. It overestimates what is possible, so that what it accepts is sound. What
//! it cannot decide is a warning whose code starts with `unproven-`.

mod abstract_eval;
mod accounts;
mod callers;
mod dead_transitions;
mod declarations;
mod delivery_addresses;
mod engine_transitions;
mod enter_cycles;
mod event_actions;
mod guard_cases;
mod hold_balance;
mod lease_coverage;
mod never_leased_states;
mod orphans;
mod outside_declarations;
mod reachability;
mod retries;
mod shadowing;
mod single_effect;
mod states;
mod termination;
mod timer_cycles;
mod unsatisfiable_callers;
mod unset_timers;

use std::collections::HashSet;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::model::Definitions;

use abstract_eval::StateFacts;
use engine_transitions::{AnalyzedLifecycle, AnalyzedLifecycles};
use reachability::Reachability;

/// Returns the errors and warnings about these lifecycles.
pub fn analyze(definitions: &Definitions) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let analyses = analyze_all(definitions);
    for analyzed in analyses.values() {
        let (reachability, state_facts) = (&analyzed.reachability, &analyzed.state_facts);
        states::analyze(reachability, &mut diagnostics);
        orphans::analyze(reachability, state_facts, &mut diagnostics);
        lease_coverage::analyze(reachability, state_facts, &mut diagnostics);
        single_effect::analyze(reachability, &mut diagnostics);
        enter_cycles::analyze(reachability, &mut diagnostics);
        hold_balance::analyze(reachability, &mut diagnostics);
        callers::analyze(reachability, &mut diagnostics);
        never_leased_states::analyze(reachability, &mut diagnostics);
        shadowing::analyze(reachability, state_facts, &mut diagnostics);
        retries::analyze(reachability, state_facts, &mut diagnostics);
        unset_timers::analyze(reachability, state_facts, &mut diagnostics);
        timer_cycles::analyze(reachability, state_facts, &mut diagnostics);
        declarations::analyze(reachability, &mut diagnostics);
        delivery_addresses::analyze(reachability, &mut diagnostics);
    }
    engine_transitions::analyze(&analyses, &mut diagnostics);
    event_actions::analyze(&analyses, &mut diagnostics);
    outside_declarations::analyze(&analyses, &mut diagnostics);
    accounts::analyze(&analyses, &mut diagnostics);
    // Last, because on files that cost too much work, a missing warning is better than a missing proof.
    for analyzed in analyses.values() {
        dead_transitions::analyze(&analyzed.reachability, &analyzed.state_facts, &mut diagnostics);
    }
    diagnostics.sort_by(|a, b| (a.span, a.severity, a.code).cmp(&(b.span, b.severity, b.code)));
    diagnostics
}

fn analyze_all(definitions: &Definitions) -> AnalyzedLifecycles<'_> {
    let sent_events = event_actions::collect_sent_events(definitions);
    let analyze_one = |name: &Arc<str>, lifecycle| {
        let reachability = Reachability::new(definitions, lifecycle);
        let is_sent = |event: &str| sent_events.contains(&(Arc::clone(name), Arc::from(event)));
        let state_facts = StateFacts::new(&reachability, &is_sent);
        (Arc::clone(name), AnalyzedLifecycle { reachability, state_facts })
    };
    definitions.lifecycles.iter().map(|(name, lifecycle)| analyze_one(name, lifecycle)).collect()
}

/// Events that records send to each other: the target lifecycle and the event.
type SentEvents = HashSet<(Arc<str>, Arc<str>)>;
