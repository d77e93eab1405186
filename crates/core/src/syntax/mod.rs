//! Lifecycle files as written: TOML read into a tree in which every part knows its place.

pub(crate) mod ast;
mod declarations;
mod file;
mod read;
mod rows;
mod words;

pub(crate) use file::parse;
pub(crate) use words::{is_name, is_negative};
