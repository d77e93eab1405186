//! The two doors of the room: text to tree, tree to value.

use std::borrow::Cow;

use super::env::{Env, Stop};
use super::eval::Machine;
use super::parse;
use super::scope::{Place, Scope, Want, span_of};
use super::tree::{Expr, Path};
use super::typing::Typer;
use crate::diagnostic::Diagnostic;
use crate::value::Value;

/// Parse, type and lower one expression.
pub fn compile(text: &str, place: Place, scope: &Scope, want: &Want) -> Result<Expr, Vec<Diagnostic>> {
    compile_knowing(text, place, scope, want, &[])
}

/// As `compile`, where some paths are known not to be null: by what a row's guard and its refusals have [learned],
/// say.
///
/// [learned]: super::learned
pub fn compile_knowing(
    text: &str,
    place: Place,
    scope: &Scope,
    want: &Want,
    known: &[Path],
) -> Result<Expr, Vec<Diagnostic>> {
    match parse::parse(text) {
        Ok(node) => Typer::new(scope, place, known).finish(&node, want),
        Err(bad) => Err(vec![Diagnostic::error(bad.code, span_of(place, &bad.at), bad.message).help(bad.help)]),
    }
}

/// The value of an expression.
pub fn eval(expr: &Expr, env: &Env) -> Result<Value, Stop> {
    Machine::new(env).run(expr).map(Cow::into_owned).map_err(|stop| *stop)
}
