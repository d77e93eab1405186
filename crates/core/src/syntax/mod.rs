//! Lifecycle files as written: TOML read into a tree in which every part knows its place.

pub(crate) mod ast;
mod declarations;
mod file;
mod literals;
mod toml_reader;
mod transitions;

pub(crate) use file::parse;
pub(crate) use literals::{is_name, is_negative_duration};
