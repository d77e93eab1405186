//! One lifecycle: its declarations resolved, its rows put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::declared::Declarer;
use super::shape::{self, Shapes};
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::expr::{self, Scope, Signature, Signatures, Want};
use crate::model::{
    Access, By, Clash, Clock, ErrorTable, Field, Formula, KeyPart, Lifecycle, Limit, Link, LinkSource, Lookup, PayloadBounds,
    Ready, State, StateIx, StateSet, Type, Typed, Unique, Who,
};
use crate::syntax::ast::{self, Source, Text};
use crate::syntax::near;

/// What all lifecycles that are compiled together may know of each other.
pub(super) struct World {
    pub(super) lifecycles: BTreeSet<Arc<str>>,
    pub(super) signatures: Signatures,
    pub(super) shapes: BTreeMap<Arc<str>, Shapes>,
    pub(super) payloads: BTreeMap<Arc<str>, PayloadBounds>,
}

/// The names an expression may use besides `record`.
#[derive(Clone, Copy, Default)]
pub(super) struct View<'v> {
    pub(super) input: Option<&'v [Field]>,
    pub(super) result: bool,
    pub(super) error: bool,
    pub(super) checks: bool,
    pub(super) lookups: bool,
    pub(super) links: bool,
    pub(super) actor: bool,
    pub(super) now: bool,
}

pub(super) struct Builder<'a> {
    pub(super) source: &'a Source,
    pub(super) own: &'a Signature,
    pub(super) world: &'a World,
    pub(super) checks: Vec<(Arc<str>, Vec<Field>)>,
    pub(super) result: Option<Vec<Field>>,
    lookups: Vec<(Arc<str>, Arc<str>)>,
    links: Vec<(Arc<str>, Vec<Arc<str>>, Option<u32>)>,
    pub(super) out: Vec<Diagnostic>,
}

pub(super) fn payload_bounds(source: &Source, out: &mut Vec<Diagnostic>) -> PayloadBounds {
    let Some(payload) = &source.payload else { return PayloadBounds { min: 0, max: bounds::PAYLOAD_BYTES } };
    let min = payload.min.map_or(0, |min| min.value);
    let max = payload.max.map_or(bounds::PAYLOAD_BYTES.max(min), |max| max.value);
    if let Some(at) = payload.max.filter(|max| max.value < min).map(|max| max.at) {
        out.push(
            Diagnostic::error("invalid-bound", at, "no payload could be given at all")
                .label("`max` is below `min`")
                .help("make `max` at least as large as `min`"),
        );
    }
    PayloadBounds { min, max }
}

pub(super) const fn want(ty: Type, nullable: bool) -> Want {
    Want::Fits(Typed { ty, nullable })
}

impl<'a> Builder<'a> {
    pub(super) fn new(source: &'a Source, own: &'a Signature, world: &'a World) -> Self {
        Self { source, own, world, checks: Vec::new(), result: None, lookups: Vec::new(), links: Vec::new(), out: Vec::new() }
    }

    /// The whole lifecycle, without its hash. Only to be used where nothing was reported.
    pub(super) fn build(mut self) -> (Lifecycle, Vec<Diagnostic>) {
        self.names();
        let source = self.source;
        let key = source.key.as_ref().and_then(|key| self.natural_key(key));
        let links = self.links();
        self.links = links
            .iter()
            .map(|link| (link.name.clone(), link.from.iter().map(|from| from.lifecycle.clone()).collect(), link.max))
            .collect();
        let lookups = self.lookups();
        self.lookups = lookups.iter().map(|lookup| (lookup.name.clone(), lookup.lifecycle.clone())).collect();
        self.declare_answers();
        let (events, readers) = self.events();
        let lifecycle = Lifecycle {
            name: source.lifecycle.text.clone(),
            about: about(source.about.as_ref()),
            hash: "".into(),
            key,
            asset: source.asset.as_ref().map(|asset| asset.text.clone()),
            outside: self.outside(),
            clock: if source.operation_clock.is_some() { Clock::Operation } else { Clock::Engine },
            states: self.states(),
            fields: self.own.fields.clone(),
            uniques: self.uniques(key),
            limits: self.limits(),
            work: self.work(),
            errors: source.errors.as_ref().map_or_else(ErrorTable::default, |errors| ErrorTable {
                retryable: errors.retryable.iter().map(|code| code.text.clone()).collect(),
                terminal: errors.terminal.iter().map(|code| code.text.clone()).collect(),
                rules: errors.rules.clone(),
            }),
            checks: self.asks(&readers),
            lookups,
            who: self.who(),
            access: self.access(),
            payload: self.world.payloads.get(&source.lifecycle.text).copied().unwrap_or(PayloadBounds { min: 0, max: 0 }),
            links,
            events,
        };
        (lifecycle, self.out)
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.out.push(diagnostic);
    }

    pub(super) fn declarer(&mut self) -> Declarer<'_> {
        Declarer { lifecycles: &self.world.lifecycles, out: &mut self.out }
    }

    /// Compile one expression; what is wrong with it is reported.
    pub(super) fn expr(&mut self, text: &str, place: expr::Place, view: View, want: &Want) -> Option<expr::Expr> {
        match self.try_expr(text, place, view, want) {
            Ok(expr) => Some(expr),
            Err(diagnostics) => {
                self.out.extend(diagnostics);
                None
            }
        }
    }

    pub(super) fn try_expr(&self, text: &str, place: expr::Place, view: View, want: &Want) -> Result<expr::Expr, Vec<Diagnostic>> {
        let scope = Scope {
            signatures: &self.world.signatures,
            own: self.own,
            input: view.input,
            result: self.result.as_deref().filter(|_| view.result),
            error: view.error,
            checks: if view.checks { &self.checks } else { &[] },
            lookups: if view.lookups { &self.lookups } else { &[] },
            links: if view.links { &self.links } else { &[] },
            actor: view.actor,
            now: view.now,
        };
        expr::compile(text, place, &scope, want)
    }

    pub(super) fn formula(&mut self, text: &Text, view: View, want: &Want) -> Option<Formula> {
        let expr = self.expr(&text.text, text.place, view, want)?;
        Some(Formula { expr, text: text.text.clone() })
    }

    pub(super) fn state(&mut self, name: &Text) -> Option<StateIx> {
        self.state_at(&name.text, name.at())
    }

    pub(super) fn state_at(&mut self, name: &str, at: crate::diagnostic::Span) -> Option<StateIx> {
        let found = self.own.states.iter().position(|state| **state == *name);
        if found.is_none() {
            let help = near::advice(name, "states", self.own.states.iter().map(|state| &**state));
            self.report(
                Diagnostic::error("unknown-state", at, format!("{} has no state `{name}`", self.own.name))
                    .label("not declared in [states]")
                    .help(help),
            );
        }
        found.and_then(|at| StateIx::try_from(at).ok())
    }

    fn state_set(&mut self, names: &[Text]) -> StateSet {
        names.iter().filter_map(|name| self.state(name)).collect()
    }

    fn names(&mut self) {
        let source = self.source;
        for who in &source.who {
            if matches!(&*who.name.text, "owner" | "operator" | "worker" | "record" | "anyone") {
                self.declarer().reserved_name(&who.name, "a caller", "every lifecycle knows it already");
            }
        }
        if source.states.is_empty() {
            self.report(
                Diagnostic::error("no-states", source.lifecycle.at(), format!("{} has no states", self.own.name))
                    .label("nothing to be in")
                    .help("declare at least one under [states], as DONE = { final = true }"),
            );
        }
    }

    fn natural_key(&mut self, key: &Text) -> Option<crate::model::Slot> {
        let slot = shape::slot(self.own, key, &mut self.out)?;
        let field = &self.own.fields[usize::from(slot)];
        if !matches!(field.ty, Type::Text | Type::Int | Type::Enum(_)) {
            let at = field.at;
            self.report(
                Diagnostic::error("invalid-key", key.at(), format!("`{}` cannot be a natural key", key.text))
                    .label("neither a string nor an int")
                    .also(at, "declared here")
                    .help("a natural key is a string or an int field"),
            );
            return None;
        }
        Some(slot)
    }

    fn states(&mut self) -> Vec<State> {
        let source = self.source;
        let mut states = Vec::new();
        for state in &source.states {
            let ready = match &state.ready {
                None => Ready::No,
                Some(ast::Ready::Yes(_)) => Ready::Yes,
                Some(ast::Ready::From(field)) => self.time_field(field).map_or(Ready::No, Ready::From),
            };
            self.state_placement(state);
            states.push(State {
                name: state.name.text.clone(),
                about: about(state.about.as_ref()),
                ready,
                is_final: state.is_final.is_some(),
                rest: state.rest.is_some(),
                reserved: state.reserved.is_some(),
                rules: state.rules.clone(),
                at: state.name.at(),
            });
        }
        states
    }

    /// A field that holds a time.
    pub(super) fn time_field(&mut self, name: &Text) -> Option<crate::model::Slot> {
        let slot = shape::slot(self.own, name, &mut self.out)?;
        let field = &self.own.fields[usize::from(slot)];
        if field.ty != Type::Time {
            let at = field.at;
            self.report(
                Diagnostic::error("not-a-time", name.at(), format!("`{}` is not a time field", name.text))
                    .label("a time is needed here")
                    .also(at, "declared here")
                    .help("name a field with type = \"time\""),
            );
            return None;
        }
        Some(slot)
    }

    fn links(&mut self) -> Vec<Link> {
        let source = self.source;
        let mut links = Vec::new();
        for link in &source.links {
            let from = link.from.iter().filter_map(|from| self.link_source(from)).collect();
            links.push(Link { name: link.name.text.clone(), from, max: link.max.map(|max| max.value), at: link.name.at() });
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

    fn link_problem(&mut self, from: &Text, why: &str, declared: Option<crate::diagnostic::Span>) {
        let mut diagnostic = Diagnostic::error("not-a-link", from.at(), format!("`{}` cannot be followed: {why}", from.text))
            .label("not a ref to this lifecycle")
            .help("name a `ref` or `refs` field of another lifecycle that may point here, as \"relay.submission.job\"");
        if let Some(declared) = declared {
            diagnostic = diagnostic.also(declared, "declared here");
        }
        self.report(diagnostic);
    }

    fn lookups(&mut self) -> Vec<Lookup> {
        let source = self.source;
        let mut lookups = Vec::new();
        for lookup in &source.lookups {
            if !self.declarer().lifecycle(&lookup.to) {
                continue;
            }
            let world = self.world;
            let Some(target) = world.signatures.get(&lookup.to.text) else { continue };
            let Some(field) = target.key.as_ref().and_then(|key| target.fields.iter().find(|field| field.name == *key)) else {
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
            lookups.push(Lookup { name: lookup.name.text.clone(), lifecycle: target.name.clone(), key, at: lookup.name.at() });
        }
        lookups
    }

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
                        Diagnostic::error("duplicate-part", name.at(), format!("`{}` stands in the key twice", name.text))
                            .label("a second time")
                            .help("keep it once"),
                    );
                }
                parts.push(part);
            }
        }
        parts
    }

    pub(super) fn empty_key(&mut self, at: crate::diagnostic::Span, message: &str) {
        self.report(
            Diagnostic::error("empty-key", at, message).label("`on` is empty").help("list the fields that make the key"),
        );
    }

    fn uniques(&mut self, key: Option<crate::model::Slot>) -> Vec<Unique> {
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

    fn limits(&mut self) -> Vec<Limit> {
        let source = self.source;
        let mut limits = Vec::new();
        for limit in &source.limits {
            if let (Some(within), Some(per)) = (&limit.within, &limit.per) {
                self.report(
                    Diagnostic::error("conflicting-keys", per.at, "a limit counts records in states or creations per window, not both")
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

    fn who(&mut self) -> Vec<Who> {
        let source = self.source;
        let view = View { actor: true, now: true, lookups: true, links: true, ..View::default() };
        let mut callers = Vec::new();
        for who in &source.who {
            let Some(formula) = self.formula(&who.is, view, &want(Type::Bool, false)) else { continue };
            callers.push(Who { name: who.name.text.clone(), formula, rules: who.rules.clone() });
        }
        callers
    }

    fn access(&mut self) -> Vec<Access> {
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
            let help = near::advice(text, "callers that may stand here", callers);
            self.report(
                Diagnostic::error("unknown-caller", name.at(), format!("`{text}` is nobody that may stand here"))
                    .label("not a caller")
                    .help(help),
            );
        }
        found.and_then(|at| u16::try_from(at).ok()).map(By::Who)
    }
}

pub(super) fn about(text: Option<&Text>) -> Arc<str> {
    text.map_or_else(|| "".into(), |text| text.text.clone())
}
