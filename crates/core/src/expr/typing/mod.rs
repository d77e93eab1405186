//! Types expressions: resolves names, checks operands, and builds the typed tree.

mod functions;
mod hints;
mod lists;
mod operators;
mod paths;
mod typer;

pub(super) use typer::ExprTyper;
