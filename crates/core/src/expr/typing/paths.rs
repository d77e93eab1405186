//! Types dotted paths: resolves the root and each step through refs.

use std::ops::Range;
use std::sync::Arc;

use super::super::cost;
use super::super::parse::{ParsedExpr, ParsedKind};
use super::super::scope::LifecycleSignature;
use super::super::suggest;
use super::super::tree::{ActorPart, ErrorPart, ExprKind, PathRoot, PathStep, ValuePath};
use super::super::types::{type_name, value_type};
use super::typer::{ExprTyper, TypedExpr, TypingResult};
use crate::bounds;
use crate::model::{DataType, FieldDef, ValueType};

const PATH_ROOT_NAMES: [&str; 8] = ["record", "input", "result", "error", "checks", "refs", "links", "actor"];

pub(super) const METADATA_NAMES: [&str; 10] =
    ["id", "state", "owner", "version", "attempt", "hold", "created_at", "updated_at", "started_at", "finished_at"];

type PathSegment<'n> = (&'n Arc<str>, &'n Range<usize>);

/// A path that is resolved up to a segment.
struct PartialPath {
    path: ValuePath,
    value_type: ValueType,
    max_items: u64,
    hops: usize,
}

fn to_index(index: usize) -> u16 {
    // The bounds of all name lists in a file are far below this.
    u16::try_from(index).unwrap_or(u16::MAX)
}

fn field_access_help(ty: &DataType) -> &'static str {
    match ty {
        DataType::Json => "use a declared field; json can only be passed on and compared with null",
        DataType::List(_) => "search a list with `in`, `exists`, `all` or `filter`",
        _ => "read fields of a ref",
    }
}

pub(super) fn is_path_root(name: &str) -> bool {
    PATH_ROOT_NAMES.contains(&name)
}

impl ExprTyper<'_> {
    /// Returns all names that an expression may start with.
    pub(super) fn visible_root_names(&self) -> impl Iterator<Item = &str> {
        PATH_ROOT_NAMES.into_iter().chain(["now"]).chain(self.locals.iter().map(|local| &*local.name))
    }

    /// Types a variable or `now` without further segments.
    pub(super) fn infer_root_value(&self, name: &str, range: &Range<usize>) -> TypedExpr {
        match self.resolve_variable(name) {
            Some(reading) => {
                let lowered = self.read_root(range, reading.path.root, reading.value_type);
                TypedExpr { max_items: reading.max_items, hops: reading.hops, ..lowered }
            }
            None => self.read_root(range, PathRoot::Now, value_type(DataType::Time, false)),
        }
    }

    /// Reports `record` or `now` where it is not a value or not visible.
    pub(super) fn report_bare_root(&mut self, name: &str, range: &Range<usize>) -> TypingResult<TypedExpr> {
        match name {
            "now" => self.report_not_visible("now", range, "the time is not available"),
            "record" => self.report_error(
                "invalid-expression",
                range,
                "`record` is not a value by itself",
                "name a field, or write record.id for a ref to the record",
            ),
            _ => self.report_error(
                "invalid-expression",
                range,
                format!("`{name}` is not a value by itself"),
                format!("name a part of it: {name}.NAME"),
            ),
        }
    }

    fn report_not_visible<T>(&mut self, name: &str, range: &Range<usize>, why: &str) -> TypingResult<T> {
        self.report_error(
            "not-available",
            range,
            format!("`{name}` is not available: {why}"),
            "use it where it is available, or set a field from it there",
        )
    }

    fn resolve_variable(&self, name: &str) -> Option<PartialPath> {
        let index = self.locals.iter().rposition(|local| *local.name == *name)?;
        let local = &self.locals[index];
        Some(PartialPath {
            path: ValuePath { root: PathRoot::Local(to_index(index)), steps: Vec::new(), nullable_steps: Vec::new() },
            value_type: value_type(local.ty.clone(), false),
            // Lists do not contain lists.
            max_items: 0,
            hops: local.hops,
        })
    }

    /// Types a select from its root outward.
    pub(super) fn infer_path(&mut self, node: &ParsedExpr) -> TypingResult<TypedExpr> {
        let mut segments: Vec<PathSegment> = Vec::new();
        let mut part = node;
        while let ParsedKind::Select { operand: of, field, field_range: field_at } = &part.kind {
            segments.push((field, field_at));
            part = of;
        }
        segments.reverse();
        let ParsedKind::Name(root) = &part.kind else {
            return self.report_error(
                "not-in-subset",
                &part.range,
                "only names have fields, not results of operators or calls",
                "write the full path",
            );
        };
        let (mut partial, used_segments) = self.resolve_root(root, &part.range, &segments)?;
        for (name, at) in &segments[used_segments..] {
            partial = self.resolve_step(partial, name, at)?;
        }
        if partial.hops > bounds::MAX_PATH_HOPS {
            let message =
                format!("the path crosses {} records; at most {} are allowed", partial.hops, bounds::MAX_PATH_HOPS);
            return self.report_error(
                "too-many-hops",
                &node.range,
                message,
                "copy the value into a field of a nearer record",
            );
        }
        let PartialPath { path, value_type: typed, max_items: items, hops } = partial;
        let nullable = typed.nullable && !self.non_null_paths.contains(&path);
        let cost = path.steps.len() as u64 + 1;
        Some(TypedExpr {
            max_items: items,
            hops,
            ..self.typed_expr(&node.range, ExprKind::Read(path), ValueType { nullable, ..typed }, cost)
        })
    }

    /// Resolves the root of a path, and returns how many segments it takes.
    fn resolve_root(
        &mut self,
        name: &Arc<str>,
        range: &Range<usize>,
        segments: &[PathSegment],
    ) -> TypingResult<(PartialPath, usize)> {
        if let Some(local) = self.resolve_variable(name) {
            return Some((local, 0));
        }
        let scope = self.scope;
        let (part, part_at) = segments[0];
        match name.as_ref() {
            "record" => {
                let ty = DataType::Ref([scope.own_signature.name.clone()].into());
                Some((start_path(PathRoot::Record, value_type(ty, false), 0), 0))
            }
            "input" => match scope.input {
                Some(fields) => self.resolve_declared(fields, part, part_at, "input", PathRoot::Input),
                None => self.report_not_visible("input", range, "the event has none"),
            },
            "result" => match scope.result {
                Some(fields) => self.resolve_declared(fields, part, part_at, "result", PathRoot::Result),
                None => self.report_not_visible(
                    "result",
                    range,
                    "only `commit` transitions of a lifecycle with a declared result have it",
                ),
            },
            "error" if !scope.error => self.report_not_visible("error", range, "only `fail` transitions have it"),
            "error" => self.resolve_error_part(part, part_at),
            "actor" if !scope.actor => self.report_not_visible("actor", range, "no caller acts"),
            "actor" => self.resolve_actor_part(part, part_at),
            "checks" => self.resolve_check(segments),
            "refs" => self.resolve_lookup(part, part_at),
            "links" => self.resolve_link(part, part_at),
            "now" => self.report_error("unknown-field", part_at, "a time has no fields", "compare it, or use int(now)"),
            _ => {
                let help = match self.guess_meant_name(name) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => suggest::suggestion_help(self.diagnostic_count(), name, PATH_ROOT_NAMES),
                };
                self.report_error("unknown-name", range, format!("the name `{name}` is unknown"), help)
            }
        }
    }

    fn resolve_declared(
        &mut self,
        fields: &[FieldDef],
        name: &str,
        range: &Range<usize>,
        root_name: &str,
        root: impl Fn(u16) -> PathRoot,
    ) -> TypingResult<(PartialPath, usize)> {
        let Some(index) = fields.iter().position(|field| *field.name == *name) else {
            let help = suggest::suggestion_help(self.diagnostic_count(), name, fields.iter().map(|field| &*field.name));
            return self.report_error("unknown-field", range, format!("{root_name} has no `{name}`"), help);
        };
        Some((start_field_path(root(to_index(index)), &fields[index]), 1))
    }

    fn resolve_error_part(&mut self, name: &str, range: &Range<usize>) -> TypingResult<(PartialPath, usize)> {
        let (part, typed) = match name {
            "code" => (ErrorPart::Code, value_type(DataType::Text, false)),
            "message" => (ErrorPart::Message, value_type(DataType::Text, false)),
            "retryable" => (ErrorPart::Retryable, value_type(DataType::Bool, false)),
            "retryAfter" => (ErrorPart::RetryAfter, value_type(DataType::Duration, true)),
            _ => {
                let help = suggest::suggestion_help(
                    self.diagnostic_count(),
                    name,
                    ["code", "message", "retryable", "retryAfter"],
                );
                return self.report_error("unknown-field", range, format!("error has no `{name}`"), help);
            }
        };
        Some((start_path(PathRoot::Error(part), typed, 0), 1))
    }

    fn resolve_actor_part(&mut self, name: &str, range: &Range<usize>) -> TypingResult<(PartialPath, usize)> {
        let (part, ty) = match name {
            "id" => (ActorPart::Id, DataType::Text),
            "roles" => (ActorPart::Roles, DataType::List(Box::new(DataType::Text))),
            "capabilities" => (ActorPart::Capabilities, DataType::List(Box::new(DataType::Text))),
            "user" => (ActorPart::User, DataType::Bool),
            _ => {
                let help =
                    suggest::suggestion_help(self.diagnostic_count(), name, ["id", "roles", "capabilities", "user"]);
                return self.report_error("unknown-field", range, format!("actor has no `{name}`"), help);
            }
        };
        let items = if matches!(ty, DataType::List(_)) { bounds::DEFAULT_MAX_LIST_ITEMS as u64 } else { 0 };
        Some((start_path(PathRoot::Actor(part), value_type(ty, false), items), 1))
    }

    fn resolve_check(&mut self, segments: &[PathSegment]) -> TypingResult<(PartialPath, usize)> {
        let checks = self.scope.checks;
        let (name, at) = segments[0];
        let Some(index) = checks.iter().position(|(check, _)| check == name) else {
            let help =
                suggest::suggestion_help(self.diagnostic_count(), name, checks.iter().map(|(check, _)| &**check));
            return self.report_error("unknown-check", at, format!("there is no check `{name}`"), help);
        };
        let answer = &checks[index].1;
        let Some((part, part_at)) = segments.get(1) else {
            let help = suggest::suggestion_help(self.diagnostic_count(), "", answer.iter().map(|field| &*field.name));
            return self.report_error("unknown-field", at, "read a part of the check's answer", help);
        };
        let Some(found) = answer.iter().position(|field| field.name == **part) else {
            let help = suggest::suggestion_help(self.diagnostic_count(), part, answer.iter().map(|field| &*field.name));
            return self.report_error(
                "unknown-field",
                part_at,
                format!("the answer of `{name}` has no `{part}`"),
                help,
            );
        };
        let root = PathRoot::Answer { check: to_index(index), part: to_index(found) };
        Some((start_field_path(root, &answer[found]), 2))
    }

    fn resolve_lookup(&mut self, name: &Arc<str>, range: &Range<usize>) -> TypingResult<(PartialPath, usize)> {
        let lookups = self.scope.lookups;
        let Some(index) = lookups.iter().position(|(lookup, _)| lookup == name) else {
            let help =
                suggest::suggestion_help(self.diagnostic_count(), name, lookups.iter().map(|(lookup, _)| &**lookup));
            return self.report_error("unknown-ref", range, format!("[refs] has no `{name}`"), help);
        };
        let ty = DataType::Ref([lookups[index].1.clone()].into());
        Some((start_path(PathRoot::Lookup(to_index(index)), value_type(ty, true), 0), 1))
    }

    fn resolve_link(&mut self, name: &Arc<str>, range: &Range<usize>) -> TypingResult<(PartialPath, usize)> {
        let links = self.scope.links;
        let Some(index) = links.iter().position(|(link, _, _)| link == name) else {
            let help =
                suggest::suggestion_help(self.diagnostic_count(), name, links.iter().map(|(link, _, _)| &**link));
            return self.report_error("unknown-link", range, format!("[links] has no `{name}`"), help);
        };
        let (_, lifecycles, max) = &links[index];
        let items = match max {
            Some(most) => u64::from(*most),
            None if self.allows_unbounded_link => 0,
            None => {
                let message = format!("the link `{name}` has no `max`, so the cost of reading it is unbounded");
                return self.report_error("unbounded-link", range, message, "give it a `max` in [links]");
            }
        };
        let ty = DataType::List(Box::new(DataType::Ref(lifecycles.as_slice().into())));
        Some((start_path(PathRoot::Link(to_index(index)), value_type(ty, false), items), 1))
    }

    /// Resolves one step from a ref into its record.
    fn resolve_step(&mut self, from: PartialPath, name: &Arc<str>, range: &Range<usize>) -> TypingResult<PartialPath> {
        let DataType::Ref(lifecycles) = &from.value_type.ty else {
            let message = format!("`{name}` cannot be read from {}", type_name(&from.value_type.ty));
            return self.report_error("unknown-field", range, message, field_access_help(&from.value_type.ty));
        };
        let lifecycles = lifecycles.clone();
        let PartialPath { mut path, value_type: before, mut hops, .. } = from;
        if before.nullable && !self.non_null_paths.contains(&path) {
            path.nullable_steps.push(u8::try_from(path.steps.len()).unwrap_or(u8::MAX));
        }
        let own = path.root == PathRoot::Record && path.steps.is_empty();
        let (step, typed, items) = if METADATA_NAMES.contains(&name.as_ref()) {
            let (step, typed) = self.resolve_metadata(name, &lifecycles, range)?;
            (step, typed, 0)
        } else {
            self.resolve_field(name, &lifecycles, range)?
        };
        if !own && step != PathStep::Id {
            hops += 1;
        }
        path.steps.push(step);
        Some(PartialPath { path, value_type: typed, max_items: items, hops })
    }

    fn find_signature(&mut self, lifecycle: &Arc<str>, range: &Range<usize>) -> TypingResult<&LifecycleSignature> {
        let scope = self.scope;
        if scope.own_signature.name == *lifecycle {
            return Some(scope.own_signature);
        }
        let found = scope.signatures.get(lifecycle);
        if found.is_none() {
            let help = suggest::suggestion_help(
                self.diagnostic_count(),
                lifecycle,
                scope.signatures.keys().map(|name| &**name),
            );
            return self.report_error("unknown-lifecycle", range, format!("there is no lifecycle `{lifecycle}`"), help);
        }
        found
    }

    fn resolve_metadata(
        &mut self,
        name: &str,
        lifecycles: &Arc<[Arc<str>]>,
        range: &Range<usize>,
    ) -> TypingResult<(PathStep, ValueType)> {
        Some(match name {
            "id" => (PathStep::Id, value_type(DataType::Ref(lifecycles.clone()), false)),
            "state" => {
                let mut states: Vec<Arc<str>> = Vec::new();
                for lifecycle in lifecycles.iter() {
                    for state in &self.find_signature(lifecycle, range)?.states {
                        if !states.contains(state) {
                            states.push(state.clone());
                        }
                    }
                }
                (PathStep::State, value_type(DataType::Enum(states.into()), false))
            }
            "owner" => (PathStep::Owner, value_type(DataType::Text, false)),
            "version" => (PathStep::Version, value_type(DataType::Int, false)),
            "attempt" => (PathStep::Attempt, value_type(DataType::Int, false)),
            "hold" => (PathStep::Hold, value_type(DataType::Int, false)),
            "created_at" => (PathStep::CreatedAt, value_type(DataType::Time, false)),
            "updated_at" => (PathStep::UpdatedAt, value_type(DataType::Time, false)),
            "started_at" => (PathStep::StartedAt, value_type(DataType::Time, true)),
            _ => (PathStep::FinishedAt, value_type(DataType::Time, true)),
        })
    }

    /// Resolves a declared field. Every lifecycle that the ref allows must have it with the same type.
    fn resolve_field(
        &mut self,
        name: &Arc<str>,
        lifecycles: &[Arc<str>],
        range: &Range<usize>,
    ) -> TypingResult<(PathStep, ValueType, u64)> {
        let mut found: Option<(PathStep, ValueType, u64)> = None;
        for lifecycle in lifecycles {
            let diagnostic_count = self.diagnostic_count();
            let signature = self.find_signature(lifecycle, range)?;
            let Some(slot) = signature.fields.iter().position(|field| field.name == *name) else {
                let known = signature.fields.iter().map(|field| &*field.name).chain(METADATA_NAMES);
                let help = suggest::suggestion_help(diagnostic_count, name, known);
                return self.report_error("unknown-field", range, format!("`{lifecycle}` has no field `{name}`"), help);
            };
            let field = &signature.fields[slot];
            let items = cost::max_items(&field.ty, &field.bounds);
            found = match found {
                None => Some((
                    PathStep::Field { name: name.clone(), index: to_index(slot) },
                    value_type(field.ty.clone(), field.nullable),
                    items,
                )),
                Some((step, other, most)) if other.ty == field.ty => {
                    Some((step, value_type(other.ty, other.nullable || field.nullable), most.max(items)))
                }
                Some((_, other, _)) => {
                    let message = format!(
                        "`{name}` is {} in one lifecycle and {} in `{lifecycle}`",
                        type_name(&other.ty),
                        type_name(&field.ty)
                    );
                    return self.report_error(
                        "type-mismatch",
                        range,
                        message,
                        "read only fields that all of them declare with the same type",
                    );
                }
            };
        }
        match found {
            Some(found) => Some(found),
            None => self.report_error(
                "unknown-field",
                range,
                "the ref names no lifecycle",
                "declare the lifecycle that it refers to",
            ),
        }
    }
}

fn start_path(root: PathRoot, value_type: ValueType, items: u64) -> PartialPath {
    PartialPath {
        path: ValuePath { root, steps: Vec::new(), nullable_steps: Vec::new() },
        value_type,
        max_items: items,
        hops: 0,
    }
}

/// Returns a path that so far consists of this field of the root.
fn start_field_path(root: PathRoot, field: &FieldDef) -> PartialPath {
    start_path(root, value_type(field.ty.clone(), field.nullable), cost::max_items(&field.ty, &field.bounds))
}
