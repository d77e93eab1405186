//! Transfers between accounts: double entry in checked integers.

use std::sync::Arc;

use super::changes::{Account, Transfer};
use super::draft::{Draft, fault_halt};
use super::halt::{DecideResult, Halt, record_refusal};
use crate::expr::{EvalEnv, FaultKind, eval};
use crate::model::{AccountRef, AccountTemplate, TemplatePart, TransferAction, TransferAmount};
use crate::record::Record;
use crate::value::Value;

/// A transfer with its account names and amount evaluated.
pub(super) struct PlannedTransfer {
    from: TransferParty,
    to: TransferParty,
    /// `None`: the rest of the hold.
    amount: Option<i64>,
    shortage_refusal: Option<(u16, Arc<str>)>,
}

enum TransferParty {
    Hold,
    Named(Arc<str>),
}

pub(super) fn plan_transfers(transfers: &[TransferAction], env: &EvalEnv) -> DecideResult<Vec<PlannedTransfer>> {
    transfers.iter().map(|transfer| plan_transfer(transfer, env)).collect()
}

pub(super) fn plan_transfer(transfer: &TransferAction, env: &EvalEnv) -> DecideResult<PlannedTransfer> {
    let amount = match &transfer.amount {
        TransferAmount::Rest => None,
        TransferAmount::Computed(formula) => match eval(&formula.expr, env)? {
            Value::Int(amount) => Some(amount),
            _ => return Err(fault_halt(FaultKind::Null)),
        },
    };
    Ok(PlannedTransfer {
        from: resolve_party(&transfer.from, env)?,
        to: resolve_party(&transfer.to, env)?,
        amount,
        shortage_refusal: transfer.shortage_refusal.clone(),
    })
}

fn resolve_party(account: &AccountRef, env: &EvalEnv) -> DecideResult<TransferParty> {
    Ok(match account {
        AccountRef::Hold => TransferParty::Hold,
        AccountRef::Named(template) => TransferParty::Named(render_account_name(template, env)?),
    })
}

/// Renders an account name such as `user:{record.owner}`.
fn render_account_name(template: &AccountTemplate, env: &EvalEnv) -> DecideResult<Arc<str>> {
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
                Value::Null => return Err(fault_halt(FaultKind::Null)),
                _ => return Err(fault_halt(FaultKind::WrongType)),
            },
        }
    }
    Ok(name.into())
}

/// Applies a transition's transfers in order. The record's own hold changes in `record`.
pub(super) fn apply_transfers(
    draft: &mut Draft,
    record: &mut Record,
    transfers: Vec<PlannedTransfer>,
    event: &str,
) -> DecideResult<()> {
    let Some(asset) = record.lifecycle.asset.clone() else { return Ok(()) };
    for planned in transfers {
        let amount = planned.amount.unwrap_or(record.hold);
        if amount == 0 {
            continue;
        }
        if amount < 0 {
            return Err(fault_halt(FaultKind::NegativeAmount));
        }
        let shortage_halt = |record: &Record, name: &str| {
            let (status, code) = planned.shortage_refusal.clone().unwrap_or_else(|| (402, "insufficient_funds".into()));
            Halt::Refuse(record_refusal(
                record,
                event,
                status,
                &code,
                format!("the balance of `{name}` is less than {amount}"),
            ))
        };
        let account = |party: &TransferParty, record: &Record| match party {
            TransferParty::Hold => Account::Hold { asset: Arc::clone(&asset), record: record.id },
            TransferParty::Named(name) => Account::Named { asset: Arc::clone(&asset), name: Arc::clone(name) },
        };
        let (from, to) = (account(&planned.from, record), account(&planned.to, record));
        match &planned.from {
            TransferParty::Hold if record.hold < amount => return Err(shortage_halt(record, "hold")),
            TransferParty::Hold => record.hold -= amount,
            TransferParty::Named(name) => {
                if !draft.definitions.is_outside_account(&asset, name) && draft.balance(&from)? < amount {
                    return Err(shortage_halt(record, name));
                }
                draft.add_to_balance(from.clone(), -amount)?;
            }
        }
        match &planned.to {
            TransferParty::Hold => {
                record.hold = record.hold.checked_add(amount).ok_or_else(|| fault_halt(FaultKind::Overflow))?;
            }
            TransferParty::Named(_) => draft.add_to_balance(to.clone(), amount)?,
        }
        draft.transfers.push(Transfer { from, to, amount, caused_by: record.id });
    }
    Ok(())
}
