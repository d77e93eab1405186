//! Property: limits count exactly.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{Changes, CounterKey, Snapshot, canonical_key_parts};
use onceward_core::model::Definitions;

use super::{Property, PropertyViolation, ensure};

#[derive(Debug, Default)]
pub struct LimitProperty {
    /// Creations by limit and window. Random limits on creations are per owner, which never changes.
    creations: BTreeMap<CounterKey, u64>,
}

impl Property for LimitProperty {
    fn on_applied(
        &mut self,
        _: &Definitions,
        _: bool,
        world: &Snapshot,
        changes: &Changes,
    ) -> Result<(), PropertyViolation> {
        for change in changes.records.iter().filter(|change| change.before.is_none()) {
            let record = &change.after;
            for limit in record.lifecycle.limits.iter().filter(|limit| limit.in_states.is_none()) {
                let Some(parts) = canonical_key_parts(record, &limit.on) else { continue };
                let window = limit.window.map(|per| {
                    let micros = changes.now.micros();
                    micros - micros.rem_euclid(per.micros())
                });
                let key = CounterKey {
                    lifecycle: Arc::clone(&record.lifecycle.name),
                    limit: Arc::clone(&limit.name),
                    parts,
                    window_start: window,
                };
                *self.creations.entry(key).or_default() += 1;
            }
        }
        let mut expected = self.creations.clone();
        for record in world.records.values().flatten() {
            let mut count = |limit: &Arc<str>, parts| {
                let key = CounterKey {
                    lifecycle: Arc::clone(&record.lifecycle.name),
                    limit: Arc::clone(limit),
                    parts,
                    window_start: None,
                };
                *expected.entry(key).or_default() += 1;
            };
            for limit in &record.lifecycle.limits {
                let counted = limit.in_states.is_some_and(|states| states.contains(record.state));
                if let (true, Some(parts)) = (counted, canonical_key_parts(record, &limit.on)) {
                    count(&limit.name, parts);
                }
            }
            // Concurrency keys have a counter of their own while the lease is live.
            let running = record.live_execution().and_then(|execution| execution.concurrency_key.clone());
            if let Some(parts) = running {
                count(&"work.key".into(), parts);
            }
        }
        let stored: BTreeMap<CounterKey, u64> =
            world.counters.iter().filter(|(_, count)| **count > 0).map(|(key, count)| (key.clone(), *count)).collect();
        ensure(stored == expected, "limits count exactly", || format!("{stored:?}\ncounted\n{expected:?}"))
    }
}
