//! Schema versions and schema migrations.

use crate::error::StoreError;

/// A schema migration. After its release it must not change; add another one instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaMigration {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The schema version of a database and the version that this program supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// 0 for an empty database.
    pub current: u32,
    pub supported: u32,
    /// Names of the migrations from `current` to `supported`, in order.
    pub pending: Vec<&'static str>,
}

impl SchemaStatus {
    /// Fails if the database's schema is newer than this program supports.
    pub(crate) fn compare(current: u32, migrations: &[SchemaMigration]) -> Result<Self, StoreError> {
        let supported = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
        if current > supported {
            return Err(StoreError::SchemaTooNew { found: current, known: supported });
        }
        let pending = migrations.iter().skip(current as usize).map(|migration| migration.name).collect();
        Ok(Self { current, supported, pending })
    }

    /// Fails if the schema is older than this program supports. For read-only access, which cannot migrate.
    pub(crate) fn require_current(&self) -> Result<(), StoreError> {
        let Self { current: found, supported: known, .. } = *self;
        if found < known { Err(StoreError::SchemaTooOld { found, known }) } else { Ok(()) }
    }
}
