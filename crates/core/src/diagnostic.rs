//! Diagnostics: what is wrong with a lifecycle file, and where.

mod render;

pub use render::{LineColumn, render_all, summarize_counts};

use std::ops::Range;
use std::sync::Arc;

/// A byte range of one input file, from `start` up to but excluding `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index into [`InputFiles`].
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(file: u32, range: Range<usize>) -> Self {
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { file, start: clamp(range.start), end: clamp(range.end) }
    }

    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The files that are analyzed together, kept so that diagnostics can quote them.
#[derive(Clone, Debug, Default)]
pub struct InputFiles {
    pub files: Vec<InputFile>,
}

#[derive(Clone, Debug)]
pub struct InputFile {
    pub name: String,
    pub text: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The analysis cannot decide, or something looks unintended. The file is accepted.
    Warning,
}

/// One message: a stable code, one sentence on what is wrong, the span and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable code in kebab-case, such as `unknown-state`; listed in docs/language/diagnostics.md.
    pub code: &'static str,
    pub message: String,
    pub span: Span,
    /// Text under the underline; may be empty.
    pub label: String,
    /// Other spans that explain the message, each with its label.
    pub related: Vec<(Span, String)>,
    /// What the author can do.
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            span,
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub fn related(mut self, span: Span, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
