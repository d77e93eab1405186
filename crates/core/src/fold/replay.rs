//! MSH-24: rolls back to the first change and decides again in the order of the timestamps.

use super::authority::CheckResolver;
use super::before_image::BeforeImage;
use super::clock::HybridTimestamp;
use super::contention::Contention;
use super::eligibility::{CheckExchange, DecideOutcome, decide_operation, require_eligible};
use super::log::FoldPosition;
use super::state::Fold;
use super::verdict::{ApplyStatus, FoldRefusalReason};
use crate::decide::Snapshot;

impl Fold {
    /// Evaluates all operations from this timestamp on again. Starts with whole timestamps, since operations with equal
    /// timestamps may contend.
    pub(super) fn replay_from(&mut self, resolver: &dyn CheckResolver, from: Option<HybridTimestamp>) {
        let Some(from) = from else { return };
        let from = self.roll_back_to(FoldPosition::first_at(from));
        let positions = self.log.positions_from(&from);
        for same_timestamp in positions.chunk_by(|one, next| one.timestamp == next.timestamp) {
            let mut contention = Contention::find_rivals(&self.log, same_timestamp);
            for position in same_timestamp {
                self.apply_position(resolver, position, &mut contention);
            }
        }
    }

    fn apply_position(&mut self, resolver: &dyn CheckResolver, position: &FoldPosition, contention: &mut Contention) {
        let (status, image, mut exchanges) = self.evaluate_position(resolver, position, contention);
        exchanges.extend(contention.take_exchanges(position));
        if exchanges.is_empty() {
            self.positions_with_checks.remove(position);
        } else {
            self.positions_with_checks.insert(position.clone());
        }
        self.before_image_records += image.as_ref().map_or(0, BeforeImage::record_count);
        if let Some(entry) = self.log.get_mut(position) {
            entry.status = status;
            entry.before_image = image;
            entry.check_exchanges = exchanges;
        }
        self.drop_oldest_before_images();
    }

    fn evaluate_position(
        &mut self,
        resolver: &dyn CheckResolver,
        position: &FoldPosition,
        contention: &mut Contention,
    ) -> (ApplyStatus, Option<BeforeImage>, Vec<CheckExchange>) {
        if let Err(applied) = require_eligible(&self.log, position) {
            return (applied, None, Vec::new());
        }
        if let Some(with) = self.losing_rival_of(resolver, position, contention) {
            return (ApplyStatus::Refused(FoldRefusalReason::Contended { with }), None, Vec::new());
        }
        match self.decide_position(resolver, position) {
            (DecideOutcome::NoChanges(applied), exchanges) => (applied, None, exchanges),
            (DecideOutcome::Changes(changes), exchanges) => {
                let image = BeforeImage::capture(&self.snapshot, &changes);
                self.snapshot.apply(&changes);
                (ApplyStatus::Changed, Some(image), exchanges)
            }
        }
    }

    /// Decides an operation on the current state.
    pub(super) fn decide_position(
        &mut self,
        resolver: &dyn CheckResolver,
        position: &FoldPosition,
    ) -> (DecideOutcome, Vec<CheckExchange>) {
        match require_eligible(&self.log, position) {
            Err(applied) => (DecideOutcome::NoChanges(applied), Vec::new()),
            Ok((operation, grant)) => {
                self.decide_calls += 1;
                decide_operation(&self.definitions, &self.snapshot, resolver, operation, grant)
            }
        }
    }

    /// Restores the state before this position, or before the first operation if the images are gone. Returns the
    /// position reached.
    fn roll_back_to(&mut self, from: FoldPosition) -> FoldPosition {
        if self.oldest_before_image.as_ref().is_some_and(|first_kept| from < *first_kept) {
            self.reset_state();
            return self.log.first_position().unwrap_or(from);
        }
        for (_, entry) in self.log.entries_from_mut(&from).rev() {
            if let Some(image) = entry.before_image.take() {
                self.before_image_records -= image.record_count();
                image.restore(&mut self.snapshot);
            }
        }
        from
    }

    /// Resets to the empty state.
    pub(super) fn reset_state(&mut self) {
        self.snapshot = Snapshot::empty_complete();
        self.before_image_records = 0;
        self.oldest_before_image = None;
        self.log.drop_before_images();
    }

    /// Bounds memory. The newest images are the most likely to be needed.
    fn drop_oldest_before_images(&mut self) {
        if self.before_image_records <= self.limits.max_before_image_records {
            return;
        }
        let Some(start) = self.oldest_before_image.clone().or_else(|| self.log.first_position()) else { return };
        for (position, entry) in self.log.entries_from_mut(&start) {
            if self.before_image_records <= self.limits.max_before_image_records {
                break;
            }
            if let Some(image) = entry.before_image.take() {
                self.before_image_records -= image.record_count();
            }
            self.oldest_before_image = Some(position.clone());
        }
    }
}
