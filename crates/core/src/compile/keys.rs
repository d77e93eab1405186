//! `[unique]` and `[limit]`.

use super::lifecycle::{Builder, View, want};
use super::shape;
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{Clash, KeyPart, Limit, Slot, Type, Unique};
use crate::syntax::ast::{self, Text};

impl Builder<'_> {
    pub(super) fn key_parts(&mut self, on: &[Text]) -> Vec<KeyPart> {
        let mut parts = Vec::new();
        for name in on {
            let part = if &*name.text == "owner" {
                Some(KeyPart::Owner)
            } else {
                shape::slot(self.own, name, &mut self.out).map(KeyPart::Field)
            };
            if let Some(part) = part {
                if parts.contains(&part) {
                    self.report(
                        Diagnostic::error(
                            "duplicate-part",
                            name.at(),
                            format!("`{}` stands in the key twice", name.text),
                        )
                        .label("a second time")
                        .help("keep it once"),
                    );
                }
                parts.push(part);
            }
        }
        parts
    }

    pub(super) fn empty_key(&mut self, at: Span, message: &str) {
        self.report(
            Diagnostic::error("empty-key", at, message)
                .label("`on` is empty")
                .help("list the fields that make the key"),
        );
    }

    pub(super) fn uniques(&mut self, key: Option<Slot>) -> Vec<Unique> {
        let source = self.source;
        let mut uniques = Vec::new();
        if let (Some(slot), Some(name)) = (key, &source.key) {
            uniques.push(Unique {
                name: "key".into(),
                on: vec![KeyPart::Field(slot)],
                within: None,
                clash: Clash::Refuse { status: 409, code: "key_taken".into() },
                rules: Vec::new(),
                at: name.at(),
            });
        }
        for unique in &source.uniques {
            if &*unique.name.text == "key" {
                self.declarer().reserved_name(&unique.name, "a unique", "it is the natural key's");
            }
            if unique.on.is_empty() {
                self.empty_key(unique.name.at(), "a unique on nothing would allow one record in all");
            }
            let clash = match &unique.clash {
                ast::Clash::Return => Clash::Return,
                ast::Clash::Refuse(answer) => Clash::Refuse { status: answer.status, code: answer.code.clone() },
            };
            uniques.push(Unique {
                name: unique.name.text.clone(),
                on: self.key_parts(&unique.on),
                within: unique.within.as_ref().map(|states| self.state_set(states)),
                clash,
                rules: unique.rules.clone(),
                at: unique.name.at(),
            });
        }
        uniques
    }

    pub(super) fn limits(&mut self) -> Vec<Limit> {
        let source = self.source;
        let mut limits = Vec::new();
        for limit in &source.limits {
            if let (Some(within), Some(per)) = (&limit.within, &limit.per) {
                self.report(
                    Diagnostic::error(
                        "conflicting-keys",
                        per.at,
                        "a limit counts records in states or creations per window, not both",
                    )
                    .label("`per` here")
                    .also(within.at, "`in` here")
                    .help("make two limits of it"),
                );
            }
            let view = View { actor: true, now: true, lookups: true, links: true, ..View::default() };
            let on = self.key_parts(&limit.on);
            let within = limit.within.as_ref().map(|states| self.state_set(&states.value));
            let Some(max) = self.formula(&limit.max, view, &want(Type::Int, false)) else { continue };
            limits.push(Limit {
                name: limit.name.text.clone(),
                on,
                within,
                per: limit.per.map(|per| per.value),
                max,
                status: limit.clash.status,
                code: limit.clash.code.clone(),
                rules: limit.rules.clone(),
                at: limit.name.at(),
            });
        }
        limits
    }
}
