//! The part of the world that an operation is decided on.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::changes::Account;
use crate::record::{Execution, Record, Token};
use crate::value::{RecordId, Value};

/// Something that `decide` may need loaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    Record(RecordId),
    Unique(UniqueKey),
    Count(CountKey),
    Account(Account),
    Links(LinkKey),
    /// An execution older than the record's newest.
    Execution(RecordId, Token),
}

/// A value of a `unique`, or of a natural key, which is the unique called `key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UniqueKey {
    pub lifecycle: Arc<str>,
    pub unique: Arc<str>,
    /// The parts in order, each as canonical text.
    pub parts: Vec<Arc<str>>,
}

/// A counter of a `limit`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CountKey {
    pub lifecycle: Arc<str>,
    pub limit: Arc<str>,
    pub parts: Vec<Arc<str>>,
    /// Start of the window in microseconds since the epoch, for `per`.
    pub window: Option<i64>,
}

/// The records of one lifecycle that point to a record by one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkKey {
    pub target: RecordId,
    pub lifecycle: Arc<str>,
    pub field: Arc<str>,
}

/// What has been loaded. A key that is not here at all is `Missing`; one that was looked for and not found is here
/// with nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub records: HashMap<RecordId, Option<Arc<Record>>>,
    pub uniques: HashMap<UniqueKey, Option<RecordId>>,
    pub counts: HashMap<CountKey, u64>,
    /// Only accounts that can run short need to be here.
    pub accounts: HashMap<Account, i64>,
    /// In creation order.
    pub links: HashMap<LinkKey, Vec<RecordId>>,
    pub executions: HashMap<(RecordId, Token), Option<Execution>>,
}

/// One part of a key as text that no other value shares: a kind letter, then the value.
pub fn key_part(value: &Value) -> Option<Arc<str>> {
    let text = match value {
        Value::Null => return None,
        Value::Bool(b) => format!("b{b}"),
        Value::Int(i) => format!("i{i}"),
        Value::Double(d) => format!("d{d}"),
        Value::Text(t) => format!("s{t}"),
        Value::Time(t) => format!("t{}", t.micros()),
        Value::Duration(d) => format!("p{}", d.micros()),
        Value::Ref(id) => format!("r{id}"),
        Value::Json(text) => format!("j{text}"),
        Value::List(items) => {
            let parts: Vec<_> = items.iter().map(|item| key_part(item).unwrap_or_else(|| "n".into())).collect();
            format!("l{}", serde_json::to_string(&parts).ok()?)
        }
    };
    Some(text.into())
}
