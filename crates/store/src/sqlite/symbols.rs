//! The symbol table in SQLite.

use onceward_core::model::Lifecycle;
use rusqlite::Connection;

use crate::error::StoreError;
use crate::symbols::{SymbolTable, symbol_names};

pub(super) fn load_symbols(connection: &Connection) -> Result<SymbolTable, StoreError> {
    let mut symbols = SymbolTable::default();
    let mut statement = connection.prepare("SELECT id, name FROM names")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        symbols.insert(row.get(0)?, row.get::<_, String>(1)?.into());
    }
    Ok(symbols)
}

/// Inserts the names that a lifecycle declares, in the caller's transaction.
pub(super) fn insert_symbols(
    symbols: &mut SymbolTable,
    connection: &Connection,
    lifecycle: &Lifecycle,
) -> Result<(), StoreError> {
    for name in symbol_names(lifecycle) {
        if symbols.id(name).is_none() {
            connection.execute("INSERT INTO names (name) VALUES (?1)", [name])?;
            symbols.insert(connection.last_insert_rowid(), name.into());
        }
    }
    Ok(())
}
