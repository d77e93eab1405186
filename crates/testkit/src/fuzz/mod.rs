//! Bad input, whatever it is, must not crash, hang or exhaust memory. One function a target; libFuzzer (`fuzz/`) and the
//! replay of the kept corpus (`tests/fuzz_corpus.rs`) call the same ones.

mod choices;
mod expression;
mod lifecycle_file;
mod mutation;
mod operations;

pub use mutation::mutate_input;

/// What can be fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuzzTarget {
    /// Bytes as lifecycle files: compiled, checked, drawn, and every message written out.
    LifecycleFile,
    /// Bytes as an expression: compiled among names of every type, and evaluated.
    Expression,
    /// Bytes as a play: operations on one of the shipped systems, with all invariants watched.
    Decide,
}

impl FuzzTarget {
    pub const ALL: [Self; 3] = [Self::LifecycleFile, Self::Expression, Self::Decide];

    /// Also the name of its folder in `fuzz/corpus/` and of its file in `fuzz/fuzz_targets/`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LifecycleFile => "lifecycle_file",
            Self::Expression => "expression",
            Self::Decide => "decide",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Panics where something is wrong.
    pub fn run(self, bytes: &[u8]) {
        match self {
            Self::LifecycleFile => lifecycle_file::run(bytes),
            Self::Expression => expression::run(bytes),
            Self::Decide => operations::run(bytes),
        }
    }
}
