//! Compares stored lifecycle versions with the source files they came from.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::time::Time;

use super::{CatalogScan, DifferenceKind, TableDifference};
use crate::catalog::{Activation, Catalog};

/// The rows of the catalog tables, ordered by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredCatalogRows {
    /// Number and encoded files.
    pub(crate) sources: Vec<(i64, String)>,
    pub(crate) definitions: Vec<StoredDefinition>,
    pub(crate) activations: Vec<StoredActivation>,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredActivation {
    pub(crate) number: i64,
    pub(crate) definition: i64,
    pub(crate) at: i64,
    pub(crate) actor: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredDefinition {
    pub(crate) number: i64,
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) source: i64,
}

/// Builds the catalog from the stored files and compares the rows with it. A version's hash covers its compiled form,
/// so any change of a file is detected. If several sources contain a version, its row must name the first of them.
pub(crate) fn compare_with_files(stored: &StoredCatalogRows) -> CatalogScan {
    let mut differences = Vec::new();
    let mut catalog = Catalog::default();
    let mut compiled = Vec::new();
    let mut is_complete = true;
    let mut reported = BTreeSet::new();
    for (number, files) in &stored.sources {
        match Catalog::compile_source(files) {
            Ok((definitions, files)) => compiled.push((*number, definitions, files)),
            Err(why) => differences.push(TableDifference::new(
                "sources",
                number,
                DifferenceKind::Differs {
                    column: "files",
                    stored: Some(why.into()),
                    expected: Some("files that compile".into()),
                },
            )),
        }
        if !stored.definitions.iter().any(|definition| definition.source == *number) {
            differences.push(TableDifference::new("sources", number, DifferenceKind::Extra));
        }
    }
    for lifecycle in compiled.iter().flat_map(|(_, definitions, _)| definitions.lifecycles.values()) {
        if !stored.definitions.iter().any(|definition| *definition.hash == *lifecycle.hash) {
            let key = format!("{} {}", lifecycle.name, lifecycle.hash);
            differences.push(TableDifference::new("definitions", key, DifferenceKind::Missing));
            is_complete = false;
        }
    }
    for (expected_number, definition) in (1..).zip(&stored.definitions) {
        let StoredDefinition { number, name, hash, source } = definition;
        if *number != expected_number {
            differences.push(TableDifference::differs("definitions", number, "number", number, expected_number));
        }
        if !stored.sources.iter().any(|(number, _)| number == source) && reported.insert(*source) {
            differences.push(TableDifference::new("sources", source, DifferenceKind::Missing));
        }
        let version_in = |definitions: &onceward_core::model::Definitions| {
            definitions.lifecycles.values().find(|lifecycle| *lifecycle.hash == **hash).map(Arc::clone)
        };
        let first = compiled
            .iter()
            .find_map(|(number, definitions, files)| version_in(definitions).map(|found| (*number, found, files)));
        let Some((first, lifecycle, files)) = first else {
            // Use the version of that name in the row's own source, so that the remaining tables can still be compared.
            let own = compiled.iter().find(|(number, ..)| number == source);
            let named = own.and_then(|(_, definitions, files)| {
                definitions.lifecycles.get(&**name).map(|version| (version, files))
            });
            let expected = named.map_or("the hash of a version in its files", |(named, _)| &*named.hash);
            differences.push(TableDifference::differs("definitions", number, "hash", hash, expected));
            match named {
                Some((named, files)) => catalog.add_version(named, files),
                None => is_complete = false,
            }
            continue;
        };
        if first != *source {
            differences.push(TableDifference::differs("definitions", number, "source", source, first));
        }
        if *lifecycle.name != **name {
            differences.push(TableDifference::differs("definitions", number, "name", name, &lifecycle.name));
        }
        catalog.add_version(&lifecycle, files);
    }
    compare_activations(stored, &mut catalog, &mut differences);
    CatalogScan { catalog: Arc::new(catalog), is_complete, differences }
}

/// Checks that each version was activated when it was added, in that order. Explicit activations are compared with the
/// log by the caller.
fn compare_activations(stored: &StoredCatalogRows, catalog: &mut Catalog, differences: &mut Vec<TableDifference>) {
    let mut added_versions = 0;
    for (expected_number, activation) in (1..).zip(&stored.activations) {
        let StoredActivation { number, definition, at, actor } = activation;
        if *number != expected_number {
            differences.push(TableDifference::differs("activations", number, "number", number, expected_number));
        }
        if actor.is_none() {
            added_versions += 1;
            if *definition != added_versions {
                differences.push(TableDifference::differs(
                    "activations",
                    number,
                    "definition",
                    definition,
                    added_versions,
                ));
            }
        }
        // For an activation without an actor, use the expected version, so that the remaining tables can still be
        // compared.
        let definition = if actor.is_none() { added_versions } else { *definition };
        let definition = u32::try_from(definition).unwrap_or(0);
        catalog.activate(Activation {
            version_number: definition,
            activated_at: Time::from_micros(*at),
            activated_by: actor.as_deref().map(Into::into),
        });
    }
    let all = i64::from(catalog.newest_version_number());
    for missing in added_versions + 1..=all {
        differences.push(TableDifference::new(
            "activations",
            format!("of definition {missing}"),
            DifferenceKind::Missing,
        ));
        catalog.activate(Activation {
            version_number: u32::try_from(missing).unwrap_or(0),
            activated_at: Time::MIN,
            activated_by: None,
        });
    }
}
