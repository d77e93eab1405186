//! Parses lifecycle files: TOML to a syntax tree with spans.

pub(crate) mod ast;
mod declarations;
mod file;
mod literals;
mod toml_reader;
mod transitions;

pub(crate) use file::parse;
pub(crate) use literals::{is_name, is_negative_duration};
