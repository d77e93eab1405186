//! `[who]`, `[access]` and `by`: callers by name.

use super::lifecycle::{Builder, View, want};
use crate::diagnostic::Diagnostic;
use crate::model::{Access, By, Type, Who};
use crate::near;
use crate::syntax::ast::Text;

impl Builder<'_> {
    pub(super) fn who(&mut self) -> Vec<Who> {
        let source = self.source;
        let view = View { actor: true, now: true, lookups: true, links: true, ..View::default() };
        let mut callers = Vec::new();
        for who in &source.who {
            let Some(formula) = self.formula(&who.is, view, &want(Type::Bool, false)) else { continue };
            callers.push(Who { name: who.name.text.clone(), formula, rules: who.rules.clone(), at: who.name.at() });
        }
        callers
    }

    pub(super) fn access(&mut self) -> Vec<Access> {
        let source = self.source;
        let Some(read) = &source.access else { return vec![Access::By(By::Owner)] };
        let mut access = Vec::new();
        for name in read {
            match &*name.text {
                "anyone" => access.push(Access::Anyone),
                _ => access.extend(self.caller(name, &["owner", "operator", "anyone"]).map(Access::By)),
            }
        }
        access
    }

    /// A caller by name: one that every lifecycle knows, as far as it is allowed here, or an entry of `[who]`.
    pub(super) fn caller(&mut self, name: &Text, allowed: &[&str]) -> Option<By> {
        let text: &str = &name.text;
        let known = match text {
            "owner" => Some(By::Owner),
            "operator" => Some(By::Operator),
            "worker" => Some(By::Worker),
            "record" => Some(By::Record),
            _ => None,
        };
        if let Some(by) = known
            && allowed.contains(&text)
        {
            return Some(by);
        }
        let found = self.source.who.iter().position(|who| *who.name.text == *text);
        if found.is_none() {
            let callers = allowed.iter().copied().chain(self.source.who.iter().map(|who| &*who.name.text));
            let help =
                if matches!(text, "anyone" | "anybody" | "everyone" | "any" | "*") && !allowed.contains(&"anyone") {
                    "leave `by` out: then every key that may write is let in".to_owned()
                } else {
                    near::advice(self.told(), text, "callers that may stand here", callers)
                };
            self.report(
                Diagnostic::error("unknown-caller", name.at(), format!("`{text}` is nobody that may stand here"))
                    .label("not a caller")
                    .help(help),
            );
        }
        found.and_then(|at| u16::try_from(at).ok()).map(By::Who)
    }
}
