//! What a row does besides moving: fields, money, other records, messages.

use super::guard::{self, Place};
use super::plan::Plan;
use super::row::Row;
use crate::random::Chance;

/// The row that is being written.
#[derive(Clone, Copy)]
pub(super) struct Deed<'a> {
    pub(super) plan: &'a Plan,
    pub(super) plans: &'a [Plan],
    pub(super) place: Place,
    /// The engine fires it, or may come to: nothing in it may be refused.
    pub(super) safe: bool,
    pub(super) into_final: bool,
    pub(super) in_final: bool,
}

impl Deed<'_> {
    /// Give the row some of everything that may stand in it.
    pub(super) fn fill(self, chance: &mut Chance, row: &mut Row) {
        let careless = chance.yes(self.plan.careless);
        let safe = self.safe && !careless;
        for _ in 0..chance.below(3) {
            if let Some((field, value)) = guard::assignment(chance, self.plan, self.place) {
                row.set(field, value);
            }
        }
        self.money(chance, row, safe);
        self.others(chance, row, safe);
        if !safe && chance.yes(20) {
            self.refuse(chance, row);
        }
        if chance.yes(6) {
            row.deliver.push("{ to = \"'https://example.org/hook'\", body = { count = \"record.count\" } }".to_owned());
        }
        if chance.yes(12) {
            row.audit = Some("NOTED");
        }
    }

    fn refuse(self, chance: &mut Chance, row: &mut Row) {
        if self.plan.check && matches!(self.place, Place::Called | Place::Create) && chance.yes(60) {
            row.refuse.push("{ if = \"!checks.asked.ok\", as = \"403 not_ok\" }".to_owned());
            if self.plan.fields.bounded && chance.yes(50) {
                row.set("bounded", "checks.asked.sum".to_owned());
            }
            return;
        }
        let condition = guard::condition(chance, self.plan, self.place);
        let audit = if chance.yes(30) { ", audit = \"DENIED\"" } else { "" };
        row.refuse.push(format!("{{ if = \"{condition} && record.count > 3\", as = \"409 no_more\"{audit} }}"));
    }

    fn money(self, chance: &mut Chance, row: &mut Row, safe: bool) {
        if !self.plan.money {
            return;
        }
        let amount = |chance: &mut Chance| {
            if self.plan.fields.bounded && chance.yes(40) {
                "record.bounded".to_owned()
            } else {
                chance.between(1, 9).to_string()
            }
        };
        if chance.yes(15) {
            let amount = amount(chance);
            row.moves.push(format!("{{ from = \"world\", to = \"user:{{record.owner}}\", amount = \"{amount}\" }}"));
        }
        if !safe && chance.yes(40) {
            let amount = amount(chance);
            let entry = match chance.below(4) {
                0 if !self.in_final => format!(
                    "{{ from = \"user:{{record.owner}}\", to = \"hold\", amount = \"{amount}\", short = \"402 poor\" }}"
                ),
                1 => format!("{{ from = \"hold\", to = \"fee\", amount = \"{amount}\" }}"),
                2 => format!("{{ from = \"user:{{record.owner}}\", to = \"fee\", amount = \"{amount}\" }}"),
                _ if !self.in_final => format!("{{ from = \"world\", to = \"hold\", amount = \"{amount}\" }}"),
                _ => return,
            };
            row.moves.push(entry);
        }
        let forgotten = chance.yes(self.plan.careless);
        if (self.into_final && !forgotten) || chance.yes(8) {
            row.moves.push("{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }".to_owned());
        }
    }

    fn others(self, chance: &mut Chance, row: &mut Row, safe: bool) {
        let younger: Vec<&Plan> =
            self.plans.iter().filter(|plan| plan.index > self.plan.index && (plan.tame || !safe)).collect();
        if let (Some(child), true) = (chance.pick(&younger), chance.yes(15)) {
            let back = child.other == Some(self.plan.index) && chance.yes(70);
            let fields = if back { ", fields = { other = \"record.id\" }" } else { "" };
            let owner = if chance.yes(15) { ", owner = \"actor.id\"" } else { "" };
            let condition = if chance.yes(20) {
                format!(", if = \"{}\"", guard::condition(chance, self.plan, self.place))
            } else {
                String::new()
            };
            row.spawn.push(format!("{{ lifecycle = \"{}\"{fields}{owner}{condition} }}", child.name));
        }
        let has_kids = self.plans.iter().any(|plan| plan.other == Some(self.plan.index));
        if self.place != Place::Create && has_kids && chance.yes(20) {
            let event = if safe || chance.yes(50) { "told" } else { "asked" };
            row.cascade.push(format!("{{ to = \"links.kids\", event = \"{event}\" }}"));
        }
        if self.plan.many.is_some() && chance.yes(20) {
            row.cascade.push("{ to = \"record.many\", event = \"told\" }".to_owned());
        }
        if self.plan.other.is_none() {
            return;
        }
        if chance.yes(15) {
            let event = if safe || chance.yes(50) { "told" } else { "asked" };
            let condition = if chance.yes(20) { ", if = \"record.count % 2 == 0\"" } else { "" };
            row.cascade.push(format!("{{ to = \"record.other\", event = \"{event}\"{condition} }}"));
        }
        if !safe && chance.yes(25) {
            let event = if chance.yes(70) { "asked" } else { "told" };
            let condition = if chance.yes(60) { ", if = \"record.other != null\"" } else { "" };
            row.require.push(format!("{{ to = \"record.other\", event = \"{event}\"{condition} }}"));
        }
    }
}
