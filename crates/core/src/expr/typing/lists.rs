//! List literals, and the calls that run over a list: `all`, `exists` and `filter`.

use std::ops::Range;
use std::sync::Arc;

use super::super::cost;
use super::super::parse::{Node, What};
use super::super::tree::{Comprehension, Kind};
use super::super::types::{join, name_of, typed};
use super::paths::is_root;
use super::typer::{Checked, Local, Lowered, Typer};
use crate::model::Type;

impl Typer<'_> {
    pub(super) fn list(&mut self, elements: &[Node], at: &Range<usize>, expected: Option<&Type>) -> Checked<Lowered> {
        let wanted = match expected {
            Some(Type::List(element)) => Some((**element).clone()),
            _ => None,
        };
        // Elements that say themselves what they are come first; the others are understood by them.
        let mut lowered: Vec<Option<Lowered>> = elements.iter().map(|_| None).collect();
        let mut joined = Type::Null;
        let mut failed = false;
        for open in [false, true] {
            for (index, element) in elements.iter().enumerate() {
                if self.is_open(element) != open {
                    continue;
                }
                let met = wanted.clone().or_else(|| (joined != Type::Null).then(|| joined.clone()));
                let Some(one) = self.infer(element, met.as_ref()) else {
                    failed = true;
                    continue;
                };
                if one.expr.typed.ty == Type::Null {
                    return self.error("maybe-null", &element.at, "a list holds no nulls", "leave it out");
                }
                if matches!(one.expr.typed.ty, Type::List(_)) {
                    let help = "join lists with `+`";
                    return self.error("type-mismatch", &element.at, "a list holds no lists", help);
                }
                let Some(both) = join(&joined, &one.expr.typed.ty) else {
                    let message = format!(
                        "a list holds one type: this is {}, another is {}",
                        name_of(&one.expr.typed.ty),
                        name_of(&joined)
                    );
                    return self.error("type-mismatch", &element.at, message, "convert it, or make two lists");
                };
                joined = both;
                lowered[index] = Some(one);
            }
        }
        if failed {
            return None;
        }
        if elements.is_empty() {
            joined = wanted.unwrap_or(Type::Null);
        }
        let parts: Vec<Lowered> = lowered.into_iter().flatten().collect();
        let total = cost::sum(parts.iter().map(|part| part.cost).chain([parts.len() as u64, 1]));
        let items = parts.len() as u64;
        let hops = parts.iter().map(|part| part.hops).max().unwrap_or(0);
        let kind = Kind::List(parts.into_iter().map(|part| part.expr).collect());
        Some(Lowered { items, hops, ..self.lowered(at, kind, typed(Type::List(Box::new(joined)), false), total) })
    }

    pub(super) fn comprehension(
        &mut self,
        how: Comprehension,
        name_at: &Range<usize>,
        range: &Node,
        arguments: &[Node],
        at: &Range<usize>,
        expected: Option<&Type>,
    ) -> Checked<Lowered> {
        let [variable, body] = arguments else {
            let help = "write list.all(x, condition on x)";
            return self.error("wrong-arguments", name_at, "a variable and an expression over it are wanted", help);
        };
        let What::Name(name) = &variable.what else {
            return self.error(
                "bad-expression",
                &variable.at,
                "this must be the name of a variable",
                "write a plain name",
            );
        };
        self.variable(name, &variable.at)?;
        let list = self.infer(range, if how == Comprehension::Filter { expected } else { None })?;
        let Type::List(element) = &list.expr.typed.ty else {
            let message = format!("this runs over a list, and {} is none", name_of(&list.expr.typed.ty));
            return self.error("type-mismatch", &range.at, message, "name a list field or a link");
        };
        let element = (**element).clone();
        let local = u16::try_from(self.locals.len()).unwrap_or(u16::MAX);
        self.locals.push(Local { name: name.clone(), ty: element.clone(), hops: list.hops });
        let before = self.facts.len();
        let lowered = self.condition(body);
        self.facts.truncate(before);
        self.locals.pop();
        let lowered = lowered?;
        let (ty, items, hops) = match how {
            Comprehension::All | Comprehension::Exists => (Type::Bool, 0, 0),
            Comprehension::Filter => (Type::List(Box::new(element)), list.items, list.hops),
        };
        let total = cost::comprehension(list.cost, list.items, lowered.cost);
        let kind = Kind::Comprehension { how, range: Box::new(list.expr), local, body: Box::new(lowered.expr) };
        Some(Lowered { items, hops, ..self.lowered(at, kind, typed(ty, false), total) })
    }

    fn variable(&mut self, name: &Arc<str>, at: &Range<usize>) -> Checked<()> {
        if is_root(name) || name.as_ref() == "now" || self.locals.iter().any(|local| local.name == *name) {
            let message = format!("`{name}` already means something here");
            return self.error("ambiguous-name", at, message, "choose another name for the variable");
        }
        Some(())
    }
}
