//! Generates the actions of a transition: fields, transfers, other records, deliveries.

use super::guard::{self, ExpressionContext};
use super::plan::LifecyclePlan;
use super::transition_text::TransitionText;
use crate::random::Rng;

/// Generates actions for one transition.
#[derive(Clone, Copy)]
pub(super) struct ActionGenerator<'a> {
    pub(super) plan: &'a LifecyclePlan,
    pub(super) plans: &'a [LifecyclePlan],
    pub(super) context: ExpressionContext,
    /// The engine may fire the transition, so nothing in it may be refused.
    pub(super) must_succeed: bool,
    pub(super) into_final: bool,
    pub(super) in_final: bool,
}

impl ActionGenerator<'_> {
    /// Adds some of all actions that the transition may have.
    pub(super) fn add_actions(self, rng: &mut Rng, transition: &mut TransitionText) {
        let is_careless = rng.percent(self.plan.careless_percent);
        let must_succeed = self.must_succeed && !is_careless;
        for _ in 0..rng.below(3) {
            if let Some((field, value)) = guard::random_assignment(rng, self.plan, self.context) {
                transition.set_field(field, value);
            }
        }
        self.add_transfers(rng, transition, must_succeed);
        self.add_record_actions(rng, transition, must_succeed);
        if !must_succeed && rng.percent(20) {
            self.add_refusal(rng, transition);
        }
        if rng.percent(6) {
            transition
                .deliver
                .push("{ to = \"'https://example.org/hook'\", body = { count = \"record.count\" } }".to_owned());
        }
        if rng.percent(12) {
            transition.audit = Some("NOTED");
        }
    }

    fn add_refusal(self, rng: &mut Rng, transition: &mut TransitionText) {
        if self.plan.has_check
            && matches!(self.context, ExpressionContext::Called | ExpressionContext::Create)
            && rng.percent(60)
        {
            transition.refuse.push("{ if = \"!checks.asked.ok\", as = \"403 not_ok\" }".to_owned());
            if self.plan.fields.bounded && rng.percent(50) {
                transition.set_field("bounded", "checks.asked.sum".to_owned());
            }
            return;
        }
        let condition = guard::random_condition(rng, self.plan, self.context);
        let audit = if rng.percent(30) { ", audit = \"DENIED\"" } else { "" };
        transition.refuse.push(format!("{{ if = \"{condition} && record.count > 3\", as = \"409 no_more\"{audit} }}"));
    }

    fn add_transfers(self, rng: &mut Rng, transition: &mut TransitionText, must_succeed: bool) {
        if !self.plan.has_money {
            return;
        }
        let amount = |rng: &mut Rng| {
            if self.plan.fields.bounded && rng.percent(40) {
                "record.bounded".to_owned()
            } else {
                rng.between(1, 9).to_string()
            }
        };
        if rng.percent(15) {
            let amount = amount(rng);
            transition
                .transfers
                .push(format!("{{ from = \"world\", to = \"user:{{record.owner}}\", amount = \"{amount}\" }}"));
        }
        if !must_succeed && rng.percent(40) {
            let amount = amount(rng);
            let entry = match rng.below(4) {
                0 if !self.in_final => format!(
                    "{{ from = \"user:{{record.owner}}\", to = \"hold\", amount = \"{amount}\", short = \"402 poor\" }}"
                ),
                1 => format!("{{ from = \"hold\", to = \"fee\", amount = \"{amount}\" }}"),
                2 => format!("{{ from = \"user:{{record.owner}}\", to = \"fee\", amount = \"{amount}\" }}"),
                _ if !self.in_final => format!("{{ from = \"world\", to = \"hold\", amount = \"{amount}\" }}"),
                _ => return,
            };
            transition.transfers.push(entry);
        }
        let forgotten = rng.percent(self.plan.careless_percent);
        if (self.into_final && !forgotten) || rng.percent(8) {
            transition
                .transfers
                .push("{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }".to_owned());
        }
    }

    fn add_record_actions(self, rng: &mut Rng, transition: &mut TransitionText, must_succeed: bool) {
        let younger: Vec<&LifecyclePlan> = self
            .plans
            .iter()
            .filter(|plan| plan.index > self.plan.index && (plan.create_never_refused || !must_succeed))
            .collect();
        if let (Some(child), true) = (rng.pick(&younger), rng.percent(15)) {
            let refers_back = child.ref_target == Some(self.plan.index) && rng.percent(70);
            let fields = if refers_back { ", fields = { other = \"record.id\" }" } else { "" };
            let owner = if rng.percent(15) { ", owner = \"actor.id\"" } else { "" };
            let condition = if rng.percent(20) {
                format!(", if = \"{}\"", guard::random_condition(rng, self.plan, self.context))
            } else {
                String::new()
            };
            transition.spawn.push(format!("{{ lifecycle = \"{}\"{fields}{owner}{condition} }}", child.name));
        }
        let has_kids = self.plans.iter().any(|plan| plan.ref_target == Some(self.plan.index));
        if self.context != ExpressionContext::Create && has_kids && rng.percent(20) {
            let event = if must_succeed || rng.percent(50) { "told" } else { "asked" };
            transition.cascade.push(format!("{{ to = \"links.kids\", event = \"{event}\" }}"));
        }
        if self.plan.refs_target.is_some() && rng.percent(20) {
            transition.cascade.push("{ to = \"record.many\", event = \"told\" }".to_owned());
        }
        if self.plan.ref_target.is_none() {
            return;
        }
        if rng.percent(15) {
            let event = if must_succeed || rng.percent(50) { "told" } else { "asked" };
            let condition = if rng.percent(20) { ", if = \"record.count % 2 == 0\"" } else { "" };
            transition.cascade.push(format!("{{ to = \"record.other\", event = \"{event}\"{condition} }}"));
        }
        if !must_succeed && rng.percent(25) {
            let event = if rng.percent(70) { "asked" } else { "told" };
            let condition = if rng.percent(60) { ", if = \"record.other != null\"" } else { "" };
            transition.require.push(format!("{{ to = \"record.other\", event = \"{event}\"{condition} }}"));
        }
    }
}
