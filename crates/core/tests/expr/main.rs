//! Expressions: what they mean, what is refused, and that nothing given to them breaks anything.

mod bounds;
mod cel_conformance;
mod fuzz;
mod names;
mod nulls;
mod support;
mod types;
mod values;
