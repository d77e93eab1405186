//! MSH-24: taking back what stands behind the first change and deciding it again, in the order of the clocks.

use super::clock::Moment;
use super::image::Image;
use super::judge::{Heard, Ruling, eligible, rule};
use super::log::Place;
use super::standing::Outside;
use super::state::Fold;
use super::tie::Ties;
use super::verdict::{Applied, Reason};
use crate::decide::Snapshot;

impl Fold {
    /// Judge everything of this moment and later anew. Whole moments, since operations of one moment may stand in each
    /// other's way.
    pub(super) fn replay(&mut self, outside: &dyn Outside, from: Option<Moment>) {
        let Some(from) = from else { return };
        let from = self.undo_to(Place::start_of(from));
        let places = self.log.places_from(&from);
        for moment in places.chunk_by(|one, next| one.moment == next.moment) {
            let mut ties = Ties::of(&self.log, moment);
            for place in moment {
                self.judge(outside, place, &mut ties);
            }
        }
    }

    fn judge(&mut self, outside: &dyn Outside, place: &Place, ties: &mut Ties) {
        let (applied, image, mut heard) = self.verdict_on(outside, place, ties);
        heard.extend(ties.heard_of(place));
        if heard.is_empty() {
            self.asking.remove(place);
        } else {
            self.asking.insert(place.clone());
        }
        self.imaged += image.as_ref().map_or(0, Image::records);
        if let Some(entry) = self.log.get_mut(place) {
            entry.applied = applied;
            entry.image = image;
            entry.heard = heard;
        }
        self.drop_oldest_images();
    }

    fn verdict_on(
        &mut self,
        outside: &dyn Outside,
        place: &Place,
        ties: &mut Ties,
    ) -> (Applied, Option<Image>, Vec<Heard>) {
        if let Err(applied) = eligible(&self.log, place) {
            return (applied, None, Vec::new());
        }
        if let Some(with) = self.rival_of(outside, place, ties) {
            return (Applied::Refused(Reason::Tie { with }), None, Vec::new());
        }
        match self.rule_on(outside, place) {
            (Ruling::Other(applied), heard) => (applied, None, heard),
            (Ruling::Changes(changes), heard) => {
                let image = Image::take(&self.world, &changes);
                self.world.apply(&changes);
                (Applied::Changed, Some(image), heard)
            }
        }
    }

    /// What the lifecycle says of an operation, as the world is now.
    pub(super) fn rule_on(&mut self, outside: &dyn Outside, place: &Place) -> (Ruling, Vec<Heard>) {
        match eligible(&self.log, place) {
            Err(applied) => (Ruling::Other(applied), Vec::new()),
            Ok((operation, grant)) => {
                self.decided += 1;
                rule(&self.definitions, &self.world, outside, operation, grant)
            }
        }
    }

    /// The world before this place, or before an earlier one where images are gone; that place.
    fn undo_to(&mut self, from: Place) -> Place {
        if self.undo_from.as_ref().is_some_and(|kept| from < *kept) {
            self.forget();
            return self.log.first_place().unwrap_or(from);
        }
        for (_, entry) in self.log.entries_from_mut(&from).rev() {
            if let Some(image) = entry.image.take() {
                self.imaged -= image.records();
                image.restore(&mut self.world);
            }
        }
        from
    }

    /// Back to the empty world.
    pub(super) fn forget(&mut self) {
        self.world = Snapshot::world();
        self.imaged = 0;
        self.undo_from = None;
        self.log.drop_images();
    }

    /// Memory stays bounded however much an operation changes. The newest images are the likeliest to be needed.
    fn drop_oldest_images(&mut self) {
        if self.imaged <= self.bounds.images {
            return;
        }
        let Some(start) = self.undo_from.clone().or_else(|| self.log.first_place()) else { return };
        for (place, entry) in self.log.entries_from_mut(&start) {
            if self.imaged <= self.bounds.images {
                break;
            }
            if let Some(image) = entry.image.take() {
                self.imaged -= image.records();
            }
            self.undo_from = Some(place.clone());
        }
    }
}
