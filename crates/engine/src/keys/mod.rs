//! API keys: who calls, and as whom.
//!
//! | file | duty |
//! | --- | --- |
//! | `desk.rs` | making, listing and revoking keys, and telling who calls |
//! | `ring.rs` | all keys at hand, looked up without waiting for the store |
//! | `text.rs` | a key as its holder has it, made by chance and shown once |
//! | `asked.rs` | what a new key may be |
//! | `identity.rs` | who calls, and what only some may do |

mod asked;
mod desk;
mod identity;
mod ring;
mod text;

pub use asked::NewKey;
pub use desk::{KeyDesk, Keys, Revoked};
pub use identity::Identity;
pub(crate) use identity::must_be_operator;
pub use text::KeyText;
