//! Expressions: a documented subset of CEL. The `cel` crate parses them, this module types them to a tree over field
//! indexes, and evaluation allocates nothing on the common path.

mod compile;
mod cost;
mod env;
mod eval;
mod lex;
mod null_facts;
mod parse;
mod scope;
mod suggest;
mod tree;
mod types;
mod typing;
mod walk;

pub use compile::{compile, compile_with_non_null, eval};
pub use env::{EvalEnv, EvalFault, EvalStop, FaultKind, RecordSource};
pub use null_facts::non_null_paths;
pub use scope::{ExpectedType, ExprLocation, ExprScope, LifecycleSignature, LifecycleSignatures, LinkScope};
pub use tree::{
    ActorPart, BinaryOperator, BuiltinFunction, ComprehensionKind, ErrorPart, Expr, ExprKind, PathRoot, PathStep,
    ValuePath,
};
pub use walk::{NullRisk, can_be_null, null_risks, referenced_checks, referenced_paths, walk};
