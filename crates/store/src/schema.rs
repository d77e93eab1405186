//! Schemas by number, and how one becomes the next.

use crate::error::StoreError;

/// One step. Never changed once released: a further one is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Which schema a database has, and which this program works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Nothing where there is none yet.
    pub found: u32,
    pub known: u32,
    /// The migrations that lead from the one to the other, in order.
    pub missing: Vec<&'static str>,
}

impl Schema {
    /// Refuses one that is newer than all that we know.
    pub(crate) fn of(found: u32, migrations: &[Migration]) -> Result<Self, StoreError> {
        let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
        if found > known {
            return Err(StoreError::TooNew { found, known });
        }
        let missing = migrations.iter().skip(found as usize).map(|migration| migration.name).collect();
        Ok(Self { found, known, missing })
    }

    /// Refuses one that is older, too: who only reads brings nothing up to date.
    pub(crate) fn is_current(&self) -> Result<(), StoreError> {
        let Self { found, known, .. } = *self;
        if found < known { Err(StoreError::TooOld { found, known }) } else { Ok(()) }
    }
}
