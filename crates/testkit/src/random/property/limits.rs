//! Limits count exactly.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{Changes, CountKey, Snapshot, key_parts};
use onceward_core::model::Definitions;

use super::{Broken, Property, ensure};

#[derive(Debug, Default)]
pub struct Limits {
    /// Creations, by limit and window. Random limits that count creations are on the owner, who never changes.
    made: BTreeMap<CountKey, u64>,
}

impl Property for Limits {
    fn after(&mut self, _: &Definitions, _: bool, world: &Snapshot, changes: &Changes) -> Result<(), Broken> {
        for change in changes.records.iter().filter(|change| change.before.is_none()) {
            let record = &change.after;
            for limit in record.lifecycle.limits.iter().filter(|limit| limit.within.is_none()) {
                let Some(parts) = key_parts(record, &limit.on) else { continue };
                let window = limit.per.map(|per| {
                    let micros = changes.now.micros();
                    micros - micros.rem_euclid(per.micros())
                });
                let key = CountKey {
                    lifecycle: Arc::clone(&record.lifecycle.name),
                    limit: Arc::clone(&limit.name),
                    parts,
                    window,
                };
                *self.made.entry(key).or_default() += 1;
            }
        }
        let mut wanted = self.made.clone();
        for record in world.records.values().flatten() {
            let mut count = |limit: &Arc<str>, parts| {
                let key = CountKey {
                    lifecycle: Arc::clone(&record.lifecycle.name),
                    limit: Arc::clone(limit),
                    parts,
                    window: None,
                };
                *wanted.entry(key).or_default() += 1;
            };
            for limit in &record.lifecycle.limits {
                let counted = limit.within.is_some_and(|states| states.contains(record.state));
                if let (true, Some(parts)) = (counted, key_parts(record, &limit.on)) {
                    count(&limit.name, parts);
                }
            }
            // Work keys are counted under a name of their own, while the lease lives.
            let running = record.live_execution().and_then(|execution| execution.key.clone());
            if let Some(parts) = running {
                count(&"work.key".into(), parts);
            }
        }
        let kept: BTreeMap<CountKey, u64> =
            world.counts.iter().filter(|(_, count)| **count > 0).map(|(key, count)| (key.clone(), *count)).collect();
        ensure(kept == wanted, "limits count exactly what is there", || {
            format!("{kept:?}\nwhere counting gives\n{wanted:?}")
        })
    }
}
