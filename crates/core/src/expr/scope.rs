//! The names an expression may use where it stands, and what it must come to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::Span;
use crate::model::{FieldDef, ValueType};

/// What other files may know of a lifecycle before any expression is compiled: read through refs.
#[derive(Clone, Debug)]
pub struct LifecycleSignature {
    pub name: Arc<str>,
    pub states: Vec<Arc<str>>,
    pub fields: Vec<FieldDef>,
    /// The natural key's field.
    pub natural_key: Option<Arc<str>>,
}

/// All lifecycles that are compiled together.
pub type LifecycleSignatures = BTreeMap<Arc<str>, LifecycleSignature>;

/// A link as expressions see it: name, the lifecycles its records may be of, and its bound.
pub type LinkScope = (Arc<str>, Vec<Arc<str>>, Option<u32>);

/// The names visible to one expression. What is `None` or empty is not visible there, and naming it is an error that
/// says so.
#[derive(Clone, Copy)]
pub struct ExprScope<'a> {
    pub signatures: &'a LifecycleSignatures,
    /// The lifecycle the expression belongs to: `record.…`.
    pub own_signature: &'a LifecycleSignature,
    /// `input.…`: the row's inputs, in order.
    pub input: Option<&'a [FieldDef]>,
    /// `result.…`: only in commit rows, where the lifecycle types its result.
    pub result: Option<&'a [FieldDef]>,
    /// `error.…`: only in fail rows.
    pub error: bool,
    /// `checks.NAME_FONT_SIZE.PART`.
    pub checks: &'a [(Arc<str>, Vec<FieldDef>)],
    /// `ref_type.NAME_FONT_SIZE`: name and lifecycle.
    pub lookups: &'a [(Arc<str>, Arc<str>)],
    /// `links.NAME_FONT_SIZE`.
    pub links: &'a [LinkScope],
    /// `actor.…`.
    pub actor: bool,
    /// `now`.
    pub now: bool,
    /// How many messages there are already; past some no more is guessed at what was meant.
    pub diagnostic_count: usize,
}

/// Where an expression's text stands in its file.
#[derive(Clone, Copy, Debug)]
pub struct ExprLocation {
    /// The whole TOML value, quotes included.
    pub value_span: Span,
    /// Offset of the text's first byte in the file, where the string has no escapes; else positions inside it are
    /// unknown and messages point at the whole.
    pub content_start: Option<u32>,
}

/// Where some bytes of an expression's text stand in its file.
pub(super) fn span_in_file(location: ExprLocation, range: &Range<usize>) -> Span {
    match location.content_start {
        Some(content) => {
            Span::new(location.value_span.file, content as usize + range.start..content as usize + range.end)
        }
        None => location.value_span,
    }
}

/// What the expression must come to.
#[derive(Clone, Debug)]
pub enum ExpectedType {
    /// A value that fits this type: the same type, an int where a double is wanted is NOT converted; null only where
    /// nullable; a string literal or bare name where an enum is wanted; a string literal where a duration is wanted.
    Fits(ValueType),
    /// A ref, a nullable ref or a list of refs: the target of a cause.
    Targets,
    /// Anything.
    Any,
}
