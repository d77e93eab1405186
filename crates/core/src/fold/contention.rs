//! MSH-14: if claims to a record have equal timestamps and exclude each other, none wins.
//!
//! Operations with equal timestamps are folded in the order of their authors' names. The names must not decide which
//! node gets a record, so all such claims are refused. Decision 0010 explains why the rule is narrow.

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

/// Operations with equal timestamps that fire the same event on the same record.
pub(super) struct Contention {
    rivals: BTreeMap<(RecordId, Arc<str>), Vec<FoldPosition>>,
    /// Refused claims, each with one of its rivals.
    losers: BTreeMap<OperationId, OperationId>,
    /// Check queries and answers from comparing the rivals. Other answers may create or resolve the contention.
    check_exchanges: BTreeMap<OperationId, Vec<CheckExchange>>,
}

impl Contention {
    pub(super) fn find_rivals(log: &FoldLog, positions: &[FoldPosition]) -> Self {
        let mut contention =
            Self { rivals: BTreeMap::new(), losers: BTreeMap::new(), check_exchanges: BTreeMap::new() };
        if positions.len() < 2 {
            return contention;
        }
        for position in positions {
            let Ok((operation, _)) = require_eligible(log, position) else { continue };
            if let LogCall::Fire { record, event, .. } = &operation.call {
                contention.rivals.entry((*record, Arc::clone(event))).or_default().push(position.clone());
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
    /// Returns a rival of this operation if both are refused for contention. Compares the rivals when the first of them
    /// is folded.
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
                contention.losers.extend(rival.map(|rival| (loser.id, rival.id)));
            }
        }
        contention.losers.get(&position.id).copied()
    }

    /// Returns the rivals that would each claim the record alone, if they cannot all be applied in sequence.
    fn find_losers(
        &mut self,
        resolver: &dyn CheckResolver,
        rivals: &[FoldPosition],
        contention: &mut Contention,
    ) -> Vec<FoldPosition> {
        let mut claims = Vec::new();
        for position in rivals {
            let (ruling, exchanges) = self.decide_position(resolver, position);
            contention.check_exchanges.entry(position.id).or_default().extend(exchanges);
            if matches!(&ruling, DecideOutcome::Changes(changes) if is_claim(changes, &position.author)) {
                claims.push(position.clone());
            }
        }
        if claims.len() < 2 {
            return Vec::new();
        }
        let mut images = Vec::with_capacity(claims.len());
        let mut has_excluded_claim = false;
        for position in &claims {
            let (ruling, exchanges) = self.decide_position(resolver, position);
            contention.check_exchanges.entry(position.id).or_default().extend(exchanges);
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

/// Whether the operation writes its author's name into a field of its subject.
fn is_claim(changes: &Changes, author: &str) -> bool {
    let names_author = |value: &Value| matches!(value, Value::Text(text) if **text == *author);
    let change = changes.records.iter().find(|change| change.after.id == changes.subject);
    change.is_some_and(|change| {
        let before = change.before.as_ref().map_or(&[][..], |before| &before.fields);
        let mut fields = change.after.fields.iter().enumerate();
        fields.any(|(slot, value)| names_author(value) && !before.get(slot).is_some_and(names_author))
    })
}
