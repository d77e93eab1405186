//! Generates the transitions of a random lifecycle, enough for every event.

use super::actions::ActionGenerator;
use super::guard::{self, ExpressionContext};
use super::plan::{LifecyclePlan, StateKind, StatePlan};
use super::transition_text::TransitionText;
use crate::random::Rng;

struct TransitionGenerator<'a> {
    rng: &'a mut Rng,
    plan: &'a LifecyclePlan,
    plans: &'a [LifecyclePlan],
    transitions: Vec<TransitionText>,
}

pub(super) fn random_transitions(rng: &mut Rng, plan: &LifecyclePlan, plans: &[LifecyclePlan]) -> Vec<TransitionText> {
    let mut generator = TransitionGenerator { rng, plan, plans, transitions: Vec::new() };
    generator.add_create();
    generator.add_work();
    generator.add_timers();
    generator.add_enter();
    generator.add_called_event("told", true);
    generator.add_called_event("asked", false);
    for event in &plan.events {
        generator.add_called_event(event, false);
    }
    generator.transitions
}

impl<'a> TransitionGenerator<'a> {
    /// Returns a state that a transition may lead to, from a state or at creation.
    fn pick_target(&mut self, from: Option<&StatePlan>) -> &'a StatePlan {
        let careless = self.rng.percent(self.plan.careless_percent);
        let late = from.is_some_and(|state| state.after_commit) && !careless;
        let fits = |state: &&StatePlan| {
            state.kind != StateKind::Leased
                && (!late || state.after_commit)
                && (from.is_some() || state.kind != StateKind::Final)
        };
        let fitting: Vec<&'a StatePlan> = self.plan.states.iter().filter(fits).collect();
        let last = self.plan.states.len() - 1;
        self.rng.pick(&fitting).copied().unwrap_or(&self.plan.states[last])
    }

    /// Returns a state that a timer may lead to: any other state.
    fn pick_other_state(&mut self, from: &StatePlan) -> &'a StatePlan {
        for _ in 0..20 {
            let to = self.pick_target(Some(from));
            if to.name != from.name {
                return to;
            }
        }
        &self.plan.states[self.plan.states.len() - 1]
    }

    fn action_generator(
        &self,
        context: ExpressionContext,
        must_succeed: bool,
        to: Option<&StatePlan>,
    ) -> ActionGenerator<'a> {
        ActionGenerator {
            plan: self.plan,
            plans: self.plans,
            context,
            must_succeed,
            into_final: to.is_some_and(|state| state.kind == StateKind::Final),
            in_final: false,
        }
    }

    fn push_transition(
        &mut self,
        mut transition: TransitionText,
        context: ExpressionContext,
        must_succeed: bool,
        to: Option<&StatePlan>,
        guarded: bool,
    ) {
        if guarded && transition.when.is_none() {
            transition.when = Some(guard::random_condition(self.rng, self.plan, context));
        }
        self.action_generator(context, must_succeed, to).add_actions(self.rng, &mut transition);
        self.transitions.push(transition);
    }

    fn add_create(&mut self) {
        let take: Vec<&'static str> = self.pick_input_fields(80).into_iter().chain(self.ref_fields()).collect();
        if self.rng.percent(30) {
            let to = self.pick_target(None);
            let mut transition = TransitionText::new("create", format!("-> {}", to.name));
            transition.take.clone_from(&take);
            transition.by = match self.rng.below(3) {
                0 => vec!["operator"],
                1 => vec!["friend"],
                _ => Vec::new(),
            };
            let guarded = transition.by.is_empty();
            self.push_transition(
                transition,
                ExpressionContext::Create,
                self.plan.create_never_refused,
                Some(to),
                guarded,
            );
        }
        let to = self.pick_target(None);
        let mut transition = TransitionText::new("create", format!("-> {}", to.name));
        transition.take = take;
        if !self.plan.create_never_refused && self.rng.percent(20) {
            transition.by = vec!["owner", "record"];
        }
        self.push_transition(transition, ExpressionContext::Create, self.plan.create_never_refused, Some(to), false);
    }

    /// Returns fields that the caller may give.
    fn pick_input_fields(&mut self, percent: u64) -> Vec<&'static str> {
        let fields = self.plan.fields;
        let all = [
            (fields.bounded, "bounded"),
            (fields.flag, "flag"),
            (fields.color, "colour"),
            (fields.maybe, "maybe"),
            (fields.moment, "moment"),
            (fields.word, "word"),
            (fields.delay, "delay"),
        ];
        all.iter().filter(|(there, _)| *there && self.rng.percent(percent)).map(|(_, name)| *name).collect()
    }

    fn ref_fields(&self) -> Vec<&'static str> {
        let all = [
            (self.plan.ref_target.is_some(), "other"),
            (self.plan.refs_target.is_some(), "many"),
            (self.plan.has_natural_key, "handle"),
        ];
        all.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect()
    }

    fn add_work(&mut self) {
        let (ready, leased) = (self.plan.states_of_kind(StateKind::Ready), self.plan.states_of_kind(StateKind::Leased));
        for state in &ready {
            for to in leased.iter().skip(1) {
                let row = TransitionText::new("lease", format!("{} -> {}", state.name, to.name));
                self.push_transition(row, ExpressionContext::Engine, true, Some(to), true);
            }
            if let Some(to) = leased.first() {
                let row = TransitionText::new("lease", format!("{} -> {}", state.name, to.name));
                self.push_transition(row, ExpressionContext::Engine, true, Some(to), false);
            }
        }
        for state in leased {
            self.add_commit(state);
            self.add_fail(state);
        }
    }

    fn add_commit(&mut self, state: &'a StatePlan) {
        let behind: Vec<&StatePlan> = self.plan.states.iter().filter(|state| state.after_commit).collect();
        let mut stays = false;
        let count = 1 + self.rng.below(2);
        for number in 1..=count {
            let (last, stay) = (number == count, self.rng.percent(50));
            let to = self.rng.pick(&behind).copied().filter(|_| !stay);
            let go = to.map_or_else(|| state.name.clone(), |to| format!("{} -> {}", state.name, to.name));
            stays |= to.is_none();
            self.push_transition(TransitionText::new("commit", go), ExpressionContext::Commit, last, to, !last);
        }
        if let (true, Some(to)) = (stays, self.rng.pick(&behind).copied()) {
            let row = TransitionText::new("finish", format!("{} -> {}", state.name, to.name));
            self.push_transition(row, ExpressionContext::Engine, true, Some(to), false);
        }
    }

    fn add_fail(&mut self, state: &'a StatePlan) {
        let count = 1 + self.rng.below(3);
        for number in 1..=count {
            let to = self.pick_target(Some(state));
            let forgotten = self.rng.percent(self.plan.careless_percent);
            let row = TransitionText::new("fail", format!("{} -> {}", state.name, to.name));
            self.push_transition(row, ExpressionContext::Fail, true, Some(to), number < count || forgotten);
        }
    }

    fn add_timers(&mut self) {
        for state in &self.plan.states {
            let (needed, wanted) = match state.kind {
                StateKind::Timed => (!self.rng.percent(self.plan.careless_percent), self.rng.percent(30)),
                StateKind::Final => (false, false),
                StateKind::Leased => (false, self.rng.percent(15)),
                StateKind::Rest | StateKind::Ready => (false, self.rng.percent(20)),
            };
            if wanted {
                let to = self.pick_target(Some(state)).clone();
                let stays = self.rng.percent(20);
                let go = if stays { state.name.clone() } else { format!("{} -> {}", state.name, to.name) };
                let mut transition = TransitionText::new("time", go);
                if self.plan.fields.moment && self.rng.percent(60) {
                    transition.at = Some("moment");
                } else {
                    transition.after = Some(guard::random_delay(self.rng, self.plan));
                }
                let guarded = self.rng.percent(60);
                self.push_transition(
                    transition,
                    ExpressionContext::Engine,
                    true,
                    Some(&to).filter(|_| !stays),
                    guarded,
                );
            }
            if needed {
                let to = self.pick_other_state(state).clone();
                let mut transition = TransitionText::new("time", format!("{} -> {}", state.name, to.name));
                transition.after = Some(guard::random_delay(self.rng, self.plan));
                self.push_transition(transition, ExpressionContext::Engine, true, Some(&to), false);
            }
        }
    }

    /// Adds enter transitions, only to states later in the file, so that there are no cycles.
    fn add_enter(&mut self) {
        let states = &self.plan.states;
        for (index, state) in states.iter().enumerate() {
            if state.kind == StateKind::Leased || !self.rng.percent(12) {
                continue;
            }
            let careless = self.rng.percent(self.plan.careless_percent);
            let later: Vec<&StatePlan> = states
                .iter()
                .enumerate()
                .filter(|(at, to)| {
                    (*at > index || careless) && to.kind != StateKind::Leased && state.kind != StateKind::Final
                })
                .map(|(_, to)| to)
                .collect();
            let to = self.rng.pick(&later).copied().filter(|_| self.rng.percent(50)).cloned();
            let go = to.as_ref().map_or_else(|| state.name.clone(), |to| format!("{} -> {}", state.name, to.name));
            let mut transition = TransitionText::new("enter", go);
            transition.when = Some(guard::random_condition(self.rng, self.plan, ExpressionContext::Engine));
            let mut actions = self.action_generator(ExpressionContext::Engine, true, to.as_ref());
            actions.in_final = state.kind == StateKind::Final;
            actions.add_actions(self.rng, &mut transition);
            self.transitions.push(transition);
        }
    }

    fn add_called_event(&mut self, event: &str, must_succeed: bool) {
        let annotates = self.rng.percent(15);
        for number in 0..=self.rng.below(3) {
            let row = if annotates && number == 0 {
                self.annotation_transition(event, must_succeed)
            } else {
                self.random_state_transition(event, must_succeed)
            };
            self.transitions.push(row);
        }
    }

    /// Returns a transition that stays in any state, final states included.
    fn annotation_transition(&mut self, event: &str, must_succeed: bool) -> TransitionText {
        let states: Vec<String> = self.plan.states.iter().map(|state| state.name.clone()).collect();
        let mut transition = TransitionText::new(event, states.join(" | "));
        let mut actions = self.action_generator(ExpressionContext::Called, must_succeed, None);
        actions.in_final = true;
        transition.set_field("count", "record.count + 1".to_owned());
        actions.add_actions(self.rng, &mut transition);
        transition
    }

    fn random_state_transition(&mut self, event: &str, must_succeed: bool) -> TransitionText {
        let non_final = self.plan.non_final_states();
        let mut from: Vec<&StatePlan> = non_final.iter().copied().filter(|_| self.rng.percent(45)).collect();
        if from.is_empty() {
            from.extend(self.rng.pick(&non_final).copied());
        }
        if from.is_empty() {
            return self.annotation_transition(event, must_succeed);
        }
        let names = from.iter().map(|state| state.name.clone()).collect::<Vec<_>>().join(" | ");
        let latest = from.iter().find(|state| state.after_commit).or(from.first()).copied();
        let stays = self.rng.percent(35);
        let to = self.pick_target(latest).clone();
        let mut transition = TransitionText::new(event, if stays { names } else { format!("{names} -> {}", to.name) });
        if !must_succeed {
            // Other records require `asked`, so it must admit them.
            transition.by = if event == "asked" { self.random_record_callers() } else { self.random_callers() };
            if self.rng.percent(40) {
                transition.take = self.pick_input_fields(30);
            }
            if self.plan.ref_target.is_some() && self.rng.percent(15) {
                transition.take.push("other");
            }
            if event.starts_with("ev") && self.rng.percent(25) {
                transition.input.push("size = { type = \"int\", min = 0, max = 20, optional = true }".to_owned());
                if self.plan.fields.bounded && !transition.take.contains(&"bounded") {
                    transition.set_field("bounded", "input.size == null ? record.bounded : input.size".to_owned());
                }
            }
        }
        if self.rng.percent(35) {
            transition.when = Some(guard::random_condition(self.rng, self.plan, ExpressionContext::Called));
        }
        self.action_generator(ExpressionContext::Called, must_succeed, Some(&to).filter(|_| !stays))
            .add_actions(self.rng, &mut transition);
        transition
    }

    fn random_record_callers(&mut self) -> Vec<&'static str> {
        match self.rng.below(5) {
            0 => vec!["record"],
            1 => vec!["owner", "record"],
            _ => Vec::new(),
        }
    }

    fn random_callers(&mut self) -> Vec<&'static str> {
        match self.rng.below(12) {
            0 | 1 => vec!["owner"],
            2 => vec!["operator"],
            3 => vec!["owner", "operator"],
            4 if self.plan.has_work => vec!["worker"],
            5 => vec!["friend", "owner"],
            6 if self.plan.lookup_target.is_some() => vec!["member"],
            7 => vec!["record"],
            _ => Vec::new(),
        }
    }
}
