//! Compiles one lifecycle: resolves its declarations and builds its transitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fields::DeclarationCompiler;
use super::signature::{self, SignaturesByEvent};
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::expr::{self, ExpectedType, ExprScope, LifecycleSignature, LifecycleSignatures};
use crate::model::{
    ClockSource, DataType, ErrorTable, FieldDef, Formula, Lifecycle, PayloadBounds, StateDef, StateIndex,
    StateReadiness, StateSet, ValueType,
};
use crate::suggest;
use crate::syntax::ast::{self, LifecycleSource, SourceText};

/// What the lifecycles of one compilation know of each other.
pub(super) struct CompileContext {
    pub(super) lifecycle_names: BTreeSet<Arc<str>>,
    pub(super) signatures: LifecycleSignatures,
    pub(super) transition_signatures: BTreeMap<Arc<str>, SignaturesByEvent>,
    pub(super) payload_bounds: BTreeMap<Arc<str>, PayloadBounds>,
}

/// The names an expression may use besides `record`.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each flag makes one name visible")]
pub(super) struct VisibleNames<'v> {
    pub(super) input: Option<&'v [FieldDef]>,
    pub(super) result: bool,
    pub(super) error: bool,
    pub(super) checks: bool,
    pub(super) lookups: bool,
    pub(super) links: bool,
    pub(super) actor: bool,
    pub(super) now: bool,
}

/// Name of a link, lifecycles of its records, and its limit.
type LinkScope = (Arc<str>, Vec<Arc<str>>, Option<u32>);

pub(super) struct LifecycleBuilder<'a> {
    pub(super) source: &'a LifecycleSource,
    pub(super) own_signature: &'a LifecycleSignature,
    pub(super) context: &'a CompileContext,
    pub(super) checks: Vec<(Arc<str>, Vec<FieldDef>)>,
    pub(super) result: Option<Vec<FieldDef>>,
    lookups: Vec<(Arc<str>, Arc<str>)>,
    links: Vec<LinkScope>,
    /// Paths that cannot be null in the rest of the transition, by its guard and refusals.
    pub(super) non_null_paths: Vec<expr::ValuePath>,
    /// Whether the guard or a refusal has an error. What it excludes is then unknown.
    pub(super) has_unreadable_guard: bool,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Number of diagnostics about earlier files.
    pub(super) earlier_diagnostics: usize,
}

pub(super) fn compile_payload_bounds(source: &LifecycleSource, diagnostics: &mut Vec<Diagnostic>) -> PayloadBounds {
    let Some(payload) = &source.payload else {
        return PayloadBounds { min_bytes: 0, max_bytes: bounds::DEFAULT_MAX_PAYLOAD_BYTES };
    };
    let min = payload.min.map_or(0, |min| min.value);
    let max = payload.max.map_or(bounds::DEFAULT_MAX_PAYLOAD_BYTES.max(min), |max| max.value);
    if let Some(at) = payload.max.filter(|max| max.value < min).map(|max| max.span) {
        diagnostics.push(
            Diagnostic::error("invalid-bound", at, "the bounds allow no payload")
                .label("`max` is below `min`")
                .help("make `max` at least as large as `min`"),
        );
    }
    PayloadBounds { min_bytes: min, max_bytes: max }
}

pub(super) const fn expected_type(ty: DataType, nullable: bool) -> ExpectedType {
    ExpectedType::Fits(ValueType { ty, nullable })
}

impl<'a> LifecycleBuilder<'a> {
    pub(super) fn new(
        source: &'a LifecycleSource,
        own_signature: &'a LifecycleSignature,
        context: &'a CompileContext,
        earlier_diagnostics: usize,
    ) -> Self {
        Self {
            source,
            own_signature,
            context,
            checks: Vec::new(),
            result: None,
            lookups: Vec::new(),
            links: Vec::new(),
            non_null_paths: Vec::new(),
            has_unreadable_guard: false,
            diagnostics: Vec::new(),
            earlier_diagnostics,
        }
    }

    /// Returns the number of diagnostics so far, those of earlier files included.
    pub(super) fn diagnostic_count(&self) -> usize {
        self.earlier_diagnostics + self.diagnostics.len()
    }

    /// Builds the lifecycle without its hash. Use the result only if no error was reported.
    pub(super) fn build(mut self) -> (Lifecycle, Vec<Diagnostic>) {
        self.validate_names();
        let source = self.source;
        let key = source.natural_key.as_ref().and_then(|key| self.resolve_natural_key(key));
        let links = self.compile_links();
        self.links = links
            .iter()
            .map(|link| (link.name.clone(), link.sources.iter().map(|from| from.lifecycle.clone()).collect(), link.max))
            .collect();
        let lookups = self.compile_lookups();
        self.lookups = lookups.iter().map(|lookup| (lookup.name.clone(), lookup.lifecycle.clone())).collect();
        self.declare_answers_and_result();
        // After an error in a link or a lookup, skip the transitions: diagnostics of its readers would only be
        // follow-up errors.
        let errors_so_far = self.diagnostics.len();
        let (events, readers) = if errors_so_far == 0 { self.compile_events() } else { (Vec::new(), Vec::new()) };
        let (outside, outside_spans) = self.compile_outside_accounts();
        let lifecycle = Lifecycle {
            name: source.lifecycle.text.clone(),
            about: about_text(source.about.as_ref()),
            hash: "".into(),
            natural_key: key,
            asset: source.asset.as_ref().map(|asset| asset.text.clone()),
            outside_accounts: outside,
            outside_account_spans: outside_spans,
            clock: if source.operation_clock.is_some() { ClockSource::Operation } else { ClockSource::Engine },
            states: self.compile_states(),
            fields: self.own_signature.fields.clone(),
            unique_constraints: self.compile_uniques(key),
            limits: self.compile_limits(),
            work: self.compile_work(),
            errors: source.errors.as_ref().map_or_else(ErrorTable::default, |errors| ErrorTable {
                retryable: errors.retryable.iter().map(|code| code.text.clone()).collect(),
                terminal: errors.terminal.iter().map(|code| code.text.clone()).collect(),
                rules: errors.rules.clone(),
            }),
            checks: self.compile_checks(&readers),
            lookups,
            caller_predicates: self.compile_callers(),
            allowed_readers: self.compile_access(),
            payload_bounds: self
                .context
                .payload_bounds
                .get(&source.lifecycle.text)
                .copied()
                .unwrap_or(PayloadBounds { min_bytes: 0, max_bytes: 0 }),
            links,
            events,
        };
        if errors_so_far > 0 {
            self.diagnostics.truncate(errors_so_far);
        }
        (lifecycle, self.diagnostics)
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn declaration_compiler(&mut self) -> DeclarationCompiler<'_> {
        DeclarationCompiler { lifecycle_names: &self.context.lifecycle_names, diagnostics: &mut self.diagnostics }
    }

    /// Compiles one expression and reports its errors.
    pub(super) fn compile_expr(
        &mut self,
        text: &str,
        location: expr::ExprLocation,
        view: VisibleNames,
        expected: &ExpectedType,
    ) -> Option<expr::Expr> {
        match self.try_compile_expr(text, location, view, expected) {
            Ok(expr) => Some(expr),
            Err(diagnostics) => {
                self.report_expr_errors(diagnostics);
                None
            }
        }
    }

    /// Reports errors of an expression. After an unreadable guard, omits `null-not-allowed`: the guard may have excluded
    /// null.
    pub(super) fn report_expr_errors(&mut self, mut diagnostics: Vec<Diagnostic>) {
        if self.has_unreadable_guard {
            diagnostics.retain(|diagnostic| diagnostic.code != "null-not-allowed");
        }
        self.diagnostics.extend(diagnostics);
    }

    pub(super) fn try_compile_expr(
        &self,
        text: &str,
        location: expr::ExprLocation,
        view: VisibleNames,
        expected: &ExpectedType,
    ) -> Result<expr::Expr, Vec<Diagnostic>> {
        let scope = ExprScope {
            signatures: &self.context.signatures,
            own_signature: self.own_signature,
            input: view.input,
            result: self.result.as_deref().filter(|_| view.result),
            error: view.error,
            checks: if view.checks { &self.checks } else { &[] },
            lookups: if view.lookups { &self.lookups } else { &[] },
            links: if view.links { &self.links } else { &[] },
            actor: view.actor,
            now: view.now,
            diagnostic_count: self.diagnostic_count(),
        };
        let failed = match expr::compile(text, location, &scope, expected) {
            Ok(expr) => return Ok(expr),
            Err(diagnostics) => diagnostics,
        };
        // A path of a nullable type is accepted if the guard or a refusal excludes null.
        if let ExpectedType::Fits(ValueType { ty, nullable: false }) = expected
            && let Ok(mut expr) = expr::compile(text, location, &scope, &self::expected_type(ty.clone(), true))
            && matches!(&expr.kind, expr::ExprKind::Read(path) if self.non_null_paths.contains(path))
        {
            expr.value_type.nullable = false;
            return Ok(expr);
        }
        if let Ok(expr) = expr::compile_with_non_null(text, location, &scope, expected, &self.non_null_paths) {
            return Ok(expr);
        }
        Err(failed)
    }

    pub(super) fn compile_formula(
        &mut self,
        text: &SourceText,
        view: VisibleNames,
        expected: &ExpectedType,
    ) -> Option<Formula> {
        let expr = self.compile_expr(&text.text, text.location, view, expected)?;
        Some(Formula { expr, text: text.text.clone() })
    }

    pub(super) fn resolve_state(&mut self, name: &SourceText) -> Option<StateIndex> {
        self.resolve_state_at(&name.text, name.span())
    }

    pub(super) fn resolve_state_at(&mut self, name: &str, span: crate::diagnostic::Span) -> Option<StateIndex> {
        let found = self.own_signature.states.iter().position(|state| **state == *name);
        if found.is_none() {
            let help = suggest::suggestion_text(
                self.diagnostic_count(),
                name,
                "states",
                self.own_signature.states.iter().map(|state| &**state),
            );
            self.report(
                Diagnostic::error("unknown-state", span, format!("{} has no state `{name}`", self.own_signature.name))
                    .label("not declared in [states]")
                    .help(help),
            );
        }
        found.and_then(|at| StateIndex::try_from(at).ok())
    }

    pub(super) fn resolve_states(&mut self, names: &[SourceText]) -> StateSet {
        names.iter().filter_map(|name| self.resolve_state(name)).collect()
    }

    fn validate_names(&mut self) {
        let source = self.source;
        for who in &source.callers {
            if matches!(&*who.name.text, "owner" | "operator" | "worker" | "record" | "anyone") {
                self.declaration_compiler().report_reserved_name(
                    &who.name,
                    "a caller",
                    "every lifecycle already has it",
                );
            }
        }
        if source.states.is_empty() {
            self.report(
                Diagnostic::error(
                    "no-states",
                    source.lifecycle.span(),
                    format!("{} has no states", self.own_signature.name),
                )
                .label("a record needs a state")
                .help("declare at least one under [states], such as DONE = { final = true }"),
            );
        }
    }

    fn resolve_natural_key(&mut self, key: &SourceText) -> Option<crate::model::FieldIndex> {
        let field_index = signature::resolve_field(self.own_signature, key, &mut self.diagnostics)?;
        let field = &self.own_signature.fields[usize::from(field_index)];
        if !matches!(field.ty, DataType::Text | DataType::Int | DataType::Enum(_)) {
            let at = field.span;
            self.report(
                Diagnostic::error("invalid-key", key.span(), format!("`{}` cannot be a natural key", key.text))
                    .label("neither a string nor an int")
                    .related(at, "declaration of the field")
                    .help("name a string or int field"),
            );
            return None;
        }
        Some(field_index)
    }

    fn compile_states(&mut self) -> Vec<StateDef> {
        let source = self.source;
        let mut states = Vec::new();
        for state in &source.states {
            let ready = match &state.ready {
                None => StateReadiness::NotReady,
                Some(ast::ReadyDecl::Immediate(_)) => StateReadiness::Immediate,
                Some(ast::ReadyDecl::FromField(field)) => {
                    self.resolve_time_field(field).map_or(StateReadiness::NotReady, StateReadiness::FromField)
                }
            };
            self.validate_state(state);
            states.push(StateDef {
                name: state.name.text.clone(),
                about: about_text(state.about.as_ref()),
                readiness: ready,
                is_final: state.final_span.is_some(),
                can_rest: state.rest_span.is_some(),
                is_reserved: state.reserved_span.is_some(),
                is_kept: state.keep_span.is_some(),
                rules: state.rules.clone(),
                span: state.name.span(),
            });
        }
        states
    }

    /// Resolves a field and requires its type to be `time`.
    pub(super) fn resolve_time_field(&mut self, name: &SourceText) -> Option<crate::model::FieldIndex> {
        let field_index = signature::resolve_field(self.own_signature, name, &mut self.diagnostics)?;
        let field = &self.own_signature.fields[usize::from(field_index)];
        if field.ty != DataType::Time {
            let at = field.span;
            self.report(
                Diagnostic::error("not-a-time", name.span(), format!("`{}` is not a time field", name.text))
                    .label("a time field is required")
                    .related(at, "declaration of the field")
                    .help("name a field with type = \"time\""),
            );
            return None;
        }
        Some(field_index)
    }
}

pub(super) fn about_text(text: Option<&SourceText>) -> Arc<str> {
    text.map_or_else(|| "".into(), |text| text.text.clone())
}
