//! Names in keys, by number, as rows.

use onceward_core::model::Lifecycle;
use rusqlite::Connection;

use crate::error::StoreError;
use crate::names::{Names, brought};

pub(super) fn load(connection: &Connection) -> Result<Names, StoreError> {
    let mut names = Names::default();
    let mut statement = connection.prepare("SELECT id, name FROM names")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        names.add(row.get(0)?, row.get::<_, String>(1)?.into());
    }
    Ok(names)
}

/// Write the names that a lifecycle brings; the caller's transaction makes them stay.
pub(super) fn learn(names: &mut Names, connection: &Connection, lifecycle: &Lifecycle) -> Result<(), StoreError> {
    for name in brought(lifecycle) {
        if names.number(name).is_none() {
            connection.execute("INSERT INTO names (name) VALUES (?1)", [name])?;
            names.add(connection.last_insert_rowid(), name.into());
        }
    }
    Ok(())
}
