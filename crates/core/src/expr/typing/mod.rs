//! Types: every name resolved, every operator given operands it knows, the result lowered to the typed tree.

mod doubts;
mod functions;
mod lists;
mod operators;
mod paths;
mod typer;

pub(super) use typer::Typer;
