//! Syntax tree of a lifecycle file, with spans. Names are not resolved.

use std::sync::Arc;

use crate::diagnostic::Span;
use crate::expr::ExprLocation;
use crate::time::Duration;

/// A string of the file with its location.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    pub(crate) text: Arc<str>,
    pub(crate) location: ExprLocation,
}

impl SourceText {
    /// Returns the span of a byte range of the text, or of the whole value if the string has escapes.
    pub(crate) fn part_span(&self, range: std::ops::Range<usize>) -> Span {
        let Some(content) = self.location.content_start else { return self.location.value_span };
        let content = content as usize;
        Span::new(self.location.value_span.file, content + range.start..content + range.end)
    }

    pub(crate) fn span(&self) -> Span {
        self.location.value_span
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WithSpan<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// A value for a field or an input: an expression, or a literal in the form of one.
#[derive(Clone, Debug)]
pub(crate) struct NamedExpr {
    pub(crate) name: SourceText,
    pub(crate) value: SourceText,
}

#[derive(Clone, Debug)]
pub(crate) struct LifecycleSource {
    pub(crate) lifecycle: SourceText,
    pub(crate) about: Option<SourceText>,
    pub(crate) natural_key: Option<SourceText>,
    pub(crate) asset: Option<SourceText>,
    pub(crate) outside_accounts: Vec<SourceText>,
    pub(crate) operation_clock: Option<Span>,
    pub(crate) payload: Option<PayloadDecl>,
    pub(crate) states: Vec<StateDecl>,
    pub(crate) fields: Vec<FieldDecl>,
    pub(crate) links: Vec<LinkDecl>,
    pub(crate) uniques: Vec<UniqueDecl>,
    pub(crate) limits: Vec<LimitDecl>,
    pub(crate) work: Option<WorkDecl>,
    pub(crate) errors: Option<ErrorsDecl>,
    pub(crate) checks: Vec<CheckDecl>,
    pub(crate) lookups: Vec<LookupDecl>,
    pub(crate) callers: Vec<CallerDecl>,
    /// `[access] read`.
    pub(crate) allowed_readers: Option<Vec<SourceText>>,
    pub(crate) events: Vec<EventDecl>,
}

#[derive(Clone, Debug)]
pub(crate) struct PayloadDecl {
    pub(crate) min: Option<WithSpan<u64>>,
    pub(crate) max: Option<WithSpan<u64>>,
}

#[derive(Clone, Debug)]
pub(crate) struct StateDecl {
    pub(crate) name: SourceText,
    pub(crate) about: Option<SourceText>,
    pub(crate) ready: Option<ReadyDecl>,
    pub(crate) final_span: Option<Span>,
    pub(crate) rest_span: Option<Span>,
    pub(crate) reserved_span: Option<Span>,
    pub(crate) keep_span: Option<Span>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) enum ReadyDecl {
    Immediate(Span),
    FromField(SourceText),
}

/// A literal in a declaration: `default`, `const`, `min`, `max`.
#[derive(Clone, Debug)]
pub(crate) enum FieldLiteral {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(SourceText),
    /// A bound of a duration. Elsewhere, a duration stays text until the type of its field is known.
    Duration(Duration),
    List(Vec<WithSpan<FieldLiteral>>),
}

impl FieldLiteral {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Double(_) => "a float",
            Self::Text(_) => "a string",
            Self::Duration(_) => "a duration",
            Self::List(_) => "an array",
        }
    }
}

/// A declared field of a record, an input, a result or a check answer.
#[derive(Clone, Debug)]
pub(crate) struct FieldDecl {
    pub(crate) name: SourceText,
    pub(crate) about: Option<SourceText>,
    pub(crate) ty: SourceText,
    /// Whether it is written as a bare type name or, for inputs, as the name of a field.
    pub(crate) is_shorthand: bool,
    pub(crate) enum_values: Option<WithSpan<Vec<SourceText>>>,
    pub(crate) element_type: Option<SourceText>,
    pub(crate) ref_targets: Option<WithSpan<Vec<SourceText>>>,
    pub(crate) optional: bool,
    pub(crate) default: Option<WithSpan<FieldLiteral>>,
    pub(crate) constant: Option<WithSpan<FieldLiteral>>,
    pub(crate) min: Option<WithSpan<FieldLiteral>>,
    pub(crate) max: Option<WithSpan<FieldLiteral>>,
    pub(crate) pattern: Option<SourceText>,
}

#[derive(Clone, Debug)]
pub(crate) struct LinkDecl {
    pub(crate) name: SourceText,
    pub(crate) from: Vec<SourceText>,
    pub(crate) max: Option<WithSpan<u32>>,
}

/// The reply of a refusal, as in `"409 code"`.
#[derive(Clone, Debug)]
pub(crate) struct RefusalResponse {
    pub(crate) status: u16,
    pub(crate) code: Arc<str>,
}

#[derive(Clone, Debug)]
pub(crate) enum DuplicatePolicyDecl {
    Return,
    Refuse(RefusalResponse),
}

#[derive(Clone, Debug)]
pub(crate) struct UniqueDecl {
    pub(crate) name: SourceText,
    pub(crate) on: Vec<SourceText>,
    pub(crate) in_states: Option<Vec<SourceText>>,
    pub(crate) on_duplicate: DuplicatePolicyDecl,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct LimitDecl {
    pub(crate) name: SourceText,
    pub(crate) on: Vec<SourceText>,
    pub(crate) in_states: Option<WithSpan<Vec<SourceText>>>,
    pub(crate) window: Option<WithSpan<Duration>>,
    pub(crate) max: SourceText,
    pub(crate) on_exceeded: RefusalResponse,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct WorkDecl {
    pub(crate) span: Span,
    pub(crate) lease_duration: Duration,
    pub(crate) result: Option<Vec<FieldDecl>>,
    pub(crate) stop_condition: Option<SourceText>,
    pub(crate) priority: Option<SourceText>,
    pub(crate) concurrency: Option<ConcurrencyDecl>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyDecl {
    pub(crate) on: Vec<SourceText>,
    pub(crate) limit: Option<WithSpan<u32>>,
    pub(crate) ordered: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ErrorsDecl {
    pub(crate) retryable: Vec<SourceText>,
    pub(crate) terminal: Vec<SourceText>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckDecl {
    pub(crate) name: SourceText,
    pub(crate) sends_payload: bool,
    pub(crate) arguments: Vec<NamedExpr>,
    pub(crate) answer_fields: Vec<FieldDecl>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct LookupDecl {
    pub(crate) name: SourceText,
    pub(crate) target_lifecycle: SourceText,
    pub(crate) natural_key: SourceText,
}

#[derive(Clone, Debug)]
pub(crate) struct CallerDecl {
    pub(crate) name: SourceText,
    pub(crate) predicate: SourceText,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct EventDecl {
    pub(crate) name: SourceText,
    pub(crate) transitions: Vec<TransitionDecl>,
}

#[derive(Clone, Debug)]
pub(crate) struct StatePath {
    /// Empty for a creation.
    pub(crate) from: Vec<WithSpan<Arc<str>>>,
    pub(crate) to: Option<WithSpan<Arc<str>>>,
    pub(crate) span: Span,
}

impl StatePath {
    pub(crate) const fn is_creation(&self) -> bool {
        self.from.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TransitionDecl {
    /// Line of the `[[on.…]]` header, from 1.
    pub(crate) line: u32,
    pub(crate) path: StatePath,
    pub(crate) by: Option<WithSpan<Vec<SourceText>>>,
    pub(crate) when: Option<SourceText>,
    pub(crate) refuse: Vec<RefusalDecl>,
    pub(crate) take: Option<WithSpan<Vec<SourceText>>>,
    pub(crate) input: Option<WithSpan<Vec<FieldDecl>>>,
    pub(crate) set: Vec<NamedExpr>,
    pub(crate) transfers: Vec<TransferDecl>,
    pub(crate) spawn: Vec<SpawnDecl>,
    pub(crate) require: Vec<EventActionDecl>,
    pub(crate) cascade: Vec<EventActionDecl>,
    pub(crate) deliver: Vec<DeliverDecl>,
    pub(crate) after: Option<SourceText>,
    pub(crate) at_field: Option<SourceText>,
    pub(crate) forever_span: Option<Span>,
    pub(crate) audit: Option<SourceText>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct RefusalDecl {
    pub(crate) condition: SourceText,
    pub(crate) response: RefusalResponse,
    pub(crate) audit: Option<SourceText>,
}

#[derive(Clone, Debug)]
pub(crate) struct TransferDecl {
    pub(crate) from: SourceText,
    pub(crate) to: SourceText,
    pub(crate) amount: SourceText,
    pub(crate) shortage_refusal: Option<RefusalResponse>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct SpawnDecl {
    pub(crate) lifecycle: SourceText,
    pub(crate) condition: Option<SourceText>,
    pub(crate) fields: Vec<NamedExpr>,
    pub(crate) owner: Option<SourceText>,
    pub(crate) same_payload: bool,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct EventActionDecl {
    pub(crate) condition: Option<SourceText>,
    pub(crate) to: SourceText,
    pub(crate) event: SourceText,
    pub(crate) input: Vec<NamedExpr>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct DeliverDecl {
    pub(crate) condition: Option<SourceText>,
    pub(crate) to: SourceText,
    pub(crate) body: Vec<NamedExpr>,
    pub(crate) span: Span,
}
