//! How many uploads come at once: of all owners together, and of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_server::Problem;

#[derive(Clone, Debug)]
pub(crate) struct Places {
    most: usize,
    of_one_owner: usize,
    /// How many each owner has; none is not kept.
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// One of them. Dropped, it is free again.
#[derive(Debug)]
pub(crate) struct Place {
    owner: Arc<str>,
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

impl Places {
    pub(crate) fn new(most: usize, of_one_owner: usize) -> Self {
        Self { most, of_one_owner, taken: Arc::default() }
    }

    pub(crate) fn take(&self, owner: &Arc<str>) -> Result<Place, Problem> {
        let full = |detail: &str| Err(Problem::new(503, "too_many_uploads", detail));
        let mut taken = locked(&self.taken);
        if taken.values().sum::<usize>() >= self.most {
            return full("as many uploads come in as may at once: try again");
        }
        if taken.get(owner).is_some_and(|own| *own >= self.of_one_owner) {
            return full("as many uploads of yours come in as may at once: try again when one is done");
        }
        *taken.entry(Arc::clone(owner)).or_default() += 1;
        Ok(Place { owner: Arc::clone(owner), taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        if let Some(own) = taken.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

/// Numbers are right whoever panicked beside them.
fn locked(taken: &Mutex<HashMap<Arc<str>, usize>>) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_owner_has_them_all_and_each_is_free_again() {
        let (ann, eve): (Arc<str>, Arc<str>) = ("ann".into(), "eve".into());
        let places = Places::new(3, 2);
        let of_eve = [&eve, &eve].map(|owner| places.take(owner).expect("a place"));
        assert!(places.take(&eve).is_err(), "a third of hers");
        let of_ann = places.take(&ann).expect("a place");
        assert!(places.take(&ann).is_err(), "a fourth in all");
        drop(of_eve);
        assert!(places.take(&eve).is_ok() && places.take(&ann).is_ok());
        drop(of_ann);
        assert!(locked(&places.taken).is_empty());
    }
}
