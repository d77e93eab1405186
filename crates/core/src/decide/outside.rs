//! Asking the outside, and what is judged before it is asked.
//!
//! A question costs somebody time or money, so it is put only where nothing else stands in the way already. What was found
//! out here is thrown away with the attempt: once the answer is there, the row is weighed anew in the language's own order.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::carry::Run;
use super::changes::Question;
use super::draft::Draft;
use super::halt::{Halt, Step, refusal};
use super::input;
use super::keys;
use super::ledger::{self, PlannedMove};
use super::links;
use super::plan::{Occasion, assigned, judged, refuse};
use crate::expr::{Env, Expr, Root, Step as PathStep, eval, paths_read};
use crate::model::{Clash, KeyPart, Row, Slot, Type};
use crate::record::Record;
use crate::value::Value;

/// The answers to a row's checks, by the check's number, and the questions that are still open.
pub(super) struct Answers {
    pub(super) given: Vec<Option<Arc<[Value]>>>,
    pub(super) open: Vec<Question>,
}

pub(super) fn answers(draft: &Draft, row: &Row, env: &Env) -> Step<Answers> {
    let lifecycle = &env.record.lifecycle;
    let mut given = vec![None; lifecycle.checks.len()];
    let mut open = Vec::new();
    for number in &row.checks {
        let check = &lifecycle.checks[usize::from(*number)];
        let mut arguments = Map::new();
        for (name, formula) in &check.ask {
            arguments.insert(name.to_string(), eval(&formula.expr, env)?.to_json());
        }
        let payload = if check.payload { env.record.payload } else { None };
        let answer = draft.operation.answers.iter().find(|answer| {
            answer.lifecycle == lifecycle.name
                && answer.check == check.name
                && answer.arguments == arguments
                && answer.payload == payload
        });
        match answer {
            Some(answer) => {
                let parts = input::read_parts(&check.answer, &Json::Object(answer.answer.clone()));
                let parts = parts.map_err(|reason| {
                    let reason = format!("the answer to the check `{}` is not as declared: {reason}", check.name);
                    Halt::Refuse(refusal(env.record, "check", 503, "bad_answer", reason))
                })?;
                given[usize::from(*number)] = Some(parts.into());
            }
            None => open.push(Question {
                lifecycle: Arc::clone(&lifecycle.name),
                check: Arc::clone(&check.name),
                arguments,
                payload,
            }),
        }
    }
    Ok(Answers { given, open })
}

/// What is known of a row that holds but for its open questions.
pub(super) struct Known {
    set: Vec<(Slot, Value)>,
    /// Fields whose value hangs on an answer.
    open: Vec<Slot>,
    /// The first moves, up to one that hangs on an answer.
    moves: Vec<PlannedMove>,
    /// An answer may still make the row refuse.
    may_refuse: bool,
}

/// Refuse where an entry of `refuse` says so without the open answers; else work out what does not hang on them.
pub(super) fn known(row: &Row, env: &Env, taken: Vec<(Slot, Value)>, event: &str) -> Step<Known> {
    let mut may_refuse = false;
    for entry in &row.refuse {
        // What lies behind an entry may rely on its being false, so that nothing counts as a fault before all are judged.
        may_refuse |= worked_out(judged(&entry.condition, env))?.flatten().is_none();
    }
    refuse(row, env, event, |formula, env| Ok(worked_out(judged(formula, env))?.flatten() == Some(true)))?;
    let mut known = Known { set: taken, open: Vec::new(), moves: Vec::new(), may_refuse };
    for (slot, formula) in &row.set {
        match worked_out(assigned(*slot, formula, env))? {
            Some(value) => known.set.push((*slot, value)),
            None => known.open.push(*slot),
        }
    }
    for entry in &row.moves {
        let Some(planned) = worked_out(ledger::plan_one(entry, env))? else { break };
        known.moves.push(planned);
    }
    Ok(known)
}

/// `None` where an expression faults: it may read an open answer, or rely on what one has yet to rule out.
fn worked_out<T>(step: Step<T>) -> Step<Option<T>> {
    match step {
        Ok(value) => Ok(Some(value)),
        Err(Halt::Fault(_)) => Ok(None),
        Err(halt) => Err(halt),
    }
}

impl Run<'_> {
    /// The questions, unless a full link, a key, a limit or a shortage settles the matter without them. Whatever this does
    /// to the draft goes nowhere: the attempt ends here.
    pub(super) fn ask(
        &mut self,
        questions: Vec<Question>,
        known: Option<Known>,
        before: Option<&Record>,
        record: &Record,
        row: &Row,
        occasion: Occasion,
    ) -> Halt {
        let Some(known) = known else { return Halt::Ask(questions) };
        match self.rehearse(known, before, record.clone(), row, occasion) {
            Ok(()) | Err(Halt::Fault(_)) => Halt::Ask(questions),
            Err(halt) => halt,
        }
    }

    /// In the language's order: keys, limits, links, moves. Ends well where an answer might still change the outcome to
    /// something other than a refusal.
    fn rehearse(
        &mut self,
        known: Known,
        before: Option<&Record>,
        mut after: Record,
        row: &Row,
        occasion: Occasion,
    ) -> Step<()> {
        let Known { set, open, moves, mut may_refuse } = known;
        if let Some(to) = row.to {
            after.state = to;
        }
        for (slot, value) in set {
            after.fields[usize::from(slot)] = value;
        }
        let lifecycle = Arc::clone(&after.lifecycle);
        may_refuse |= open.iter().any(|slot| refers(&lifecycle.fields[usize::from(*slot)].ty));
        let hangs = |on: &[KeyPart]| on.iter().any(|part| matches!(part, KeyPart::Field(slot) if open.contains(slot)));
        for unique in &lifecycle.uniques {
            if hangs(&unique.on) {
                // The answer may lead to a record that holds the key, and then no limit counts and nothing is paid.
                if before.is_none() && unique.clash == Clash::Return {
                    return Ok(());
                }
                may_refuse = true;
                continue;
            }
            match keys::update_unique(&mut self.draft, before, &after, occasion, unique) {
                Err(Halt::Holder(_)) if may_refuse => return Ok(()),
                done => done?,
            }
        }
        for limit in &lifecycle.limits {
            if !hangs(&limit.on) && !reads(&limit.max.expr, &open) {
                keys::update_limit(&mut self.draft, before, &after, occasion.event, limit)?;
            }
        }
        links::check(&self.draft, before, &after, occasion.event)?;
        ledger::carry_out(&mut self.draft, &mut after, moves, occasion.event)
    }
}

fn refers(ty: &Type) -> bool {
    match ty {
        Type::Ref(_) => true,
        Type::List(element) => refers(element),
        _ => false,
    }
}

/// Whether an expression reads one of these fields of its own record; a lookup's key might.
fn reads(expr: &Expr, open: &[Slot]) -> bool {
    !open.is_empty()
        && paths_read(expr).iter().any(|path| match (path.root, path.steps.first()) {
            (Root::Lookup(_), _) => true,
            (Root::Record, Some(PathStep::Field { slot, .. })) => open.contains(slot),
            _ => false,
        })
}
