//! Objects in a folder and in a bucket of a real server: the same suite on both, and what can happen to a bucket besides.
//!
//! Apart from the engine's other tests: some of these start this program again, and a process that is just being started holds its
//! parent's files for a moment.

#[path = "objects/again.rs"]
mod again;
#[path = "objects/kept.rs"]
mod kept;
#[path = "objects/spot.rs"]
mod spot;
#[path = "objects/swept.rs"]
mod swept;
#[path = "objects/trouble.rs"]
mod trouble;

mod stage;
