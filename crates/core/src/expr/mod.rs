//! Expressions: a documented subset of CEL, parsed by the `cel` crate, typed and lowered by us to a tree over field
//! slots, evaluated without allocation on the common path.

mod env;
mod scope;
mod tree;

pub use env::{Env, Fault, FaultKind, Stop, World};
pub use scope::{Place, Scope, Signature, Signatures, Want};
pub use tree::{ActorPart, Binary, Comprehension, ErrorPart, Expr, Function, Kind, Path, Root, Step};

use crate::diagnostic::Diagnostic;
use crate::value::Value;

/// Parse, type and lower one expression.
pub fn compile(_text: &str, _place: Place, _scope: &Scope, _want: &Want) -> Result<Expr, Vec<Diagnostic>> {
    todo!("the expr branch brings it")
}

/// The value of an expression.
pub fn eval(_expr: &Expr, _env: &Env) -> Result<Value, Stop> {
    todo!("the expr branch brings it")
}

/// The checks an expression reads.
pub fn checks_read(_expr: &Expr) -> Vec<u16> {
    todo!("the expr branch brings it")
}
