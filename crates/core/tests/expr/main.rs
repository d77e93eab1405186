//! Expressions: what they mean, what is refused, and that nothing given to them breaks anything.

mod against_cel;
mod bounds;
mod house;
mod names;
mod nulls;
mod soup;
mod types;
mod values;
