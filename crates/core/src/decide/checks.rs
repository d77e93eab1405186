//! External checks, and what is decided before they run.
//!
//! A check costs time or money, so it runs only if nothing else already refuses the operation. The results of this dry
//! run are dropped: once the answers are here, the transition is evaluated again in the order that the language
//! defines.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::apply::OperationRun;
use super::changes::CheckQuery;
use super::constraints;
use super::draft::Draft;
use super::halt::{DecideResult, Halt, record_refusal};
use super::input;
use super::ledger::{self, PlannedTransfer};
use super::links;
use super::plan::{EventContext, apply_refusal_clauses, eval_assignment, eval_without_checks};
use crate::expr::{EvalEnv, Expr, PathRoot, PathStep, eval, referenced_paths};
use crate::model::{DataType, DuplicatePolicy, FieldIndex, KeyPart, Transition};
use crate::record::Record;
use crate::value::Value;

/// Answers to a transition's checks by check index, and the queries without an answer.
pub(super) struct ResolvedChecks {
    pub(super) answers: Vec<Option<Arc<[Value]>>>,
    pub(super) open_queries: Vec<CheckQuery>,
}

pub(super) fn resolve_checks(draft: &Draft, transition: &Transition, env: &EvalEnv) -> DecideResult<ResolvedChecks> {
    let lifecycle = &env.record.lifecycle;
    let mut answers = vec![None; lifecycle.checks.len()];
    let mut open_queries = Vec::new();
    for number in &transition.checks {
        let check = &lifecycle.checks[usize::from(*number)];
        let mut arguments = Map::new();
        for (name, formula) in &check.arguments {
            arguments.insert(name.to_string(), eval(&formula.expr, env)?.to_json());
        }
        let payload = if check.sends_payload { env.record.payload } else { None };
        let answer = draft.operation.check_answers.iter().find(|answer| {
            answer.lifecycle == lifecycle.name
                && answer.check == check.name
                && answer.arguments == arguments
                && answer.payload == payload
        });
        match answer {
            Some(answer) => {
                let parts = input::parse_fields(&check.answer_fields, &Json::Object(answer.answer.clone()));
                let parts = parts.map_err(|reason| {
                    let reason =
                        format!("the answer of the check `{}` does not match its declaration: {reason}", check.name);
                    Halt::Refuse(record_refusal(env.record, "check", 503, "invalid_check_answer", reason))
                })?;
                answers[usize::from(*number)] = Some(parts.into());
            }
            None => open_queries.push(CheckQuery {
                lifecycle: Arc::clone(&lifecycle.name),
                check: Arc::clone(&check.name),
                arguments,
                payload,
            }),
        }
    }
    Ok(ResolvedChecks { answers, open_queries })
}

/// The part of a [`TransitionPlan`](super::plan::TransitionPlan) that does not depend on open queries.
pub(super) struct PartialPlan {
    set: Vec<(FieldIndex, Value)>,
    /// Fields whose value depends on an open query.
    unknown_fields: Vec<FieldIndex>,
    /// The transfers before the first that depends on an open query.
    transfers: Vec<PlannedTransfer>,
    /// An answer may still make the transition refuse.
    may_refuse: bool,
}

/// Refuses if an entry of `refuse` holds without the open answers. Otherwise plans what does not depend on them.
pub(super) fn plan_partially(
    transition: &Transition,
    env: &EvalEnv,
    taken_fields: Vec<(FieldIndex, Value)>,
    event: &str,
) -> DecideResult<PartialPlan> {
    let mut may_refuse = false;
    for clause in &transition.refuse {
        // Later clauses may rely on earlier ones being false, so a fault counts only after all are evaluated.
        may_refuse |= none_on_fault(eval_without_checks(&clause.condition, env))?.flatten().is_none();
    }
    apply_refusal_clauses(transition, env, event, |formula, env| {
        Ok(none_on_fault(eval_without_checks(formula, env))?.flatten() == Some(true))
    })?;
    let mut partial_plan =
        PartialPlan { set: taken_fields, unknown_fields: Vec::new(), transfers: Vec::new(), may_refuse };
    for (slot, formula) in &transition.set {
        match none_on_fault(eval_assignment(*slot, formula, env))? {
            Some(value) => partial_plan.set.push((*slot, value)),
            None => partial_plan.unknown_fields.push(*slot),
        }
    }
    for transfer in &transition.transfers {
        let Some(planned) = none_on_fault(ledger::plan_transfer(transfer, env))? else { break };
        partial_plan.transfers.push(planned);
    }
    Ok(partial_plan)
}

/// Returns `None` on a fault: the expression may read an open answer, or rely on an answer that rules the fault out.
fn none_on_fault<T>(result: DecideResult<T>) -> DecideResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Halt::Fault(_)) => Ok(None),
        Err(halt) => Err(halt),
    }
}

impl OperationRun<'_> {
    /// Halts with the open queries, unless a link limit, a unique key, a limit or a shortage decides the operation
    /// without them. Changes to the draft do not matter, since the attempt ends here.
    pub(super) fn request_checks(
        &mut self,
        queries: Vec<CheckQuery>,
        partial_plan: Option<PartialPlan>,
        before: Option<&Record>,
        record: &Record,
        transition: &Transition,
        context: EventContext,
    ) -> Halt {
        let Some(partial_plan) = partial_plan else { return Halt::NeedsChecks(queries) };
        match self.dry_run(partial_plan, before, record.clone(), transition, context) {
            Ok(()) | Err(Halt::Fault(_)) => Halt::NeedsChecks(queries),
            Err(halt) => halt,
        }
    }

    /// Applies the partial plan in the order that the language defines: unique keys, limits, links, transfers. Returns
    /// `Ok` if an answer may still lead to something other than a refusal.
    fn dry_run(
        &mut self,
        partial_plan: PartialPlan,
        before: Option<&Record>,
        mut after: Record,
        transition: &Transition,
        context: EventContext,
    ) -> DecideResult<()> {
        let PartialPlan { set, unknown_fields, transfers, mut may_refuse } = partial_plan;
        if let Some(to) = transition.to {
            after.state = to;
        }
        for (slot, value) in set {
            after.fields[usize::from(slot)] = value;
        }
        let lifecycle = Arc::clone(&after.lifecycle);
        may_refuse |= unknown_fields.iter().any(|slot| holds_refs(&lifecycle.fields[usize::from(*slot)].ty));
        let depends_on_answer = |on: &[KeyPart]| {
            on.iter().any(|part| matches!(part, KeyPart::Field(slot) if unknown_fields.contains(slot)))
        };
        for unique in &lifecycle.unique_constraints {
            if depends_on_answer(&unique.on) {
                // The answer may give the key of an existing record. Then no limit counts and no money moves.
                if before.is_none() && unique.on_duplicate == DuplicatePolicy::ReturnExisting {
                    return Ok(());
                }
                may_refuse = true;
                continue;
            }
            match constraints::update_unique(&mut self.draft, before, &after, context, unique) {
                Err(Halt::ExistingRecord(_)) if may_refuse => return Ok(()),
                done => done?,
            }
        }
        for limit in &lifecycle.limits {
            if !depends_on_answer(&limit.on) && !reads_any_field(&limit.max.expr, &unknown_fields) {
                constraints::update_limit(&mut self.draft, before, &after, context.event, limit)?;
            }
        }
        links::enforce_link_limits(&self.draft, before, &after, context.event)?;
        ledger::apply_transfers(&mut self.draft, &mut after, transfers, context.event)
    }
}

fn holds_refs(ty: &DataType) -> bool {
    match ty {
        DataType::Ref(_) => true,
        DataType::List(element) => holds_refs(element),
        _ => false,
    }
}

/// Whether the expression reads one of these fields of its own record. Counts every lookup as a read, because its key
/// may depend on the fields.
fn reads_any_field(expr: &Expr, fields: &[FieldIndex]) -> bool {
    !fields.is_empty()
        && referenced_paths(expr).iter().any(|path| match (path.root, path.steps.first()) {
            (PathRoot::Lookup(_), _) => true,
            (PathRoot::Record, Some(PathStep::Field { index: slot, .. })) => fields.contains(slot),
            _ => false,
        })
}
