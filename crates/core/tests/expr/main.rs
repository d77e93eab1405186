//! Tests of expressions: values, types, errors and bounds.

mod bounds;
mod cel_conformance;
mod fuzz;
mod names;
mod nulls;
mod support;
mod types;
mod values;
