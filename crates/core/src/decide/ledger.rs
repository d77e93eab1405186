//! Moving money: double entry in checked integers.

use std::sync::Arc;

use super::changes::{Account, LedgerMove};
use super::draft::{Draft, fault};
use super::halt::{Halt, Step, refusal};
use crate::expr::{Env, FaultKind, eval};
use crate::model::{AccountRef, Amount, Move, Template, TemplatePart};
use crate::record::Record;
use crate::value::Value;

/// A move with its account names and amount worked out.
pub(super) struct PlannedMove {
    from: Party,
    to: Party,
    /// `None`: the rest of the hold.
    amount: Option<i64>,
    short: Option<(u16, Arc<str>)>,
}

enum Party {
    Hold,
    Named(Arc<str>),
}

pub(super) fn plan(moves: &[Move], env: &Env) -> Step<Vec<PlannedMove>> {
    moves.iter().map(|entry| plan_one(entry, env)).collect()
}

pub(super) fn plan_one(entry: &Move, env: &Env) -> Step<PlannedMove> {
    let amount = match &entry.amount {
        Amount::Rest => None,
        Amount::Formula(formula) => match eval(&formula.expr, env)? {
            Value::Int(amount) => Some(amount),
            _ => return Err(fault(FaultKind::Null)),
        },
    };
    Ok(PlannedMove { from: party(&entry.from, env)?, to: party(&entry.to, env)?, amount, short: entry.short.clone() })
}

fn party(account: &AccountRef, env: &Env) -> Step<Party> {
    Ok(match account {
        AccountRef::Hold => Party::Hold,
        AccountRef::Named(template) => Party::Named(fill(template, env)?),
    })
}

/// `user:{record.owner}` with its values in place.
fn fill(template: &Template, env: &Env) -> Step<Arc<str>> {
    if let [TemplatePart::Literal(name)] = &template.parts[..] {
        return Ok(Arc::clone(name));
    }
    let mut name = String::new();
    for part in &template.parts {
        match part {
            TemplatePart::Literal(text) => name.push_str(text),
            TemplatePart::Value(expr) => match eval(expr, env)? {
                Value::Text(text) => name.push_str(&text),
                Value::Ref(id) => name.push_str(&id.to_string()),
                Value::Int(number) => name.push_str(&number.to_string()),
                Value::Null => return Err(fault(FaultKind::Null)),
                _ => return Err(fault(FaultKind::WrongType)),
            },
        }
    }
    Ok(name.into())
}

/// Carry out a row's moves in order; the record's own hold changes in `record`.
pub(super) fn carry_out(draft: &mut Draft, record: &mut Record, moves: Vec<PlannedMove>, event: &str) -> Step<()> {
    let Some(asset) = record.lifecycle.asset.clone() else { return Ok(()) };
    for planned in moves {
        let amount = planned.amount.unwrap_or(record.hold);
        if amount == 0 {
            continue;
        }
        if amount < 0 {
            return Err(fault(FaultKind::NegativeAmount));
        }
        let short = |record: &Record, name: &str| {
            let (status, code) = planned.short.clone().unwrap_or_else(|| (402, "insufficient_funds".into()));
            Halt::Refuse(refusal(record, event, status, &code, format!("`{name}` holds less than {amount}")))
        };
        let account = |party: &Party, record: &Record| match party {
            Party::Hold => Account::Hold { asset: Arc::clone(&asset), record: record.id },
            Party::Named(name) => Account::Named { asset: Arc::clone(&asset), name: Arc::clone(name) },
        };
        let (from, to) = (account(&planned.from, record), account(&planned.to, record));
        match &planned.from {
            Party::Hold if record.hold < amount => return Err(short(record, "hold")),
            Party::Hold => record.hold -= amount,
            Party::Named(name) => {
                if !draft.definitions.is_outside(&asset, name) && draft.balance(&from)? < amount {
                    return Err(short(record, name));
                }
                draft.add_balance(from.clone(), -amount)?;
            }
        }
        match &planned.to {
            Party::Hold => {
                record.hold = record.hold.checked_add(amount).ok_or_else(|| fault(FaultKind::Overflow))?;
            }
            Party::Named(_) => draft.add_balance(to.clone(), amount)?,
        }
        draft.moves.push(LedgerMove { from, to, amount, cause: record.id });
    }
    Ok(())
}
