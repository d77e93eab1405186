//! Types: every name resolved, every operator given operands it knows, the result lowered to the typed tree.

mod functions;
mod hints;
mod lists;
mod operators;
mod paths;
mod typer;

pub(super) use typer::ExprTyper;
