//! MSH-14: a race is not won by a name.
//!
//! Operations of one moment are folded in the order of their authors' names. Where that order alone would decide which of
//! several nodes comes to hold a record, none does. Decision 0010 says how narrow this is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::authority::CheckResolver;
use super::before_image::BeforeImage;
use super::eligibility::{CheckExchange, DecideOutcome, require_eligible};
use super::log::{FoldLog, FoldPosition};
use super::operation::{LogCall, OperationId};
use super::state::Fold;
use crate::decide::Changes;
use crate::value::{RecordId, Value};

/// The operations of one moment that call the same event of the same record.
pub(super) struct Contention {
    rivals: BTreeMap<(RecordId, Arc<str>), Vec<FoldPosition>>,
    /// Operations that lose, each with one that it met.
    losers: BTreeMap<OperationId, OperationId>,
    /// What the outside was asked while they were weighed: other answers may tie them, or untie them.
    check_exchanges: BTreeMap<OperationId, Vec<CheckExchange>>,
}

impl Contention {
    pub(super) fn find_rivals(log: &FoldLog, positions: &[FoldPosition]) -> Self {
        let mut contention =
            Self { rivals: BTreeMap::new(), losers: BTreeMap::new(), check_exchanges: BTreeMap::new() };
        if positions.len() < 2 {
            return contention;
        }
        for place in positions {
            let Ok((operation, _)) = require_eligible(log, place) else { continue };
            if let LogCall::Fire { record, event, .. } = &operation.call {
                contention.rivals.entry((*record, Arc::clone(event))).or_default().push(place.clone());
            }
        }
        contention.rivals.retain(|_, rivals| rivals.len() > 1);
        contention
    }

    pub(super) fn take_exchanges(&mut self, position: &FoldPosition) -> Vec<CheckExchange> {
        self.check_exchanges.remove(&position.id).unwrap_or_default()
    }
}

impl Fold {
    /// The operation that this one met in a race that nobody wins. Weighed when the first of the rivals has its turn.
    pub(super) fn losing_rival_of(
        &mut self,
        resolver: &dyn CheckResolver,
        position: &FoldPosition,
        contention: &mut Contention,
    ) -> Option<OperationId> {
        if !contention.rivals.is_empty()
            && let Some(LogCall::Fire { record, event, .. }) = self.log.get(position).map(|entry| &entry.operation.call)
            && let Some(rivals) = contention.rivals.remove(&(*record, Arc::clone(event)))
        {
            let losers = self.find_losers(resolver, &rivals, contention);
            for (index, loser) in losers.iter().enumerate() {
                let rival = if index == 0 { losers.get(1) } else { losers.first() };
                contention.losers.extend(rival.map(|met| (loser.id, met.id)));
            }
        }
        contention.losers.get(&position.id).copied()
    }

    /// Those of the rivals that would each come to hold the record if it were alone, when they cannot all have it one after
    /// another.
    fn find_losers(
        &mut self,
        resolver: &dyn CheckResolver,
        rivals: &[FoldPosition],
        contention: &mut Contention,
    ) -> Vec<FoldPosition> {
        let mut claims = Vec::new();
        for place in rivals {
            let (ruling, heard) = self.decide_position(resolver, place);
            contention.check_exchanges.entry(place.id).or_default().extend(heard);
            if matches!(&ruling, DecideOutcome::Changes(changes) if is_claim(changes, &place.author)) {
                claims.push(place.clone());
            }
        }
        if claims.len() < 2 {
            return Vec::new();
        }
        let mut images = Vec::with_capacity(claims.len());
        let mut has_excluded_claim = false;
        for place in &claims {
            let (ruling, heard) = self.decide_position(resolver, place);
            contention.check_exchanges.entry(place.id).or_default().extend(heard);
            match ruling {
                DecideOutcome::Changes(changes) => {
                    images.push(BeforeImage::capture(&self.snapshot, &changes));
                    self.snapshot.apply(&changes);
                }
                DecideOutcome::NoChanges(applied) => has_excluded_claim |= !applied.is_applied(),
            }
        }
        images.into_iter().rev().for_each(|image| image.restore(&mut self.snapshot));
        if has_excluded_claim { claims } else { Vec::new() }
    }
}

/// Whether an operation writes its author's name on the record it is about.
fn is_claim(changes: &Changes, author: &str) -> bool {
    let names_author = |value: &Value| matches!(value, Value::Text(text) if **text == *author);
    let change = changes.records.iter().find(|change| change.after.id == changes.subject);
    change.is_some_and(|change| {
        let before = change.before.as_ref().map_or(&[][..], |before| &before.fields);
        let mut fields = change.after.fields.iter().enumerate();
        fields.any(|(slot, value)| names_author(value) && !before.get(slot).is_some_and(names_author))
    })
}
