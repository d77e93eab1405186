//! MSH-14: a race is not won by a name.
//!
//! Operations of one moment are folded in the order of their authors' names. Where that order alone would decide which of
//! several nodes comes to hold a record, none does. Decision 0030 says how narrow this is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::image::Image;
use super::judge::{Heard, Ruling, eligible};
use super::log::{Log, Place};
use super::operation::{LogCall, OperationId};
use super::standing::Outside;
use super::state::Fold;
use crate::decide::Changes;
use crate::value::{RecordId, Value};

/// The operations of one moment that call the same event of the same record.
pub(super) struct Ties {
    rivals: BTreeMap<(RecordId, Arc<str>), Vec<Place>>,
    /// Operations that lose, each with one that it met.
    lost: BTreeMap<OperationId, OperationId>,
    /// What the outside was asked while they were weighed: other answers may tie them, or untie them.
    heard: BTreeMap<OperationId, Vec<Heard>>,
}

impl Ties {
    pub(super) fn of(log: &Log, moment: &[Place]) -> Self {
        let mut ties = Self { rivals: BTreeMap::new(), lost: BTreeMap::new(), heard: BTreeMap::new() };
        if moment.len() < 2 {
            return ties;
        }
        for place in moment {
            let Ok((operation, _)) = eligible(log, place) else { continue };
            if let LogCall::Fire { record, event, .. } = &operation.call {
                ties.rivals.entry((*record, Arc::clone(event))).or_default().push(place.clone());
            }
        }
        ties.rivals.retain(|_, rivals| rivals.len() > 1);
        ties
    }

    pub(super) fn heard_of(&mut self, place: &Place) -> Vec<Heard> {
        self.heard.remove(&place.id).unwrap_or_default()
    }
}

impl Fold {
    /// The operation that this one met in a race that nobody wins. Weighed when the first of the rivals has its turn.
    pub(super) fn rival_of(&mut self, outside: &dyn Outside, place: &Place, ties: &mut Ties) -> Option<OperationId> {
        if !ties.rivals.is_empty()
            && let Some(LogCall::Fire { record, event, .. }) = self.log.get(place).map(|entry| &entry.operation.call)
            && let Some(rivals) = ties.rivals.remove(&(*record, Arc::clone(event)))
        {
            let losers = self.losers(outside, &rivals, ties);
            for (at, loser) in losers.iter().enumerate() {
                let met = if at == 0 { losers.get(1) } else { losers.first() };
                ties.lost.extend(met.map(|met| (loser.id, met.id)));
            }
        }
        ties.lost.get(&place.id).copied()
    }

    /// Those of the rivals that would each come to hold the record if it were alone, when they cannot all have it one after
    /// another.
    fn losers(&mut self, outside: &dyn Outside, rivals: &[Place], ties: &mut Ties) -> Vec<Place> {
        let mut claims = Vec::new();
        for place in rivals {
            let (ruling, heard) = self.rule_on(outside, place);
            ties.heard.entry(place.id).or_default().extend(heard);
            if matches!(&ruling, Ruling::Changes(changes) if is_claim(changes, &place.author)) {
                claims.push(place.clone());
            }
        }
        if claims.len() < 2 {
            return Vec::new();
        }
        let mut images = Vec::with_capacity(claims.len());
        let mut shut_out = false;
        for place in &claims {
            let (ruling, heard) = self.rule_on(outside, place);
            ties.heard.entry(place.id).or_default().extend(heard);
            match ruling {
                Ruling::Changes(changes) => {
                    images.push(Image::take(&self.world, &changes));
                    self.world.apply(&changes);
                }
                Ruling::Other(applied) => shut_out |= !applied.is_applied(),
            }
        }
        images.into_iter().rev().for_each(|image| image.restore(&mut self.world));
        if shut_out { claims } else { Vec::new() }
    }
}

/// Whether an operation writes its author's name on the record it is about.
fn is_claim(changes: &Changes, author: &str) -> bool {
    let names = |value: &Value| matches!(value, Value::Text(text) if **text == *author);
    let change = changes.records.iter().find(|change| change.after.id == changes.subject);
    change.is_some_and(|change| {
        let before = change.before.as_ref().map_or(&[][..], |before| &before.fields);
        let mut fields = change.after.fields.iter().enumerate();
        fields.any(|(slot, value)| names(value) && !before.get(slot).is_some_and(names))
    })
}
