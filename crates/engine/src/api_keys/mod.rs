//! API keys: who calls, and as whom.
//!
//! | file | duty |
//! | --- | --- |
//! | `manager.rs` | making, listing and revoking keys, and telling who calls |
//! | `keyring.rs` | all keys at hand, looked up without waiting for the store |
//! | `plain_key.rs` | a key as its holder has it, made by chance and shown once |
//! | `new_key.rs` | what a new key may be |
//! | `identity.rs` | who calls, and what only some may do |

mod identity;
mod keyring;
mod manager;
mod new_key;
mod plain_key;

pub use identity::Identity;
pub(crate) use identity::require_operator;
pub use manager::{ApiKeyCache, ApiKeys, RevokedApiKey};
pub use new_key::NewApiKey;
pub use plain_key::PlainApiKey;
