//! Finds accounts that are never funded, and `outside` accounts that no transfer names.
//!
//! Money enters only from `outside` accounts and moves only by transfers. Account names are compared up to their first
//! placeholder, so that two templates that may name the same account count as equal.

use std::collections::BTreeSet;

use super::engine_transitions::AnalyzedLifecycles;
use super::reachability::{join_with_and, transitions_of};
use crate::diagnostic::Diagnostic;
use crate::expr::ExprKind;
use crate::model::{AccountRef, AccountTemplate, Lifecycle, TemplatePart, TransferAction, TransferAmount};
use crate::value::Value;

pub(super) fn analyze(studies: &AnalyzedLifecycles, diagnostics: &mut Vec<Diagnostic>) {
    let lifecycles: Vec<&Lifecycle> = studies.values().map(|studied| studied.reachability.lifecycle).collect();
    let assets: BTreeSet<&str> = lifecycles.iter().filter_map(|lifecycle| lifecycle.asset.as_deref()).collect();
    for asset in assets {
        let same_asset: Vec<&Lifecycle> =
            lifecycles.iter().copied().filter(|lifecycle| lifecycle.asset.as_deref() == Some(asset)).collect();
        find_never_filled(&same_asset, diagnostics);
        find_unused_outside(&same_asset, diagnostics);
    }
}

/// Start of an account's name, and whether it is the whole name.
type AccountPrefix<'a> = (&'a str, bool);

/// One transfer. `None` is the lifecycle's own hold.
struct TransferEdge<'a> {
    lifecycle_index: usize,
    action: &'a TransferAction,
    from: Option<AccountPrefix<'a>>,
    to: Option<AccountPrefix<'a>>,
}

fn transfer_edges<'a>(same_asset: &[&'a Lifecycle]) -> Vec<TransferEdge<'a>> {
    let mut edges = Vec::new();
    for (index, lifecycle) in same_asset.iter().enumerate() {
        for action in transitions_of(lifecycle)
            .flat_map(|(_, transition)| &transition.transfers)
            .filter(|step| !is_zero_transfer(step))
        {
            edges.push(TransferEdge {
                lifecycle_index: index,
                action,
                from: account_prefix(&action.from),
                to: account_prefix(&action.to),
            });
        }
    }
    edges
}

fn is_zero_transfer(action: &TransferAction) -> bool {
    matches!(&action.amount, TransferAmount::Computed(formula) if matches!(formula.expr.kind, ExprKind::Const(Value::Int(0))))
}

fn account_prefix(account: &AccountRef) -> Option<AccountPrefix<'_>> {
    match account {
        AccountRef::Hold => None,
        AccountRef::Named(template) => Some(template_prefix(template)),
    }
}

fn template_prefix(template: &AccountTemplate) -> AccountPrefix<'_> {
    match template.parts.as_slice() {
        [TemplatePart::Literal(name)] => (name, true),
        [TemplatePart::Literal(name), ..] => (name, false),
        _ => ("", false),
    }
}

/// Whether both may name the same account.
fn may_alias(a: AccountPrefix, b: AccountPrefix) -> bool {
    match (a.1, b.1) {
        (true, true) => a.0 == b.0,
        (true, false) => a.0.starts_with(b.0),
        (false, true) => b.0.starts_with(a.0),
        (false, false) => a.0.starts_with(b.0) || b.0.starts_with(a.0),
    }
}

/// Most cycles reported per asset. The first ones are enough to find the mistake.
const MAX_REPORTED_CYCLES: usize = 16;

/// Accounts that money can reach.
struct FundedAccounts<'a> {
    names: Vec<AccountPrefix<'a>>,
    /// By lifecycle index.
    funded_holds: Vec<bool>,
}

impl<'a> FundedAccounts<'a> {
    fn is_funded(&self, name: AccountPrefix) -> bool {
        self.names.iter().any(|own| may_alias(*own, name))
    }

    /// Returns whether money can reach the account or hold that the transfer takes from.
    fn can_pay(&self, edge: &TransferEdge) -> bool {
        edge.from.map_or_else(|| self.funded_holds[edge.lifecycle_index], |from| self.is_funded(from))
    }

    /// Follows all transfers from funded accounts. Each round adds an account or hold, or ends.
    fn propagate(&mut self, edges: &[TransferEdge<'a>]) {
        let mut has_grown = true;
        while std::mem::take(&mut has_grown) {
            for flow in edges {
                if !self.can_pay(flow) {
                    continue;
                }
                match flow.to {
                    None => has_grown |= !std::mem::replace(&mut self.funded_holds[flow.lifecycle_index], true),
                    Some(to) if !self.names.contains(&to) => {
                        self.names.push(to);
                        has_grown = true;
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn find_never_filled(same_asset: &[&Lifecycle], diagnostics: &mut Vec<Diagnostic>) {
    let edges = transfer_edges(same_asset);
    let outside_accounts =
        same_asset.iter().flat_map(|lifecycle| &lifecycle.outside_accounts).map(|name| (&**name, true));
    let names = outside_accounts.collect::<BTreeSet<_>>().into_iter().collect();
    let mut funded = FundedAccounts { names, funded_holds: vec![false; same_asset.len()] };
    funded.propagate(&edges);
    let mut reported: Vec<(usize, AccountPrefix)> = Vec::new();
    for edge in &edges {
        let (Some(from), AccountRef::Named(template)) = (edge.from, &edge.action.from) else { continue };
        // If another unfunded account pays into this one, that one is reported instead.
        let mut paying_edges = edges.iter().filter(|other| other.to.is_some_and(|to| may_alias(to, from)));
        let is_first = paying_edges.all(|other| other.from.is_some_and(|other| may_alias(other, from)));
        if is_first && !funded.is_funded(from) && !reported.contains(&(edge.lifecycle_index, from)) {
            reported.push((edge.lifecycle_index, from));
            diagnostics.push(unfunded_diagnostic(same_asset, edge, template));
        }
    }
    funded.names.extend(reported.into_iter().map(|(_, name)| name));
    funded.propagate(&edges);
    // Each remaining unfunded account is paid only by accounts that are unfunded themselves. Reports one per cycle.
    for _ in 0..MAX_REPORTED_CYCLES {
        let empty = || edges.iter().filter(|flow| flow.from.is_some_and(|from| !funded.is_funded(from)));
        let cycle = empty().find_map(|flow| Some((flow, Some(find_return_edge(same_asset, &edges, flow.from?)?))));
        let Some((flow, return_edge)) = cycle.or_else(|| empty().next().map(|flow| (flow, None))) else { return };
        let (Some(from), AccountRef::Named(template)) = (flow.from, &flow.action.from) else { return };
        diagnostics.push(cycle_diagnostic(flow, template, return_edge));
        funded.names.push(from);
        funded.propagate(&edges);
    }
}

/// Finds a transfer that returns an account's own money to it.
fn find_return_edge<'a, 'b>(
    same_asset: &[&Lifecycle],
    edges: &'b [TransferEdge<'a>],
    name: AccountPrefix<'a>,
) -> Option<&'b TransferEdge<'a>> {
    let mut from_account = FundedAccounts { names: vec![name], funded_holds: vec![false; same_asset.len()] };
    from_account.propagate(edges);
    edges.iter().find(|flow| flow.to.is_some_and(|to| may_alias(to, name)) && from_account.can_pay(flow))
}

fn unfunded_diagnostic(same_asset: &[&Lifecycle], edge: &TransferEdge, template: &AccountTemplate) -> Diagnostic {
    let searched = join_with_and(same_asset.iter().map(|lifecycle| format!("`{}`", lifecycle.name)));
    let name = &template.text;
    Diagnostic::warning(
        "never-filled-account",
        edge.action.span,
        format!("no transfer in the given files fills `{name}`, so the transfer from it is refused"),
    )
    .label(format!("no transfer of {searched} goes to it"))
    .help(funding_help(template))
}

fn cycle_diagnostic(edge: &TransferEdge, template: &AccountTemplate, return_edge: Option<&TransferEdge>) -> Diagnostic {
    let name = &template.text;
    let warning = Diagnostic::warning(
        "never-filled-account",
        edge.action.span,
        format!("no money ever reaches `{name}`, so the transfer from it is refused"),
    )
    .label("no chain of transfers leads to it from an `outside` account")
    .help(funding_help(template));
    match return_edge {
        Some(back) => warning.related(back.action.span, "only returns money that came from there"),
        None => warning,
    }
}

fn funding_help(template: &AccountTemplate) -> String {
    match template.parts.as_slice() {
        [TemplatePart::Literal(name)] => format!(
            "correct the name, transfer money there first, check the files together with the one that does, or declare \
             that the account may go below zero: `outside = [\"{name}\"]`"
        ),
        _ => "correct the name, transfer money there first (from an `outside` account), or check the files together \
              with the one that does"
            .to_owned(),
    }
}

fn find_unused_outside(same_asset: &[&Lifecycle], diagnostics: &mut Vec<Diagnostic>) {
    let edges = transfer_edges(same_asset);
    let is_named = |name: &str| {
        let names = edges.iter().flat_map(|flow| [flow.from, flow.to]).flatten();
        names.into_iter().any(|other| may_alias((name, true), other))
    };
    for lifecycle in same_asset {
        for (name, span) in
            lifecycle.outside_accounts.iter().zip(&lifecycle.outside_account_spans).filter(|(name, _)| !is_named(name))
        {
            diagnostics.push(
                Diagnostic::warning(
                    "unused-outside",
                    *span,
                    format!("no transfer names the `outside` account `{name}`"),
                )
                .label("declared but never used")
                .help("remove it, or correct the name in `outside` or in `move`"),
            );
        }
    }
}
