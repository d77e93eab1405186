//! That expressions cannot fault: nulls, ranges and sizes, followed through guards and from state to state.

mod arithmetic;
mod certain;
mod counters;
mod domain;
mod env;
mod fits;
mod flow;
mod judge;
mod naming;
mod row;
mod split;
mod taking;
mod walk;

pub(super) use counters::{Counters, growth};
pub(super) use domain::{Known, Shape};
pub(super) use env::Env;
pub(super) use fits::misfit;
pub(super) use flow::Flow;
pub(super) use judge::{Finding, Judge};
pub(super) use row::{Outcome, Sent, causes, examine, standing};
pub(super) use taking::{
    Outlook, decides_before, in_state, is_required, judge_of, outlook, passed_over, stands_before, start, taken,
};
pub(super) use walk::{any, each, each_of_row};
