//! Lifecycles as they are kept, held against the files that they came from.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::time::Time;

use super::{Difference, Learned, What};
use crate::catalog::{Catalog, Turn};

/// The rows of `sources`, `definitions` and `turns`, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptDefinitions {
    /// Number and files.
    pub(crate) sources: Vec<(i64, String)>,
    pub(crate) definitions: Vec<KeptDefinition>,
    pub(crate) turns: Vec<KeptTurn>,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptTurn {
    pub(crate) number: i64,
    pub(crate) definition: i64,
    pub(crate) at: i64,
    pub(crate) actor: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct KeptDefinition {
    pub(crate) number: i64,
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) source: i64,
}

/// The catalog that the files give, as far as they do. A version's hash is that of its compiled form, so nothing can be
/// changed in a file without its being noticed; and each version came with the first files that give it.
pub(crate) fn held_against_files(kept: &KeptDefinitions) -> Learned {
    let mut differences = Vec::new();
    let mut catalog = Catalog::default();
    let mut given = Vec::new();
    let mut is_whole = true;
    let mut reported = BTreeSet::new();
    for (number, files) in &kept.sources {
        match Catalog::compiled(files) {
            Ok((definitions, files)) => given.push((*number, definitions, files)),
            Err(why) => differences.push(Difference::new(
                "sources",
                number,
                What::Differs { column: "files", kept: Some(why.into()), told: Some("files that compile".into()) },
            )),
        }
        if !kept.definitions.iter().any(|definition| definition.source == *number) {
            differences.push(Difference::new("sources", number, What::Extra));
        }
    }
    for lifecycle in given.iter().flat_map(|(_, definitions, _)| definitions.lifecycles.values()) {
        if !kept.definitions.iter().any(|definition| *definition.hash == *lifecycle.hash) {
            let key = format!("{} {}", lifecycle.name, lifecycle.hash);
            differences.push(Difference::new("definitions", key, What::Missing));
            is_whole = false;
        }
    }
    for (place, definition) in (1..).zip(&kept.definitions) {
        let KeptDefinition { number, name, hash, source } = definition;
        if *number != place {
            differences.push(Difference::differs("definitions", number, "number", number, place));
        }
        if !kept.sources.iter().any(|(number, _)| number == source) && reported.insert(*source) {
            differences.push(Difference::new("sources", source, What::Missing));
        }
        let version_in = |definitions: &onceward_core::model::Definitions| {
            definitions.lifecycles.values().find(|lifecycle| *lifecycle.hash == **hash).map(Arc::clone)
        };
        let first = given
            .iter()
            .find_map(|(number, definitions, files)| version_in(definitions).map(|found| (*number, found, files)));
        let Some((first, lifecycle, files)) = first else {
            // The one that its files give under its name, so that the rest can still be looked at.
            let own = given.iter().find(|(number, ..)| number == source);
            let named = own.and_then(|(_, definitions, files)| {
                definitions.lifecycles.get(&**name).map(|version| (version, files))
            });
            let told = named.map_or("a version that its files give", |(named, _)| &*named.hash);
            differences.push(Difference::differs("definitions", number, "hash", hash, told));
            match named {
                Some((named, files)) => catalog.add(named, files),
                None => is_whole = false,
            }
            continue;
        };
        if first != *source {
            differences.push(Difference::differs("definitions", number, "source", source, first));
        }
        if *lifecycle.name != **name {
            differences.push(Difference::differs("definitions", number, "name", name, &lifecycle.name));
        }
        catalog.add(&lifecycle, files);
    }
    held_against_versions(kept, &mut catalog, &mut differences);
    Learned { catalog: Arc::new(catalog), is_whole, differences }
}

/// Every version became current when it came, in the order in which they came. What became current on somebody's word is in the log,
/// for whoever reads that to compare.
fn held_against_versions(kept: &KeptDefinitions, catalog: &mut Catalog, differences: &mut Vec<Difference>) {
    let mut came = 0;
    for (place, turn) in (1..).zip(&kept.turns) {
        let KeptTurn { number, definition, at, actor } = turn;
        if *number != place {
            differences.push(Difference::differs("turns", number, "number", number, place));
        }
        if actor.is_none() {
            came += 1;
            if *definition != came {
                differences.push(Difference::differs("turns", number, "definition", definition, came));
            }
        }
        // The one that it must be where it came, so that the rest can still be looked at.
        let definition = if actor.is_none() { came } else { *definition };
        let definition = u32::try_from(definition).unwrap_or(0);
        catalog.turn(Turn { definition, at: Time::from_micros(*at), by: actor.as_deref().map(Into::into) });
    }
    let all = i64::from(catalog.newest());
    for missing in came + 1..=all {
        differences.push(Difference::new("turns", format!("of definition {missing}"), What::Missing));
        catalog.turn(Turn { definition: u32::try_from(missing).unwrap_or(0), at: Time::MIN, by: None });
    }
}
