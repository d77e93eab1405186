//! Names in keys, by number. All of them come with definitions, so that a save never meets a new one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::model::{Lifecycle, Type, WorkKey};

use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::scan::{Difference, What};

/// Definitions and names, as of some time.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) names: Arc<Names>,
}

impl Known {
    /// How the jobs of a version's work key share it.
    pub(crate) fn work_key(&self, definition: u32) -> Option<&WorkKey> {
        self.catalog.by_number(definition)?.work.as_ref()?.key.as_ref()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Arc<str>, i64>,
    names: HashMap<i64, Arc<str>>,
}

impl Names {
    pub(crate) fn add(&mut self, number: i64, name: Arc<str>) {
        self.numbers.insert(Arc::clone(&name), number);
        self.names.insert(number, name);
    }

    /// The names as these versions, in this order, bring them.
    pub(crate) fn of<'a>(versions: impl Iterator<Item = &'a Arc<Lifecycle>>) -> Self {
        let mut names = Self::default();
        for name in versions.flat_map(|lifecycle| brought(lifecycle)) {
            if !names.numbers.contains_key(name) {
                names.add(names.last() + 1, name.into());
            }
        }
        names
    }

    fn all(&self) -> impl Iterator<Item = (i64, &Arc<str>)> {
        self.names.iter().map(|(number, name)| (*number, name))
    }

    /// What is wrong with the names that are kept; these are the ones that the definitions bring.
    pub(crate) fn differences(&self, kept: &Self) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (number, name) in self.all() {
            match kept.names.get(&number) {
                Some(other) if other == name => {}
                Some(other) => differences.push(Difference::differs("names", number, "name", other, name)),
                None => differences.push(Difference::new("names", number, What::Missing)),
            }
        }
        let extra = kept.all().filter(|(number, _)| !self.names.contains_key(number));
        differences.extend(extra.map(|(number, _)| Difference::new("names", number, What::Extra)));
        differences
    }

    /// `None` for a name that no definition brought: nothing is kept under it.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.numbers.get(name).copied()
    }

    /// The number of a name that is to be written.
    pub(crate) fn known(&self, name: &str) -> Result<i64, StoreError> {
        self.number(name)
            .ok_or_else(|| StoreError::Rejected(format!("no lifecycle that was given to this store names `{name}`")))
    }

    pub(crate) fn name(&self, number: i64) -> Result<Arc<str>, StoreError> {
        self.names.get(&number).cloned().ok_or_else(|| StoreError::corrupt(format!("no name has the number {number}")))
    }

    /// The largest number that was given.
    pub(crate) fn last(&self) -> i64 {
        self.names.keys().copied().max().unwrap_or(0)
    }
}

/// The names that a lifecycle brings.
pub(crate) fn brought(lifecycle: &Lifecycle) -> BTreeSet<&str> {
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
