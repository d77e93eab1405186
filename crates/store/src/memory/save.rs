//! Saving: everything is looked at before anything is changed.

use std::sync::Arc;

use onceward_core::decide::Account;
use onceward_core::time::Time;

use super::kept::{Beside, Kept};
use crate::base::Base;
use crate::batch::{Batch, Conflict, Outcome, Save};
use crate::error::StoreError;
use crate::net::Net;

impl Kept {
    pub(super) fn save(&mut self, base: &Base, batch: &Batch) -> Result<Save, StoreError> {
        let net = Net::of(base, batch)?;
        if net.makes_records() && batch.catalog < self.catalog.number() {
            return Ok(Save::Conflict(Conflict::default()));
        }
        let conflict = self.conflict(base, &net);
        if !conflict.is_empty() {
            return Ok(Save::Conflict(conflict));
        }
        self.constrain(&net)?;
        for write in &batch.writes {
            if let Outcome::Changes(changes) = &write.outcome {
                self.world.apply(changes);
            }
        }
        self.keep_beside(&net, batch.now);
        let first = self.last() + 1;
        let mut last = first - 1;
        for entry in net.entries.into_owned() {
            last += 1;
            if let Some(beside) = entry.record.and_then(|id| self.beside.get_mut(&id)) {
                beside.entry = last;
            }
            self.log.push(entry.at(last));
        }
        self.generation += 1;
        Ok(Save::Saved { first, last })
    }

    fn conflict(&self, base: &Base, net: &Net) -> Conflict {
        let mut fresh = base.probe();
        self.load(&mut fresh, &net.compared(base));
        let mut requests = net.repeated.clone();
        let known = net.requests.iter().filter(|request| self.requests.contains_key(&request.name));
        requests.extend(known.map(|request| request.name.clone()));
        Conflict { keys: base.changed_in(&fresh), requests }
    }

    /// What a database holds by its own constraints, whatever our code does.
    fn constrain(&self, net: &Net) -> Result<(), StoreError> {
        let no = |why: String| Err(StoreError::Rejected(why));
        for record in &net.records {
            let after = &record.after;
            self.catalog.number_of(&after.lifecycle)?;
            if record.before.is_none() && self.world.record(after.id).is_some() {
                return no(format!("{} exists already", after.id));
            }
            if after.hold < 0 {
                return no(format!("{} would hold less than nothing", after.id));
            }
        }
        for (number, effect) in net.effects.iter().enumerate() {
            let again = net.effects[..number].iter().any(|other| other.record == effect.record);
            if again || self.effects.contains_key(&effect.record) {
                return no(format!("{} would have a second effect", effect.record));
            }
        }
        for (account, delta) in &net.accounts {
            let Account::Named { asset, name } = account else { continue };
            let balance = self.world.accounts.get(*account).copied().unwrap_or(0);
            let Some(balance) = balance.checked_add(*delta) else {
                return no(format!("`{name}` would hold more than can be counted"));
            };
            if balance < 0 && !self.catalog.definitions.is_outside(asset, name) {
                return no(format!("`{name}` would hold less than nothing"));
            }
        }
        for (key, delta) in &net.counts {
            let count = self.world.counts.get(*key).copied().unwrap_or(0);
            if count.checked_add_signed(*delta).is_none() {
                return no(format!("fewer than none would count for {key:?}"));
            }
        }
        Ok(())
    }

    fn keep_beside(&mut self, net: &Net, now: Time) {
        for record in &net.records {
            let id = record.after.id;
            let new_row = self.rows.last_key_value().map_or(0, |(row, _)| *row) + 1;
            let beside = self.beside.entry(id).or_insert_with(|| {
                self.rows.insert(new_row, id);
                Beside { row: new_row, head: record.head, entry: 0, links: 0 }
            });
            beside.head = record.head;
        }
        for (link, _) in net.records.iter().flat_map(crate::net::NetRecord::links) {
            if let Some(target) = self.beside.get_mut(&link.target) {
                target.links += 1;
            }
        }
        self.effects.extend(net.effects.iter().map(|effect| (effect.record, (*effect).clone())));
        self.contents.extend(net.contents.iter().map(|(payload, bytes)| (payload.sha256, Arc::from(*bytes))));
        self.requests.extend(net.requests.iter().map(|request| (request.name.clone(), ((*request).clone(), now))));
    }
}
