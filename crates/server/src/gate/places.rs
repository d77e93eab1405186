//! Places for calls that stay: so many for all, and of those a share for each key, so that nobody has them all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    /// Of one key.
    share: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only of keys that have some.
    by_key: HashMap<Arc<str>, usize>,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All are taken.
    ForAll,
    /// This key has so many, and may have no more.
    ForKey(usize),
}

impl Places {
    /// So many, of which one key may have so many in a hundred: one at least.
    pub(crate) fn new(most: usize, percent: u8) -> Self {
        let share = most.saturating_mul(usize::from(percent)).div_ceil(100);
        Self { most, share: share.clamp(1, most.max(1)), taken: Mutex::default() }
    }

    /// A place until it is dropped. Whoever has no key is one of those on this machine, who need not share.
    pub(crate) fn take(self: &Arc<Self>, key: Option<&Arc<str>>) -> Result<Place, Full> {
        let mut taken = self.lock();
        if taken.all >= self.most {
            return Err(Full::ForAll);
        }
        if let Some(key) = key {
            let own = taken.by_key.get(key).copied().unwrap_or(0);
            if own >= self.share {
                return Err(Full::ForKey(own));
            }
            taken.by_key.insert(Arc::clone(key), own + 1);
        }
        taken.all += 1;
        Ok(Place { places: Arc::clone(self), key: key.cloned() })
    }

    pub(crate) fn taken(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    key: Option<Arc<str>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all = taken.all.saturating_sub(1);
        if let Some(key) = &self.key
            && let Some(own) = taken.by_key.get_mut(key)
        {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.by_key.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_share_and_the_others_the_rest() {
        let places = Arc::new(Places::new(5, 50));
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut anns: Vec<_> = (0..3).map(|_| places.take(Some(&ann)).expect("half of them")).collect();
        assert_eq!(places.take(Some(&ann)).expect_err("no more than that"), Full::ForKey(3));
        let bobs: Vec<_> = (0..2).map(|_| places.take(Some(&bob)).expect("there are two left")).collect();
        assert_eq!(places.take(Some(&bob)).expect_err("he might have one more"), Full::ForAll);
        assert_eq!(places.take(None).expect_err("nobody might"), Full::ForAll);
        assert_eq!(places.taken(), 5);
        anns.pop();
        drop(bobs);
        assert_eq!(places.taken(), 2);
        anns.push(places.take(Some(&ann)).expect("one has come free"));
        drop(anns);
        assert_eq!(places.taken(), 0);
        assert!(places.lock().by_key.is_empty(), "who has none is not remembered");
    }

    #[test]
    fn a_share_is_never_nothing_and_never_more_than_all() {
        let key: Arc<str> = "ann".into();
        for (most, percent, share) in [(1, 50, 1), (1_000, 0, 1), (10, 100, 10), (10, 255, 10), (3, 34, 2)] {
            let places = Arc::new(Places::new(most, percent));
            let taken: Vec<_> = std::iter::from_fn(|| places.take(Some(&key)).ok()).collect();
            assert_eq!(taken.len(), share, "{percent} % of {most}");
        }
    }

    #[test]
    fn without_a_key_there_is_no_share() {
        let places = Arc::new(Places::new(4, 50));
        let taken: Vec<_> = std::iter::from_fn(|| places.take(None).ok()).collect();
        assert_eq!(taken.len(), 4);
    }
}
