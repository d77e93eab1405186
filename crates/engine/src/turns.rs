//! Turns: so much of something at once, and only a share of it for one owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// One owner has at most one of so many turns, and one at least: with all of them, others would wait for as long as that owner goes on.
const SHARE: usize = 4;

/// Turns for everybody, handed out in the order in which they were asked for, as far as each owner's share goes.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Semaphore,
    share: usize,
    /// Of owners who have a turn or wait for one; others are forgotten.
    own: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // In the order in which they go: the owner's own is free when the place for everybody is.
    _all: Option<SemaphorePermit<'a>>,
    _own: Share<'a>,
}

impl Turns {
    pub(crate) fn new(all: usize) -> Self {
        let all = all.clamp(1, Semaphore::MAX_PERMITS);
        Self { all: Semaphore::new(all), share: all.div_ceil(SHARE), own: Mutex::default() }
    }

    pub(crate) async fn turn(&self, owner: &Arc<str>) -> Turn<'_> {
        let own =
            Arc::clone(self.owners().entry(Arc::clone(owner)).or_insert_with(|| Arc::new(Semaphore::new(self.share))));
        let mut share = Share { turns: self, owner: Arc::clone(owner), own: Some(own), is_taken: false };
        // Neither is ever closed, so that both always come.
        if let Some(own) = &share.own
            && let Ok(permit) = own.acquire().await
        {
            permit.forget();
            share.is_taken = true;
        }
        Turn { _all: self.all.acquire().await.ok(), _own: share }
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Arc<Semaphore>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner's interest, from the first wish on: whoever gives up waiting leaves nothing behind.
#[derive(Debug)]
struct Share<'a> {
    turns: &'a Turns,
    owner: Arc<str>,
    own: Option<Arc<Semaphore>>,
    is_taken: bool,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut owners = self.turns.owners();
        let Some(own) = self.own.take() else { return };
        if self.is_taken {
            own.add_permits(1);
        }
        drop(own);
        // The list's own is the last one.
        if owners.get(&self.owner).is_some_and(|own| Arc::strong_count(own) == 1) {
            owners.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn now<F: Future>(future: F) -> F::Output {
        match poll(pin!(future)) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("this should not have to wait"),
        }
    }

    #[test]
    fn one_owner_has_a_share_and_others_the_rest() {
        let (turns, eve, ann) = (Turns::new(8), Arc::from("eve"), Arc::from("ann"));
        let taken = [now(turns.turn(&eve)), now(turns.turn(&eve))];
        let mut third = pin!(turns.turn(&eve));
        assert!(poll(third.as_mut()).is_pending(), "a quarter of eight is two");
        drop(now(turns.turn(&ann)));
        drop(taken);
        assert!(poll(third.as_mut()).is_ready());
    }

    #[test]
    fn all_of_them_together_have_as_many_as_there_are() {
        let (turns, names) = (Turns::new(2), ["a", "b", "c"].map(Arc::from));
        let first = now(turns.turn(&names[0]));
        let _second = now(turns.turn(&names[1]));
        let mut third = pin!(turns.turn(&names[2]));
        assert!(poll(third.as_mut()).is_pending());
        drop(first);
        assert!(poll(third.as_mut()).is_ready());
    }

    #[test]
    fn whoever_has_none_and_wants_none_is_forgotten() {
        let (turns, eve) = (Turns::new(4), Arc::from("eve"));
        let one = now(turns.turn(&eve));
        {
            let mut given_up = pin!(turns.turn(&eve));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        assert_eq!(turns.owners().len(), 1);
        drop(one);
        assert_eq!(turns.owners().len(), 0);
        drop(now(turns.turn(&eve)));
    }
}
