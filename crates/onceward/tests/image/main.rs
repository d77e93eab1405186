//! The image system as its users meet it: the real program, real HTTP, both databases, and a provider that does what the test says.

mod bounds;
mod crowds;
mod damaged;
mod encrypted;
mod house;
mod killed;
mod moderated;
mod orders;
mod pages;
mod strangers;
mod swamped;
mod told;
mod withdrawn;
