//! Fuzz targets: no input may crash, hang or exhaust memory. libFuzzer (`assurance/fuzz/`) and the replay of the corpus
//! (`tests/fuzz_corpus.rs`) share them.

mod choices;
mod expression;
mod lifecycle_file;
mod mutation;
mod operations;

pub use mutation::mutate_input;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuzzTarget {
    /// Lifecycle files: compiles, analyzes and draws them, and renders every diagnostic.
    LifecycleFile,
    /// An expression: compiles it with names of every type in scope, and evaluates it.
    Expression,
    /// Operations on one of the shipped systems, with all invariants checked.
    Decide,
}

impl FuzzTarget {
    pub const ALL: [Self; 3] = [Self::LifecycleFile, Self::Expression, Self::Decide];

    /// Returns the name, which is also that of the folder in `assurance/fuzz/corpus/` and of the file in `assurance/fuzz/fuzz_targets/`.
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

    /// Runs the target. Panics if it finds a fault.
    pub fn run(self, bytes: &[u8]) {
        match self {
            Self::LifecycleFile => lifecycle_file::run(bytes),
            Self::Expression => expression::run(bytes),
            Self::Decide => operations::run(bytes),
        }
    }
}
