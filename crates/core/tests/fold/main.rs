//! The fold over lifecycles of these tests' own. Stories with the mesh stand in systems/mesh/tests/fold.

mod bounds;
mod clocks;
mod convergence;
mod replay_cost;
mod test_lifecycles;
