//! The plan of a random lifecycle, made before its transitions.

use crate::random::Rng;

/// Options of the generator.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorOptions {
    /// Percentage of careless files, whose transitions may fault, be refused or lead nowhere.
    pub careless_percent: u64,
    /// `jitter` hashes the record's id. A test that compares records with different ids must disable it.
    pub jitter: bool,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        Self { careless_percent: 35, jitter: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Rest,
    Timed,
    Ready,
    Leased,
    Final,
}

#[derive(Clone, Debug)]
pub(super) struct StatePlan {
    pub(super) name: String,
    pub(super) kind: StateKind,
    /// After the commit: no path leads back to a ready state.
    pub(super) after_commit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each flag declares one field")]
pub(super) struct FieldPlan {
    pub(super) bounded: bool,
    pub(super) flag: bool,
    pub(super) color: bool,
    pub(super) maybe: bool,
    pub(super) moment: bool,
    pub(super) word: bool,
    pub(super) note: bool,
    pub(super) delay: bool,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is one decision of the author")]
pub(super) struct LifecyclePlan {
    pub(super) name: String,
    pub(super) index: usize,
    pub(super) states: Vec<StatePlan>,
    pub(super) fields: FieldPlan,
    pub(super) has_work: bool,
    /// Whether `[work] result` is declared.
    pub(super) has_typed_result: bool,
    pub(super) has_money: bool,
    pub(super) has_natural_key: bool,
    pub(super) unique: Option<UniquePlan>,
    pub(super) limit: Option<LimitPlan>,
    pub(super) has_check: bool,
    /// Lifecycle that the field `other` refers to. The link back is called `kids`.
    pub(super) ref_target: Option<usize>,
    /// Lifecycle that the list field `many` refers to.
    pub(super) refs_target: Option<usize>,
    /// Lifecycle of the lookup by natural key, `refs.me`.
    pub(super) lookup_target: Option<usize>,
    pub(super) events: Vec<String>,
    /// Whether creation cannot be refused, so that engine transitions may spawn the record.
    pub(super) create_never_refused: bool,
    pub(super) has_ready_time: bool,
    pub(super) has_payload: bool,
    pub(super) readable_by_anyone: bool,
    /// Probability in percent that a part of a transition is careless.
    pub(super) careless_percent: u64,
    pub(super) uses_jitter: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct UniquePlan {
    pub(super) returns_existing: bool,
    pub(super) only_live_states: bool,
    pub(super) by_owner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitPlan {
    InStates,
    PerWindow,
    Lifetime,
}

impl LifecyclePlan {
    pub(super) fn states_of_kind(&self, kind: StateKind) -> Vec<&StatePlan> {
        self.states.iter().filter(|state| state.kind == kind).collect()
    }

    pub(super) fn non_final_states(&self) -> Vec<&StatePlan> {
        self.states.iter().filter(|state| state.kind != StateKind::Final).collect()
    }
}

const LIFECYCLE_NAMES: [&str; 3] = ["rnd.a", "rnd.b", "rnd.c"];

pub(super) fn random_plans(rng: &mut Rng, options: GeneratorOptions) -> Vec<LifecyclePlan> {
    let count = 1 + rng.below(LIFECYCLE_NAMES.len());
    let careless = if rng.percent(options.careless_percent) { 8 } else { 0 };
    let mut plans: Vec<LifecyclePlan> = Vec::with_capacity(count);
    for (index, name) in LIFECYCLE_NAMES.iter().take(count).enumerate() {
        plans.push(random_plan(rng, name, index, count, careless, options.jitter));
    }
    let keyed: Vec<usize> = plans.iter().filter(|plan| plan.has_natural_key).map(|plan| plan.index).collect();
    for plan in &mut plans {
        plan.lookup_target = keyed.first().copied().filter(|_| rng.percent(40));
    }
    plans
}

fn random_plan(
    rng: &mut Rng,
    name: &str,
    index: usize,
    count: usize,
    careless_percent: u64,
    jitter: bool,
) -> LifecyclePlan {
    let tiny = rng.percent(20);
    let work = rng.percent(70);
    let tame = index > 0 && rng.percent(70);
    let moment = rng.percent(60);
    LifecyclePlan {
        name: name.to_owned(),
        index,
        states: random_states(rng, work, tiny),
        fields: FieldPlan {
            bounded: rng.percent(70),
            flag: rng.percent(70),
            color: rng.percent(60),
            maybe: rng.percent(60),
            moment,
            word: rng.percent(70),
            note: rng.percent(50),
            delay: rng.percent(40),
        },
        has_work: work,
        has_typed_result: rng.percent(60),
        has_money: rng.percent(50),
        has_natural_key: !tame && rng.percent(25),
        unique: (!tame && rng.percent(50)).then(|| UniquePlan {
            returns_existing: rng.percent(50),
            only_live_states: rng.percent(60),
            by_owner: rng.percent(50),
        }),
        limit: (!tame && rng.percent(45)).then(|| match rng.below(3) {
            0 => LimitPlan::PerWindow,
            1 => LimitPlan::Lifetime,
            _ => LimitPlan::InStates,
        }),
        has_check: rng.percent(30),
        ref_target: (count > 1 || rng.percent(30)).then(|| rng.below(count)),
        refs_target: rng.percent(20).then(|| rng.below(count)),
        lookup_target: None,
        events: (0..if tiny { 1 } else { 1 + rng.below(4) }).map(|number| format!("ev{number}")).collect(),
        create_never_refused: tame,
        has_ready_time: moment && rng.percent(40),
        has_payload: index == 0 && rng.percent(15),
        readable_by_anyone: rng.percent(65),
        careless_percent,
        uses_jitter: jitter,
    }
}

fn random_states(rng: &mut Rng, work: bool, tiny: bool) -> Vec<StatePlan> {
    let mut states = Vec::new();
    let mut add = |name: String, kind, late| states.push(StatePlan { name, kind, after_commit: late });
    let some = |rng: &mut Rng, max: usize| if tiny { 0 } else { rng.below(max + 1) };
    for number in 0..some(rng, 2) {
        add(format!("rest{number}"), StateKind::Rest, false);
    }
    if work {
        add("queued".to_owned(), StateKind::Ready, false);
        add("running".to_owned(), StateKind::Leased, false);
        if !tiny && rng.percent(30) {
            add("running1".to_owned(), StateKind::Leased, false);
        }
    }
    for number in 0..some(rng, 2) {
        add(format!("wait{number}"), StateKind::Timed, false);
    }
    if !work && tiny {
        add("rest0".to_owned(), StateKind::Rest, false);
    }
    for number in 0..some(rng, 2) {
        add(format!("late{number}"), if rng.percent(50) { StateKind::Rest } else { StateKind::Timed }, true);
    }
    for number in 0..=rng.below(if tiny { 1 } else { 3 }) {
        add(format!("END{number}"), StateKind::Final, true);
    }
    states
}
