//! The server as its users meet it: the real program, real HTTP, both databases.

mod drain;
mod hostile;
mod idle;
mod keep;
mod life;
mod look_ups;
mod objects;
mod pruned;
mod server;
mod stream;
mod work;
