//! Names in keys, by number. All of them come with definitions, so that a save never meets a new one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::model::{Lifecycle, Type};
use rusqlite::Connection;

use crate::error::StoreError;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Arc<str>, i64>,
    names: HashMap<i64, Arc<str>>,
}

impl Names {
    pub(super) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut names = Self::default();
        let mut statement = connection.prepare("SELECT id, name FROM names")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            names.add(row.get(0)?, row.get::<_, String>(1)?.into());
        }
        Ok(names)
    }

    /// The names as these versions, in this order, bring them.
    pub(super) fn of(versions: &[Arc<Lifecycle>]) -> Self {
        let mut names = Self::default();
        for name in versions.iter().flat_map(|lifecycle| brought(lifecycle)) {
            if !names.numbers.contains_key(name) {
                let next = i64::try_from(names.names.len()).unwrap_or(i64::MAX).saturating_add(1);
                names.add(next, name.into());
            }
        }
        names
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (i64, &Arc<str>)> {
        self.names.iter().map(|(number, name)| (*number, name))
    }

    fn add(&mut self, number: i64, name: Arc<str>) {
        self.numbers.insert(Arc::clone(&name), number);
        self.names.insert(number, name);
    }

    /// `None` for a name that no definition brought: nothing is kept under it.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }

    /// The number of a name that is to be written.
    pub(super) fn known(&self, name: &str) -> Result<i64, StoreError> {
        self.number(name)
            .ok_or_else(|| StoreError::Rejected(format!("no lifecycle that was given to this store names `{name}`")))
    }

    pub(super) fn name(&self, number: i64) -> Result<Arc<str>, StoreError> {
        self.names.get(&number).cloned().ok_or_else(|| StoreError::corrupt(format!("no name has the number {number}")))
    }

    /// Write the names that a lifecycle brings; the caller's transaction makes them stay.
    pub(super) fn learn(&mut self, connection: &Connection, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        for name in brought(lifecycle) {
            if !self.numbers.contains_key(name) {
                connection.execute("INSERT INTO names (name) VALUES (?1)", [name])?;
                self.add(connection.last_insert_rowid(), name.into());
            }
        }
        Ok(())
    }
}

/// The names that stand in keys of a lifecycle's records.
fn brought(lifecycle: &Lifecycle) -> BTreeSet<&str> {
    let mut brought: BTreeSet<&str> = ["key", "work.key", &lifecycle.name].into();
    brought.extend(lifecycle.states.iter().map(|state| &*state.name));
    brought.extend(lifecycle.uniques.iter().map(|unique| &*unique.name));
    brought.extend(lifecycle.limits.iter().map(|limit| &*limit.name));
    brought.extend(lifecycle.fields.iter().filter(|field| refers(&field.ty)).map(|field| &*field.name));
    brought
}

fn refers(ty: &Type) -> bool {
    match ty {
        Type::Ref(_) => true,
        Type::List(element) => refers(element),
        _ => false,
    }
}
