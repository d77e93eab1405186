//! Names with dots: from a root, by hops from record to record, to a value.

use std::ops::Range;
use std::sync::Arc;

use super::super::cost;
use super::super::parse::{Node, What};
use super::super::scope::Signature;
use super::super::suggest;
use super::super::tree::{ActorPart, ErrorPart, Kind, Path, Root, Step};
use super::super::types::{name_of, typed};
use super::typer::{Checked, Lowered, Typer};
use crate::bounds;
use crate::model::{Field, Type, Typed};

const ROOTS: [&str; 8] = ["record", "input", "result", "error", "checks", "refs", "links", "actor"];

pub(super) const META: [&str; 10] =
    ["id", "state", "owner", "version", "attempt", "hold", "created_at", "updated_at", "started_at", "finished_at"];

type Segment<'n> = (&'n Arc<str>, &'n Range<usize>);

/// A path as far as it has been read.
struct Reading {
    path: Path,
    typed: Typed,
    items: u64,
    hops: usize,
}

fn number(index: usize) -> u16 {
    // Every list of names in a file is bounded far below this.
    u16::try_from(index).unwrap_or(u16::MAX)
}

fn word(ty: &Type) -> &'static str {
    match ty {
        Type::Json => "json is opaque: it can be passed on and compared with null, not read",
        Type::List(_) => "look into a list with `in`, `exists`, `all` or `filter`",
        _ => "only refs lead on to fields",
    }
}

pub(super) fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

impl Typer<'_> {
    /// Everything an expression may begin with here.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        ROOTS.into_iter().chain(["now"]).chain(self.locals.iter().map(|local| &*local.name))
    }

    /// A variable or `now`, standing alone.
    pub(super) fn root_value(&self, name: &str, at: &Range<usize>) -> Lowered {
        match self.local(name) {
            Some(reading) => {
                let lowered = self.read(at, reading.path.root, reading.typed);
                Lowered { items: reading.items, hops: reading.hops, ..lowered }
            }
            None => self.read(at, Root::Now, typed(Type::Time, false)),
        }
    }

    /// `record` or `now` where it cannot be used by itself, or at all.
    pub(super) fn root_alone(&mut self, name: &str, at: &Range<usize>) -> Checked<Lowered> {
        match name {
            "now" => self.not_here("now", at, "the time is not known"),
            "record" => self.error(
                "bad-expression",
                at,
                "`record` is not a value by itself",
                "name a field, or write record.id for a ref to the record",
            ),
            _ => self.error(
                "bad-expression",
                at,
                format!("`{name}` is not a value by itself"),
                format!("name what you want of it: {name}.NAME"),
            ),
        }
    }

    fn not_here<T>(&mut self, name: &str, at: &Range<usize>, why: &str) -> Checked<T> {
        self.error(
            "not-here",
            at,
            format!("`{name}` cannot be read here: {why}"),
            "use it where it is known, or keep it in a field",
        )
    }

    fn local(&self, name: &str) -> Option<Reading> {
        let index = self.locals.iter().rposition(|local| *local.name == *name)?;
        let local = &self.locals[index];
        Some(Reading {
            path: Path { root: Root::Local(number(index)), steps: Vec::new(), doubtful: Vec::new() },
            typed: typed(local.ty.clone(), false),
            // No list holds lists.
            items: 0,
            hops: local.hops,
        })
    }

    /// A select, read from its root outwards.
    pub(super) fn path(&mut self, node: &Node) -> Checked<Lowered> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut part = node;
        while let What::Select { of, field, field_at } = &part.what {
            segments.push((field, field_at));
            part = of;
        }
        segments.reverse();
        let What::Name(root) = &part.what else {
            return self.error(
                "not-in-subset",
                &part.at,
                "fields are read from names only, not from what an operator or a call gives",
                "name the path in full",
            );
        };
        let (mut reading, used) = self.root(root, &part.at, &segments)?;
        for (name, at) in &segments[used..] {
            reading = self.step(reading, name, at)?;
        }
        if reading.hops > bounds::HOPS {
            let message = format!("the path goes over {} records; at most {} are allowed", reading.hops, bounds::HOPS);
            return self.error("too-many-hops", &node.at, message, "keep what is needed in a field nearer by");
        }
        let Reading { path, typed, items, hops } = reading;
        let nullable = typed.nullable && !self.facts.contains(&path);
        let cost = path.steps.len() as u64 + 1;
        Some(Lowered { items, hops, ..self.lowered(&node.at, Kind::Read(path), Typed { nullable, ..typed }, cost) })
    }

    /// The root of a path, and how many of its segments name it.
    fn root(&mut self, name: &Arc<str>, at: &Range<usize>, segments: &[Segment]) -> Checked<(Reading, usize)> {
        if let Some(local) = self.local(name) {
            return Some((local, 0));
        }
        let scope = self.scope;
        let (part, part_at) = segments[0];
        match name.as_ref() {
            "record" => {
                let ty = Type::Ref([scope.own.name.clone()].into());
                Some((start(Root::Record, typed(ty, false), 0), 0))
            }
            "input" => match scope.input {
                Some(fields) => self.declared(fields, part, part_at, "input", Root::Input),
                None => self.not_here("input", at, "this event carries none"),
            },
            "result" => match scope.result {
                Some(fields) => self.declared(fields, part, part_at, "result", Root::Result),
                None => self.not_here("result", at, "only commit rows of a lifecycle that types its result have one"),
            },
            "error" if !scope.error => self.not_here("error", at, "only fail rows have one"),
            "error" => self.error_part(part, part_at),
            "actor" if !scope.actor => self.not_here("actor", at, "nobody acts"),
            "actor" => self.actor_part(part, part_at),
            "checks" => self.check(segments),
            "refs" => self.lookup(part, part_at),
            "links" => self.link(part, part_at),
            "now" => self.error("unknown-field", part_at, "a time has no fields", "compare it, or take int(now)"),
            _ => {
                let help = match self.meant(name) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => suggest::help(self.told(), name, ROOTS),
                };
                self.error("unknown-name", at, format!("nothing is called `{name}` here"), help)
            }
        }
    }

    fn declared(
        &mut self,
        fields: &[Field],
        name: &str,
        at: &Range<usize>,
        of: &str,
        root: impl Fn(u16) -> Root,
    ) -> Checked<(Reading, usize)> {
        let Some(index) = fields.iter().position(|field| *field.name == *name) else {
            let help = suggest::help(self.told(), name, fields.iter().map(|field| &*field.name));
            return self.error("unknown-field", at, format!("{of} has no `{name}`"), help);
        };
        Some((start_field(root(number(index)), &fields[index]), 1))
    }

    fn error_part(&mut self, name: &str, at: &Range<usize>) -> Checked<(Reading, usize)> {
        let (part, typed) = match name {
            "code" => (ErrorPart::Code, typed(Type::Text, false)),
            "message" => (ErrorPart::Message, typed(Type::Text, false)),
            "retryable" => (ErrorPart::Retryable, typed(Type::Bool, false)),
            "retryAfter" => (ErrorPart::RetryAfter, typed(Type::Duration, true)),
            _ => {
                let help = suggest::help(self.told(), name, ["code", "message", "retryable", "retryAfter"]);
                return self.error("unknown-field", at, format!("error has no `{name}`"), help);
            }
        };
        Some((start(Root::Error(part), typed, 0), 1))
    }

    fn actor_part(&mut self, name: &str, at: &Range<usize>) -> Checked<(Reading, usize)> {
        let (part, ty) = match name {
            "id" => (ActorPart::Id, Type::Text),
            "roles" => (ActorPart::Roles, Type::List(Box::new(Type::Text))),
            "capabilities" => (ActorPart::Capabilities, Type::List(Box::new(Type::Text))),
            "user" => (ActorPart::User, Type::Bool),
            _ => {
                let help = suggest::help(self.told(), name, ["id", "roles", "capabilities", "user"]);
                return self.error("unknown-field", at, format!("actor has no `{name}`"), help);
            }
        };
        let items = if matches!(ty, Type::List(_)) { bounds::LIST_ITEMS as u64 } else { 0 };
        Some((start(Root::Actor(part), typed(ty, false), items), 1))
    }

    fn check(&mut self, segments: &[Segment]) -> Checked<(Reading, usize)> {
        let checks = self.scope.checks;
        let (name, at) = segments[0];
        let Some(index) = checks.iter().position(|(check, _)| check == name) else {
            let help = suggest::help(self.told(), name, checks.iter().map(|(check, _)| &**check));
            return self.error("unknown-check", at, format!("no check is called `{name}`"), help);
        };
        let answer = &checks[index].1;
        let Some((part, part_at)) = segments.get(1) else {
            let help = suggest::help(self.told(), "", answer.iter().map(|field| &*field.name));
            return self.error("unknown-field", at, "a check is read by the parts of its answer", help);
        };
        let Some(found) = answer.iter().position(|field| field.name == **part) else {
            let help = suggest::help(self.told(), part, answer.iter().map(|field| &*field.name));
            return self.error("unknown-field", part_at, format!("the answer of `{name}` has no `{part}`"), help);
        };
        let root = Root::Answer { check: number(index), part: number(found) };
        Some((start_field(root, &answer[found]), 2))
    }

    fn lookup(&mut self, name: &Arc<str>, at: &Range<usize>) -> Checked<(Reading, usize)> {
        let lookups = self.scope.lookups;
        let Some(index) = lookups.iter().position(|(lookup, _)| lookup == name) else {
            let help = suggest::help(self.told(), name, lookups.iter().map(|(lookup, _)| &**lookup));
            return self.error("unknown-ref", at, format!("[refs] has no `{name}`"), help);
        };
        let ty = Type::Ref([lookups[index].1.clone()].into());
        Some((start(Root::Lookup(number(index)), typed(ty, true), 0), 1))
    }

    fn link(&mut self, name: &Arc<str>, at: &Range<usize>) -> Checked<(Reading, usize)> {
        let links = self.scope.links;
        let Some(index) = links.iter().position(|(link, _, _)| link == name) else {
            let help = suggest::help(self.told(), name, links.iter().map(|(link, _, _)| &**link));
            return self.error("unknown-link", at, format!("[links] has no `{name}`"), help);
        };
        let (_, lifecycles, most) = &links[index];
        let items = match most {
            Some(most) => u64::from(*most),
            None if self.unbounded_link => 0,
            None => {
                let message = format!("`{name}` has no bound, so that nobody knows how much there is to read");
                return self.error("unbounded-link", at, message, "give it a `max` in [links]");
            }
        };
        let ty = Type::List(Box::new(Type::Ref(lifecycles.as_slice().into())));
        Some((start(Root::Link(number(index)), typed(ty, false), items), 1))
    }

    /// One step further, from a ref into its record.
    fn step(&mut self, from: Reading, name: &Arc<str>, at: &Range<usize>) -> Checked<Reading> {
        let Type::Ref(lifecycles) = &from.typed.ty else {
            let message = format!("`{name}` cannot be read from {}", name_of(&from.typed.ty));
            return self.error("unknown-field", at, message, word(&from.typed.ty));
        };
        let lifecycles = lifecycles.clone();
        let Reading { mut path, typed: before, mut hops, .. } = from;
        if before.nullable && !self.facts.contains(&path) {
            path.doubtful.push(u8::try_from(path.steps.len()).unwrap_or(u8::MAX));
        }
        let own = path.root == Root::Record && path.steps.is_empty();
        let (step, typed, items) = if META.contains(&name.as_ref()) {
            let (step, typed) = self.meta(name, &lifecycles, at)?;
            (step, typed, 0)
        } else {
            self.field(name, &lifecycles, at)?
        };
        if !own && step != Step::Id {
            hops += 1;
        }
        path.steps.push(step);
        Some(Reading { path, typed, items, hops })
    }

    fn signature(&mut self, lifecycle: &Arc<str>, at: &Range<usize>) -> Checked<&Signature> {
        let scope = self.scope;
        if scope.own.name == *lifecycle {
            return Some(scope.own);
        }
        let found = scope.signatures.get(lifecycle);
        if found.is_none() {
            let help = suggest::help(self.told(), lifecycle, scope.signatures.keys().map(|name| &**name));
            return self.error("unknown-lifecycle", at, format!("no lifecycle is called `{lifecycle}`"), help);
        }
        found
    }

    fn meta(&mut self, name: &str, lifecycles: &Arc<[Arc<str>]>, at: &Range<usize>) -> Checked<(Step, Typed)> {
        Some(match name {
            "id" => (Step::Id, typed(Type::Ref(lifecycles.clone()), false)),
            "state" => {
                let mut states: Vec<Arc<str>> = Vec::new();
                for lifecycle in lifecycles.iter() {
                    for state in &self.signature(lifecycle, at)?.states {
                        if !states.contains(state) {
                            states.push(state.clone());
                        }
                    }
                }
                (Step::State, typed(Type::Enum(states.into()), false))
            }
            "owner" => (Step::Owner, typed(Type::Text, false)),
            "version" => (Step::Version, typed(Type::Int, false)),
            "attempt" => (Step::Attempt, typed(Type::Int, false)),
            "hold" => (Step::Hold, typed(Type::Int, false)),
            "created_at" => (Step::CreatedAt, typed(Type::Time, false)),
            "updated_at" => (Step::UpdatedAt, typed(Type::Time, false)),
            "started_at" => (Step::StartedAt, typed(Type::Time, true)),
            _ => (Step::FinishedAt, typed(Type::Time, true)),
        })
    }

    /// A declared field, which every lifecycle the ref may lead to must have with the same type.
    fn field(&mut self, name: &Arc<str>, lifecycles: &[Arc<str>], at: &Range<usize>) -> Checked<(Step, Typed, u64)> {
        let mut found: Option<(Step, Typed, u64)> = None;
        for lifecycle in lifecycles {
            let told = self.told();
            let signature = self.signature(lifecycle, at)?;
            let Some(slot) = signature.fields.iter().position(|field| field.name == *name) else {
                let known = signature.fields.iter().map(|field| &*field.name).chain(META);
                let help = suggest::help(told, name, known);
                return self.error("unknown-field", at, format!("`{lifecycle}` has no field `{name}`"), help);
            };
            let field = &signature.fields[slot];
            let items = cost::items(&field.ty, &field.bounds);
            found = match found {
                None => Some((
                    Step::Field { name: name.clone(), slot: number(slot) },
                    typed(field.ty.clone(), field.nullable),
                    items,
                )),
                Some((step, other, most)) if other.ty == field.ty => {
                    Some((step, typed(other.ty, other.nullable || field.nullable), most.max(items)))
                }
                Some((_, other, _)) => {
                    let message = format!(
                        "`{name}` is {} in one lifecycle and {} in `{lifecycle}`",
                        name_of(&other.ty),
                        name_of(&field.ty)
                    );
                    return self.error("type-mismatch", at, message, "read only what all of them declare alike");
                }
            };
        }
        match found {
            Some(found) => Some(found),
            None => self.error("unknown-field", at, "the ref leads to no lifecycle", "declare what it refers to"),
        }
    }
}

fn start(root: Root, typed: Typed, items: u64) -> Reading {
    Reading { path: Path { root, steps: Vec::new(), doubtful: Vec::new() }, typed, items, hops: 0 }
}

fn start_field(root: Root, field: &Field) -> Reading {
    start(root, typed(field.ty.clone(), field.nullable), cost::items(&field.ty, &field.bounds))
}
