//! Tests of diagrams with shipped, hand-written and random lifecycles.

mod geometry;
mod lifecycles;
mod output;
