//! Facts about a record's fields in each state, on every path there.

use std::rc::Rc;

use super::abstract_value::{AbstractShape, AbstractValue};
use super::counters::CounterFields;
use super::env::AbstractEnv;
use super::evaluator::AbstractEvaluator;
use super::transition_choice::{
    env_when_passed_over, env_when_taken, evaluator_for, fields_after_transition, initial_env,
};
use crate::analysis::reachability::{Reachability, indexed_states, transitions_of};
use crate::expr::ExprKind;
use crate::model::{EventDef, EventKind, Lifecycle, StateIndex};
use crate::value::Value;

pub(super) type FieldFacts = Rc<[AbstractValue]>;

/// Expressions evaluated before the propagation gives up and uses the declarations. The largest file in use needs a few
/// thousand.
const MAX_PROPAGATION_STEPS: u64 = 300_000;
/// A state that changed this often falls back to the declarations, since it would keep changing.
const MAX_CHANGES_PER_STATE: u32 = 40;
/// Changes of a state before numbers are widened to the next landmark.
const WIDEN_AFTER_CHANGES: u32 = 3;

/// Facts about one lifecycle, by state.
pub(crate) struct StateFacts {
    /// On entry, as `enter` transitions see them.
    pub(crate) on_entry: Vec<Option<FieldFacts>>,
    /// While the record stays, as all other transitions see them.
    pub(crate) while_staying: Vec<Option<FieldFacts>>,
    /// After a committed internal transition, as `finish` transitions see them.
    after_commit: Vec<Option<FieldFacts>>,
    /// Facts from the declarations alone.
    pub(crate) declared: FieldFacts,
    /// By event: whether another record may send it.
    sent_by_records: Vec<bool>,
}

impl StateFacts {
    /// `is_sent_by_records` tells by name which events other records may send within an operation.
    pub(crate) fn new(reachability: &Reachability, is_sent_by_records: &dyn Fn(&str) -> bool) -> Self {
        let lifecycle = reachability.lifecycle;
        let counters = CounterFields::new(lifecycle);
        let declared: FieldFacts =
            lifecycle.fields.iter().zip(0..).map(|(field, slot)| counters.declared_value(field, slot)).collect();
        let states = lifecycle.states.len();
        let is_sent = |event: &EventDef| event.kind == EventKind::Called && is_sent_by_records(&event.name);
        let mut state_facts = Self {
            on_entry: vec![None; states],
            while_staying: vec![None; states],
            after_commit: vec![None; states],
            declared,
            sent_by_records: lifecycle.events.iter().map(is_sent).collect(),
        };
        let mut propagation = FactPropagation {
            reachability,
            is_sent_by_records,
            landmarks: collect_landmarks(lifecycle),
            changes: vec![0; states],
            steps: 0,
        };
        if !propagation.run_to_fixpoint(&mut state_facts) {
            for (state, _) in indexed_states(lifecycle).filter(|(state, _)| reachability.reachable.contains(*state)) {
                state_facts.on_entry[usize::from(state)] = Some(state_facts.declared.clone());
                state_facts.while_staying[usize::from(state)] = Some(state_facts.declared.clone());
                state_facts.after_commit[usize::from(state)] = Some(state_facts.declared.clone());
            }
        }
        state_facts
    }

    /// Whether some record sends this event to records of the lifecycle.
    pub(crate) fn is_sent_by_record(&self, lifecycle: &Lifecycle, event: &EventDef) -> bool {
        lifecycle.events.iter().zip(&self.sent_by_records).any(|(own, caused)| *caused && own.name == event.name)
    }

    /// Returns the facts that a transition of this kind of event sees in this state.
    pub(crate) fn facts_for(&self, kind: EventKind, state: StateIndex) -> Option<FieldFacts> {
        let table = match kind {
            EventKind::Enter => &self.on_entry,
            EventKind::Finish => &self.after_commit,
            _ => &self.while_staying,
        };
        table.get(usize::from(state)).cloned().flatten()
    }

    /// Like [`facts_for`](Self::facts_for), but includes that another record may send the event after the state was
    /// entered and before its `enter` transitions.
    pub(crate) fn facts_seen_by(
        &self,
        lifecycle: &Lifecycle,
        event: &EventDef,
        state: StateIndex,
    ) -> Option<FieldFacts> {
        let staying = self.facts_for(event.kind, state);
        let number = lifecycle.events.iter().position(|own| own.name == event.name);
        if !number.is_some_and(|number| self.sent_by_records[number]) {
            return staying;
        }
        match (staying, self.on_entry[usize::from(state)].clone()) {
            (Some(rest), Some(entry)) if rest != entry => {
                Some(rest.iter().zip(entry.iter()).map(|(rest, entry)| rest.join(entry)).collect())
            }
            (rest, entry) => rest.or(entry),
        }
    }
}

/// A table of [`StateFacts`].
#[derive(Clone, Copy)]
enum FactTable {
    OnEntry,
    WhileStaying,
    AfterCommit,
}

struct FactPropagation<'a> {
    reachability: &'a Reachability<'a>,
    is_sent_by_records: &'a dyn Fn(&str) -> bool,
    landmarks: Vec<i128>,
    changes: Vec<u32>,
    steps: u64,
}

impl FactPropagation<'_> {
    /// Returns false if it took too many steps.
    fn run_to_fixpoint(&mut self, state_facts: &mut StateFacts) -> bool {
        let lifecycle = self.reachability.lifecycle;
        let mut dirty_states: u64 = 0;
        if let Some(event) = lifecycle.events.iter().find(|event| event.kind == EventKind::Create) {
            for (index, transition) in event.transitions.iter().enumerate() {
                let (Some(to), Some(after)) = (transition.to, self.facts_after(state_facts, event, index, None)) else {
                    continue;
                };
                self.join_into(state_facts, FactTable::OnEntry, to, after, &mut dirty_states);
            }
        }
        while dirty_states != 0 {
            let state = u8::try_from(dirty_states.trailing_zeros()).unwrap_or(0);
            dirty_states &= dirty_states - 1;
            self.propagate_enter(state_facts, state, &mut dirty_states);
            for event in &lifecycle.events {
                for (index, transition) in event.transitions.iter().enumerate() {
                    if self.steps > MAX_PROPAGATION_STEPS {
                        return false;
                    }
                    if event.kind == EventKind::Enter || !self.reachability.can_fire(event.kind, transition, state) {
                        continue;
                    }
                    let Some(after) = self.facts_after(state_facts, event, index, Some(state)) else { continue };
                    let Some(to) = transition.to else {
                        // Another record may send this between the entry and the `enter` transitions.
                        if event.kind == EventKind::Called && (self.is_sent_by_records)(&event.name) {
                            self.join_into(state_facts, FactTable::OnEntry, state, after.clone(), &mut dirty_states);
                        }
                        if event.kind == EventKind::Commit {
                            self.join_into(
                                state_facts,
                                FactTable::AfterCommit,
                                state,
                                after.clone(),
                                &mut dirty_states,
                            );
                        }
                        self.join_into(state_facts, FactTable::WhileStaying, state, after, &mut dirty_states);
                        continue;
                    };
                    self.join_into(state_facts, FactTable::OnEntry, to, after, &mut dirty_states);
                }
            }
        }
        true
    }

    /// Propagates through the `enter` transitions of a state.
    fn propagate_enter(&mut self, state_facts: &mut StateFacts, state: StateIndex, dirty_states: &mut u64) {
        let Some(facts) = state_facts.on_entry[usize::from(state)].clone() else { return };
        let lifecycle = self.reachability.lifecycle;
        let mut remaining = Some(AbstractEnv::new(facts));
        if let Some(event) = lifecycle.events.iter().find(|event| event.kind == EventKind::Enter) {
            for (index, transition) in
                event.transitions.iter().enumerate().filter(|(_, transition)| transition.from.contains(state))
            {
                if let Some(after) = self.facts_after(state_facts, event, index, Some(state)) {
                    if let Some(to) = transition.to {
                        self.join_into(state_facts, FactTable::OnEntry, to, after, dirty_states);
                    } else {
                        // If another record moves it before its `enter` transitions ran, those of the new state may run
                        // twice.
                        if self.can_be_moved_by_records() {
                            self.join_into(state_facts, FactTable::OnEntry, state, after.clone(), dirty_states);
                        }
                        self.join_into(state_facts, FactTable::WhileStaying, state, after, dirty_states);
                    }
                }
                if let Some(env) = remaining.take() {
                    let mut evaluator = AbstractEvaluator::new(self.reachability.definitions, lifecycle);
                    remaining = env_when_passed_over(&mut evaluator, transition, env);
                    self.steps += evaluator.steps + 1;
                }
            }
        }
        if let Some(env) = remaining {
            let facts = env.narrowed_fields();
            self.join_into(state_facts, FactTable::WhileStaying, state, facts, dirty_states);
        }
    }

    /// Whether another record may change this record's state within an operation.
    fn can_be_moved_by_records(&self) -> bool {
        let mut events = self.reachability.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called);
        events.any(|event| {
            (self.is_sent_by_records)(&event.name) && event.transitions.iter().any(|transition| transition.to.is_some())
        })
    }

    /// Joins new facts into one table of a state, and marks the state dirty if that changes them.
    fn join_into(
        &mut self,
        state_facts: &mut StateFacts,
        table: FactTable,
        state: StateIndex,
        facts: Vec<AbstractValue>,
        dirty_states: &mut u64,
    ) {
        let StateFacts { on_entry, while_staying, after_commit, declared, .. } = state_facts;
        let table = match table {
            FactTable::OnEntry => on_entry,
            FactTable::WhileStaying => while_staying,
            FactTable::AfterCommit => after_commit,
        };
        let current = &mut table[usize::from(state)];
        if let Some(joined) = self.join_if_new(current.as_ref(), facts, state, declared) {
            *current = Some(joined);
            *dirty_states |= 1 << state;
        }
    }

    /// Joins the facts; `None` if nothing changes.
    fn join_if_new(
        &mut self,
        old: Option<&FieldFacts>,
        new: Vec<AbstractValue>,
        state: StateIndex,
        declared: &FieldFacts,
    ) -> Option<FieldFacts> {
        let Some(old) = old else { return Some(new.into()) };
        let changes = &mut self.changes[usize::from(state)];
        let joined: Vec<AbstractValue> = old.iter().zip(&new).map(|(old, new)| old.join(new)).collect();
        if joined[..] == old[..] {
            return None;
        }
        *changes += 1;
        if *changes > MAX_CHANGES_PER_STATE {
            return (old[..] != declared[..]).then(|| declared.clone());
        }
        let must_widen = *changes > WIDEN_AFTER_CHANGES;
        let widened = joined.into_iter().enumerate().map(|(slot, value)| {
            if must_widen && value != old[slot] { self.widen(&old[slot], value, &declared[slot]) } else { value }
        });
        Some(widened.collect())
    }

    /// Widens growing numbers to the next number in the file, and finally to the declared bound.
    fn widen(&self, old: &AbstractValue, new: AbstractValue, declared: &AbstractValue) -> AbstractValue {
        let shape = match (&old.shape, new.shape, &declared.shape) {
            (AbstractShape::Number(a, b), AbstractShape::Number(c, d), AbstractShape::Number(least, most)) => {
                let low = self
                    .landmarks
                    .iter()
                    .rev()
                    .find(|landmark| **landmark <= c)
                    .map_or(*least, |mark| *mark.max(least));
                let high = self.landmarks.iter().find(|landmark| **landmark >= d).map_or(*most, |mark| *mark.min(most));
                AbstractShape::Number(if c < *a { low.min(c) } else { c }, if d > *b { high.max(d) } else { d })
            }
            (AbstractShape::Double(..) | AbstractShape::List { .. }, new, declared) if old.shape != new => {
                declared.clone()
            }
            (AbstractShape::Text { allowed_values: None, size, .. }, new @ AbstractShape::Text { .. }, declared) => {
                match &new {
                    AbstractShape::Text { size: grown, .. } if grown != size => declared.clone(),
                    _ => new,
                }
            }
            (_, new, _) => new,
        };
        AbstractValue { may_be_null: new.may_be_null, shape }
    }

    /// Returns the fields after the transition from this state; `None` if it cannot be taken.
    fn facts_after(
        &mut self,
        state_facts: &StateFacts,
        event: &EventDef,
        index: usize,
        from: Option<StateIndex>,
    ) -> Option<Vec<AbstractValue>> {
        let lifecycle = self.reachability.lifecycle;
        let transition = &event.transitions[index];
        let mut evaluator = evaluator_for(self.reachability, event, transition, None);
        let env = initial_env(state_facts, lifecycle, event, transition, from, &evaluator.input_values)?;
        let env = env_when_taken(&mut evaluator, event, index, from, env, self.reachability.ignores_shadowing());
        let facts = env.map(|env| fields_after_transition(&mut evaluator, state_facts, transition, &env));
        // Copying a field costs about an eighth of evaluating an expression.
        self.steps += evaluator.steps + 1 + lifecycle.fields.len() as u64 / 8;
        facts
    }
}

/// Collects the numbers in the file, where growing values are likely to stop.
fn collect_landmarks(lifecycle: &Lifecycle) -> Vec<i128> {
    let mut landmarks = vec![0];
    let mut add_landmark = |value: i128| landmarks.extend([value - 1, value, value + 1]);
    for field in &lifecycle.fields {
        if let Some((least, most)) = field.bounds.int {
            add_landmark(i128::from(least));
            add_landmark(i128::from(most));
        }
        if let Some(Value::Int(value)) = field.default {
            add_landmark(i128::from(value));
        }
    }
    for (_, transition) in transitions_of(lifecycle) {
        super::walk::for_each_transition_expr(transition, &mut |expr| {
            if let ExprKind::Const(Value::Int(value)) = &expr.kind {
                add_landmark(i128::from(*value));
            }
        });
    }
    landmarks.sort_unstable();
    landmarks.dedup();
    // At most 16, so that a state does not use up its changes on them.
    let step = landmarks.len().div_ceil(16).max(1);
    landmarks.into_iter().step_by(step).collect()
}
