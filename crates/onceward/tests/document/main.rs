//! The document system as its users meet it: the real program, real HTTP, both databases, and real programs that read documents.

mod crowded;
mod damaged;
mod house;
mod jobs;
mod large;
mod private;
mod retries;
mod strangers;
mod told;
mod tour;
mod uploads;
mod worker;
