//! The image system as its users meet it: the real program, real HTTP, both databases, and a provider that does what the test says.

#[path = "../serve/client.rs"]
#[allow(dead_code, reason = "the server's own tests use all of it")]
mod client;

mod bounds;
mod crowds;
mod damaged;
mod house;
mod killed;
mod orders;
mod pages;
mod provider;
mod strangers;
mod swamped;
