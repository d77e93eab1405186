//! API keys: create, revoke and authenticate.

mod identity;
mod keyring;
mod manager;
mod new_key;
mod plain_key;

pub use identity::Identity;
pub(crate) use identity::require_operator;
pub use manager::{ApiKeyCache, ApiKeys, RevokedApiKey};
pub use new_key::{BUILT_IN_ROLES, NewApiKey};
pub use plain_key::PlainApiKey;
