//! Ways to other records: `[links]` and `[refs]`.

use super::lifecycle::{Builder, View, want};
use super::shape;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr;
use crate::model::{Link, LinkSource, Lookup, Type};
use crate::syntax::ast::Text;

impl Builder<'_> {
    pub(super) fn links(&mut self) -> Vec<Link> {
        let source = self.source;
        let mut links = Vec::new();
        for link in &source.links {
            let from = link.from.iter().filter_map(|from| self.link_source(from)).collect();
            links.push(Link {
                name: link.name.text.clone(),
                from,
                max: link.max.map(|max| max.value),
                at: link.name.at(),
            });
        }
        links
    }

    fn link_source(&mut self, from: &Text) -> Option<LinkSource> {
        let Some((lifecycle, field)) = from.text.rsplit_once('.') else {
            self.link_problem(from, "it names no field", None);
            return None;
        };
        let named = |range: std::ops::Range<usize>| Text {
            text: from.text[range.clone()].into(),
            place: expr::Place { whole: from.part(range), content: None },
        };
        if !self.declarer().lifecycle(&named(0..lifecycle.len())) {
            return None;
        }
        let world = self.world;
        let signature = world.signatures.get(lifecycle)?;
        let slot = shape::slot(signature, &named(lifecycle.len() + 1..from.text.len()), &mut self.out)?;
        let declared = &signature.fields[usize::from(slot)];
        let target = match &declared.ty {
            Type::List(of) => of,
            other => other,
        };
        if !matches!(target, Type::Ref(to) if to.contains(&self.own.name)) {
            self.link_problem(from, &format!("that field does not point to {}", self.own.name), Some(declared.at));
            return None;
        }
        Some(LinkSource { lifecycle: lifecycle.into(), field: field.into() })
    }

    fn link_problem(&mut self, from: &Text, why: &str, declared: Option<Span>) {
        let mut diagnostic = Diagnostic::error(
            "not-a-link",
            from.at(),
            format!("`{}` cannot be followed: {why}", from.text),
        )
        .label("not a ref to this lifecycle")
        .help("name a `ref` or `refs` field of another lifecycle that may point here, as \"relay.submission.job\"");
        if let Some(declared) = declared {
            diagnostic = diagnostic.also(declared, "declared here");
        }
        self.report(diagnostic);
    }

    pub(super) fn lookups(&mut self) -> Vec<Lookup> {
        let source = self.source;
        let mut lookups = Vec::new();
        for lookup in &source.lookups {
            if !self.declarer().lifecycle(&lookup.to) {
                continue;
            }
            let world = self.world;
            let Some(target) = world.signatures.get(&lookup.to.text) else { continue };
            let Some(field) = target.key.as_ref().and_then(|key| target.fields.iter().find(|field| field.name == *key))
            else {
                self.report(
                    Diagnostic::error("no-natural-key", lookup.to.at(), format!("{} has no natural key", target.name))
                        .label("nothing to find its records by")
                        .help("give that lifecycle a `key`, or keep a `ref` field here"),
                );
                continue;
            };
            let ty = match &field.ty {
                Type::Enum(_) => Type::Text,
                other => other.clone(),
            };
            let view = View { actor: true, ..View::default() };
            let Some(key) = self.formula(&lookup.key, view, &want(ty, true)) else { continue };
            lookups.push(Lookup {
                name: lookup.name.text.clone(),
                lifecycle: target.name.clone(),
                key,
                at: lookup.name.at(),
            });
        }
        lookups
    }
}
