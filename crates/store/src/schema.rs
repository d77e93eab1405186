//! Schemas by number, and how one becomes the next.

use crate::error::StoreError;

/// One step. Never changed once released: a further one is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaMigration {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Which schema a database has, and which this program works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Nothing where there is none yet.
    pub current: u32,
    pub supported: u32,
    /// The migrations that lead from the one to the other, in order.
    pub pending: Vec<&'static str>,
}

impl SchemaStatus {
    /// Refuses one that is newer than all that we know.
    pub(crate) fn compare(current: u32, migrations: &[SchemaMigration]) -> Result<Self, StoreError> {
        let supported = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
        if current > supported {
            return Err(StoreError::SchemaTooNew { found: current, known: supported });
        }
        let pending = migrations.iter().skip(current as usize).map(|migration| migration.name).collect();
        Ok(Self { current, supported, pending })
    }

    /// Refuses one that is older, too: who only reads brings nothing up to date.
    pub(crate) fn require_current(&self) -> Result<(), StoreError> {
        let Self { current: found, supported: known, .. } = *self;
        if found < known { Err(StoreError::SchemaTooOld { found, known }) } else { Ok(()) }
    }
}
