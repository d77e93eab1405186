//! One lifecycle: its declarations resolved, its rows put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::declared::Declarer;
use super::shape::{self, Shapes};
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::expr::{self, Scope, Signature, Signatures, Want};
use crate::model::{
    Clock, ErrorTable, Field, Formula, Lifecycle, PayloadBounds, Ready, State, StateIx, StateSet, Type, Typed,
};
use crate::near;
use crate::syntax::ast::{self, Source, Text};

/// What all lifecycles that are compiled together may know of each other.
pub(super) struct World {
    pub(super) lifecycles: BTreeSet<Arc<str>>,
    pub(super) signatures: Signatures,
    pub(super) shapes: BTreeMap<Arc<str>, Shapes>,
    pub(super) payloads: BTreeMap<Arc<str>, PayloadBounds>,
}

/// The names an expression may use besides `record`.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a name that may be visible by itself")]
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

/// A link's name, the lifecycles of its records, and its bound.
type LinkScope = (Arc<str>, Vec<Arc<str>>, Option<u32>);

pub(super) struct Builder<'a> {
    pub(super) source: &'a Source,
    pub(super) own: &'a Signature,
    pub(super) world: &'a World,
    pub(super) checks: Vec<(Arc<str>, Vec<Field>)>,
    pub(super) result: Option<Vec<Field>>,
    lookups: Vec<(Arc<str>, Arc<str>)>,
    links: Vec<LinkScope>,
    /// Paths that cannot be null in the rest of the row, because its guard or its refusals say so.
    pub(super) known: Vec<expr::Path>,
    /// The row's guard or one of its refusals cannot be read: what it would have ruled out is not known.
    pub(super) unsure: bool,
    pub(super) out: Vec<Diagnostic>,
    /// Messages about other files, before this one's.
    pub(super) before: usize,
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
    pub(super) fn new(source: &'a Source, own: &'a Signature, world: &'a World, before: usize) -> Self {
        Self {
            source,
            own,
            world,
            checks: Vec::new(),
            result: None,
            lookups: Vec::new(),
            links: Vec::new(),
            known: Vec::new(),
            unsure: false,
            out: Vec::new(),
            before,
        }
    }

    /// How many messages there are before the next.
    pub(super) fn told(&self) -> usize {
        self.before + self.out.len()
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
        // What reads a link or a lookup that is not right is not to blame: nothing more is told in that case.
        let wrong = self.out.len();
        let (events, readers) = if wrong == 0 { self.events() } else { (Vec::new(), Vec::new()) };
        let (outside, outside_at) = self.outside();
        let lifecycle = Lifecycle {
            name: source.lifecycle.text.clone(),
            about: about(source.about.as_ref()),
            hash: "".into(),
            key,
            asset: source.asset.as_ref().map(|asset| asset.text.clone()),
            outside,
            outside_at,
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
            payload: self
                .world
                .payloads
                .get(&source.lifecycle.text)
                .copied()
                .unwrap_or(PayloadBounds { min: 0, max: 0 }),
            links,
            events,
        };
        if wrong > 0 {
            self.out.truncate(wrong);
        }
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
                self.tell(diagnostics);
                None
            }
        }
    }

    /// What is wrong with an expression, but for what may only follow from a guard that cannot be read.
    pub(super) fn tell(&mut self, mut diagnostics: Vec<Diagnostic>) {
        if self.unsure {
            diagnostics.retain(|diagnostic| diagnostic.code != "maybe-null");
        }
        self.out.extend(diagnostics);
    }

    pub(super) fn try_expr(
        &self,
        text: &str,
        place: expr::Place,
        view: View,
        want: &Want,
    ) -> Result<expr::Expr, Vec<Diagnostic>> {
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
            told: self.told(),
        };
        let failed = match expr::compile(text, place, &scope, want) {
            Ok(expr) => return Ok(expr),
            Err(diagnostics) => diagnostics,
        };
        // A path that may be null by its type will do where the row has made sure that it is not.
        if let Want::Fits(Typed { ty, nullable: false }) = want
            && let Ok(mut expr) = expr::compile(text, place, &scope, &self::want(ty.clone(), true))
            && matches!(&expr.kind, expr::Kind::Read(path) if self.known.contains(path))
        {
            expr.typed.nullable = false;
            return Ok(expr);
        }
        if let Ok(expr) = expr::compile_knowing(text, place, &scope, want, &self.known) {
            return Ok(expr);
        }
        Err(failed)
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
            let help = near::advice(self.told(), name, "states", self.own.states.iter().map(|state| &**state));
            self.report(
                Diagnostic::error("unknown-state", at, format!("{} has no state `{name}`", self.own.name))
                    .label("not declared in [states]")
                    .help(help),
            );
        }
        found.and_then(|at| StateIx::try_from(at).ok())
    }

    pub(super) fn state_set(&mut self, names: &[Text]) -> StateSet {
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
}

pub(super) fn about(text: Option<&Text>) -> Arc<str> {
    text.map_or_else(|| "".into(), |text| text.text.clone())
}
