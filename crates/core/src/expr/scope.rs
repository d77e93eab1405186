//! The names that an expression may use, and the type that it must have.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::Span;
use crate::model::{FieldDef, ValueType};

/// The names and types of a lifecycle that other files may use before its expressions are compiled.
#[derive(Clone, Debug)]
pub struct LifecycleSignature {
    pub name: Arc<str>,
    pub states: Vec<Arc<str>>,
    pub fields: Vec<FieldDef>,
    /// Field of the natural key.
    pub natural_key: Option<Arc<str>>,
}

/// Signatures of all lifecycles that are compiled together.
pub type LifecycleSignatures = BTreeMap<Arc<str>, LifecycleSignature>;

/// Name of a link, lifecycles of its records, and its limit.
pub type LinkScope = (Arc<str>, Vec<Arc<str>>, Option<u32>);

/// The names visible to one expression. A name that is `None` or empty is not visible, and its use is an error.
#[derive(Clone, Copy)]
pub struct ExprScope<'a> {
    pub signatures: &'a LifecycleSignatures,
    /// `record.…`: the lifecycle that the expression belongs to.
    pub own_signature: &'a LifecycleSignature,
    /// `input.…`: the transition's inputs, in order.
    pub input: Option<&'a [FieldDef]>,
    /// `result.…`: only in commit transitions, if the lifecycle declares a result.
    pub result: Option<&'a [FieldDef]>,
    /// `error.…`: only in fail transitions.
    pub error: bool,
    /// `checks.NAME.PART`.
    pub checks: &'a [(Arc<str>, Vec<FieldDef>)],
    /// `refs.NAME`: name and lifecycle.
    pub lookups: &'a [(Arc<str>, Arc<str>)],
    /// `links.NAME`.
    pub links: &'a [LinkScope],
    /// `actor.…`.
    pub actor: bool,
    /// `now`.
    pub now: bool,
    /// Number of earlier diagnostics. Beyond a limit, diagnostics suggest no names.
    pub diagnostic_count: usize,
}

/// Location of an expression's text in its file.
#[derive(Clone, Copy, Debug)]
pub struct ExprLocation {
    /// The whole TOML value, quotes included.
    pub value_span: Span,
    /// Offset of the text in the file. `None` if the string has escapes; diagnostics then point to the whole value.
    pub content_start: Option<u32>,
}

/// Returns the span in the file for a byte range of an expression's text.
pub(super) fn span_in_file(location: ExprLocation, range: &Range<usize>) -> Span {
    match location.content_start {
        Some(content) => {
            Span::new(location.value_span.file, content as usize + range.start..content as usize + range.end)
        }
        None => location.value_span,
    }
}

/// The type that an expression must have.
#[derive(Clone, Debug)]
pub enum ExpectedType {
    /// A value of this type. An int is not converted to a double. Null is allowed only if the type is nullable. A
    /// string literal or a bare name may be an enum value, and a string literal may be a duration.
    Fits(ValueType),
    /// The target of an event action: a ref, a nullable ref or a list of refs.
    Targets,
    Any,
}
