//! A semaphore that limits each owner to a share of the permits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// One owner gets at most a quarter of the permits, and at least one, so that it cannot block the others.
const OWNER_SHARE_DIVISOR: usize = 4;

/// Permits in FIFO order, within each owner's share.
#[derive(Debug)]
pub(crate) struct FairSemaphore {
    total: Semaphore,
    permits_per_owner: usize,
    /// Owners that hold or wait for a permit.
    by_owner: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// A permit, released on drop.
#[derive(Debug)]
pub(crate) struct FairPermit<'a> {
    // Dropped in this order: the owner's permit is released after the global one.
    _total: Option<SemaphorePermit<'a>>,
    _owner: OwnerClaim<'a>,
}

impl FairSemaphore {
    pub(crate) fn new(permits: usize) -> Self {
        let all = permits.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            total: Semaphore::new(all),
            permits_per_owner: all.div_ceil(OWNER_SHARE_DIVISOR),
            by_owner: Mutex::default(),
        }
    }

    pub(crate) async fn acquire(&self, owner: &Arc<str>) -> FairPermit<'_> {
        let owner_semaphore = Arc::clone(
            self.lock_owners()
                .entry(Arc::clone(owner))
                .or_insert_with(|| Arc::new(Semaphore::new(self.permits_per_owner))),
        );
        let mut claim = OwnerClaim {
            semaphore: self,
            owner: Arc::clone(owner),
            owner_semaphore: Some(owner_semaphore),
            is_acquired: false,
        };
        // Neither semaphore is ever closed, so both acquisitions succeed.
        if let Some(own) = &claim.owner_semaphore
            && let Ok(permit) = own.acquire().await
        {
            permit.forget();
            claim.is_acquired = true;
        }
        FairPermit { _total: self.total.acquire().await.ok(), _owner: claim }
    }

    fn lock_owners(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Arc<Semaphore>>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner's entry, from the start of its wait. Dropping it removes the entry if it is unused.
#[derive(Debug)]
struct OwnerClaim<'a> {
    semaphore: &'a FairSemaphore,
    owner: Arc<str>,
    owner_semaphore: Option<Arc<Semaphore>>,
    is_acquired: bool,
}

impl Drop for OwnerClaim<'_> {
    fn drop(&mut self) {
        let mut by_owner = self.semaphore.lock_owners();
        let Some(owner_semaphore) = self.owner_semaphore.take() else { return };
        if self.is_acquired {
            owner_semaphore.add_permits(1);
        }
        drop(owner_semaphore);
        // Only the map still holds it.
        if by_owner.get(&self.owner).is_some_and(|own| Arc::strong_count(own) == 1) {
            by_owner.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn poll_ready<F: Future>(future: F) -> F::Output {
        match poll_once(pin!(future)) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the permit is not available at once"),
        }
    }

    #[test]
    fn owner_waits_beyond_its_share_while_others_acquire() {
        let (semaphore, eve, ann) = (FairSemaphore::new(8), Arc::from("eve"), Arc::from("ann"));
        let permits = [poll_ready(semaphore.acquire(&eve)), poll_ready(semaphore.acquire(&eve))];
        let mut third = pin!(semaphore.acquire(&eve));
        assert!(poll_once(third.as_mut()).is_pending(), "a quarter of eight is two");
        drop(poll_ready(semaphore.acquire(&ann)));
        drop(permits);
        assert!(poll_once(third.as_mut()).is_ready());
    }

    #[test]
    fn acquire_waits_when_all_permits_are_taken() {
        let (semaphore, names) = (FairSemaphore::new(2), ["a", "b", "c"].map(Arc::from));
        let first = poll_ready(semaphore.acquire(&names[0]));
        let _second = poll_ready(semaphore.acquire(&names[1]));
        let mut third = pin!(semaphore.acquire(&names[2]));
        assert!(poll_once(third.as_mut()).is_pending());
        drop(first);
        assert!(poll_once(third.as_mut()).is_ready());
    }

    #[test]
    fn owner_without_permits_or_waiters_is_removed() {
        let (semaphore, eve) = (FairSemaphore::new(4), Arc::from("eve"));
        let one = poll_ready(semaphore.acquire(&eve));
        {
            let mut given_up = pin!(semaphore.acquire(&eve));
            assert!(poll_once(given_up.as_mut()).is_pending());
        }
        assert_eq!(semaphore.lock_owners().len(), 1);
        drop(one);
        assert_eq!(semaphore.lock_owners().len(), 0);
        drop(poll_ready(semaphore.acquire(&eve)));
    }
}
