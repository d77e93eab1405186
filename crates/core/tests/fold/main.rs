//! Tests the fold with lifecycles of its own. Tests with the mesh lifecycles are in systems/mesh/tests/fold.

mod bounds;
mod clocks;
mod convergence;
mod replay_cost;
mod test_lifecycles;
