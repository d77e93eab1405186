//! Entry points of the module: compile a text, evaluate a tree.

use std::borrow::Cow;

use super::env::{EvalEnv, EvalStop};
use super::eval::Evaluator;
use super::parse;
use super::scope::{ExpectedType, ExprLocation, ExprScope, span_in_file};
use super::tree::{Expr, ValuePath};
use super::typing::ExprTyper;
use crate::diagnostic::Diagnostic;
use crate::value::Value;

/// Parses and types one expression.
pub fn compile(
    text: &str,
    location: ExprLocation,
    scope: &ExprScope,
    expected: &ExpectedType,
) -> Result<Expr, Vec<Diagnostic>> {
    compile_with_non_null(text, location, scope, expected, &[])
}

/// Like [`compile`], but treats the paths in `non_null` as not null, such as the [paths](super::non_null_paths) that
/// the guard and the refusals of a transition exclude.
pub fn compile_with_non_null(
    text: &str,
    location: ExprLocation,
    scope: &ExprScope,
    expected: &ExpectedType,
    non_null: &[ValuePath],
) -> Result<Expr, Vec<Diagnostic>> {
    match parse::parse_expr(text) {
        Ok(node) => ExprTyper::new(scope, location, non_null).type_expr(&node, expected),
        Err(error) => Err(vec![
            Diagnostic::error(error.code, span_in_file(location, &error.range), error.message).help(error.help),
        ]),
    }
}

/// Evaluates an expression.
pub fn eval(expr: &Expr, env: &EvalEnv) -> Result<Value, EvalStop> {
    Evaluator::new(env).evaluate(expr).map(Cow::into_owned).map_err(|stop| *stop)
}
