//! Abstract interpretation of expressions: proves that they cannot fault, by tracking nulls, ranges and sizes through
//! guards and from state to state.

mod abstract_value;
mod arithmetic;
mod certain_faults;
mod counters;
mod env;
mod evaluator;
mod guard_split;
mod path_names;
mod state_facts;
mod transition_choice;
mod transition_effects;
mod value_fit;
mod walk;

pub(super) use abstract_value::{AbstractShape, AbstractValue};
pub(super) use counters::{CounterFields, min_growth};
pub(super) use env::AbstractEnv;
pub(super) use evaluator::{AbstractEvaluator, FaultFinding};
pub(super) use state_facts::StateFacts;
pub(super) use transition_choice::{
    RefusalPrediction, decides_before, env_in_state, env_when_passed_over, env_when_taken, evaluator_for, initial_env,
    is_required, precedes, predict_refusals,
};
pub(super) use transition_effects::{SentValues, TransitionEffects, analyze_transition, eval_in_state, event_actions};
pub(super) use value_fit::find_misfit;
pub(super) use walk::{for_each_subexpr, for_each_transition_expr};
