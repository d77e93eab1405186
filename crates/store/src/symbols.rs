//! The symbol table: numbers for the names used in keys. All names come from lifecycle definitions, so a save never
//! adds one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::model::{ConcurrencyPolicy, DataType, Lifecycle};

use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::scan::{DifferenceKind, TableDifference};

/// The catalog and its symbol table at one time.
#[derive(Clone, Debug)]
pub(crate) struct CatalogSnapshot {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) symbols: Arc<SymbolTable>,
}

impl CatalogSnapshot {
    /// Returns how the jobs of this version share a concurrency key.
    pub(crate) fn concurrency_policy(&self, definition: u32) -> Option<&ConcurrencyPolicy> {
        self.catalog.by_number(definition)?.work.as_ref()?.concurrency.as_ref()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolTable {
    ids_by_name: HashMap<Arc<str>, i64>,
    names_by_id: HashMap<i64, Arc<str>>,
}

impl SymbolTable {
    pub(crate) fn insert(&mut self, id: i64, name: Arc<str>) {
        self.ids_by_name.insert(Arc::clone(&name), id);
        self.names_by_id.insert(id, name);
    }

    /// Builds the symbol table of these versions, numbering names in this order.
    pub(crate) fn from_versions<'a>(versions: impl Iterator<Item = &'a Arc<Lifecycle>>) -> Self {
        let mut names = Self::default();
        for name in versions.flat_map(|lifecycle| symbol_names(lifecycle)) {
            if !names.ids_by_name.contains_key(name) {
                names.insert(names.last_id() + 1, name.into());
            }
        }
        names
    }

    fn iter(&self) -> impl Iterator<Item = (i64, &Arc<str>)> {
        self.names_by_id.iter().map(|(number, name)| (*number, name))
    }

    /// Compares the stored symbol table with this one, which was built from the definitions.
    pub(crate) fn differences(&self, stored: &Self) -> Vec<TableDifference> {
        let mut differences = Vec::new();
        for (number, name) in self.iter() {
            match stored.names_by_id.get(&number) {
                Some(other) if other == name => {}
                Some(other) => differences.push(TableDifference::differs("names", number, "name", other, name)),
                None => differences.push(TableDifference::new("names", number, DifferenceKind::Missing)),
            }
        }
        let extra = stored.iter().filter(|(number, _)| !self.names_by_id.contains_key(number));
        differences.extend(extra.map(|(number, _)| TableDifference::new("names", number, DifferenceKind::Extra)));
        differences
    }

    /// Returns `None` for a name that no definition declares. No row uses such a name.
    pub(crate) fn id(&self, name: &str) -> Option<i64> {
        self.ids_by_name.get(name).copied()
    }

    /// Returns the number of a name that is to be written.
    pub(crate) fn require_id(&self, name: &str) -> Result<i64, StoreError> {
        self.id(name).ok_or_else(|| {
            StoreError::Rejected(format!("no stored lifecycle declares the name `{name}`, so no row can refer to it"))
        })
    }

    pub(crate) fn name(&self, id: i64) -> Result<Arc<str>, StoreError> {
        self.names_by_id.get(&id).cloned().ok_or_else(|| {
            StoreError::corrupt(format!("a row refers to the name with id {id}, which the table `names` does not have"))
        })
    }

    pub(crate) fn last_id(&self) -> i64 {
        self.names_by_id.keys().copied().max().unwrap_or(0)
    }
}

/// Returns the names that rows refer to by id: the lifecycle, its states, unique keys, limits and reference fields, and
/// the fixed names `key` and `work.key`.
pub(crate) fn symbol_names(lifecycle: &Lifecycle) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> = ["key", "work.key", &lifecycle.name].into();
    names.extend(lifecycle.states.iter().map(|state| &*state.name));
    names.extend(lifecycle.unique_constraints.iter().map(|unique| &*unique.name));
    names.extend(lifecycle.limits.iter().map(|limit| &*limit.name));
    names.extend(lifecycle.fields.iter().filter(|field| is_reference(&field.ty)).map(|field| &*field.name));
    names
}

fn is_reference(ty: &DataType) -> bool {
    match ty {
        DataType::Ref(_) => true,
        DataType::List(element) => is_reference(element),
        _ => false,
    }
}
