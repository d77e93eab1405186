//! The image system: its lifecycle files, and the parts that carry them out.

pub mod provider;
