//! Expressions: a documented subset of CEL, parsed by the `cel` crate, typed and lowered by us to a tree over field
//! slots, evaluated without allocation on the common path.

mod compile;
mod cost;
mod env;
mod eval;
mod facts;
mod lex;
mod parse;
mod scope;
mod suggest;
mod tree;
mod types;
mod typing;
mod walk;

pub use compile::{compile, compile_knowing, eval};
pub use env::{Env, Fault, FaultKind, Stop, World};
pub use facts::learned;
pub use scope::{LinkScope, Place, Scope, Signature, Signatures, Want};
pub use tree::{ActorPart, Binary, Comprehension, ErrorPart, Expr, Function, Kind, Path, Root, Step};
pub use walk::{NullRisk, checks_read, may_be_null, null_risks, paths_read, walk};
