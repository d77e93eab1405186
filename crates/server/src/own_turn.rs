//! What is woken while it has its turn goes on in that turn.
//!
//! A connection wakes itself with every request that has a body: the handler asks for the bytes, and they are read by the very same task.
//! The runtime would put it at the end of its queue, and wake a sleeping thread to share the work. On an idle server that alone takes
//! longer than reading the request (decision 0181).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Turns at most that one takes in a row, before others have theirs.
const IN_A_ROW: usize = 4;

const RESTS: u8 = 0;
const HAS_ITS_TURN: u8 = 1;
const WOKEN: u8 = 2;

/// Polled again at once where it was woken while it was polled.
#[derive(Debug)]
pub(crate) struct OwnTurn<F> {
    inner: F,
    bell: Arc<Bell>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    runtime: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever has its turn, or is woken already, sees it for itself.
        if self.state.swap(WOKEN, Ordering::AcqRel) == RESTS {
            self.runtime.wake();
        }
    }
}

impl<F> OwnTurn<F> {
    pub(crate) fn new(inner: F) -> Self {
        let bell: Arc<Bell> = Arc::default();
        Self { inner, waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl<F: Future + Unpin> Future for OwnTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<F::Output> {
        let Self { inner, bell, waker } = &mut *self;
        // Before anything can ring.
        bell.runtime.register(context.waker());
        for _ in 0..IN_A_ROW {
            // Takes in what rang before, and is seen by what rings from here on.
            bell.state.swap(HAS_ITS_TURN, Ordering::AcqRel);
            if let Poll::Ready(done) = Pin::new(&mut *inner).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(done);
            }
            if bell.state.compare_exchange(HAS_ITS_TURN, RESTS, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        // It goes on when the others have had theirs.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use super::*;

    /// Counts how often the runtime was told.
    #[derive(Default)]
    struct Told(AtomicUsize);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A future that rings its own bell for the first so many turns, and never ends; with the count of its turns.
    fn ringing(rings: usize) -> (OwnTurn<impl Future<Output = ()> + Unpin>, Arc<AtomicUsize>) {
        let turns = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&turns);
        let inner = poll_fn(move |context| {
            if count.fetch_add(1, Ordering::SeqCst) < rings {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        });
        (OwnTurn::new(inner), turns)
    }

    #[test]
    fn one_that_wakes_itself_goes_on_at_once_and_nobody_is_told() {
        let (mut own, turns) = ringing(2);
        let told = Arc::new(Told::default());
        let waker = Waker::from(Arc::clone(&told));
        assert!(Pin::new(&mut own).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!((turns.load(Ordering::SeqCst), told.0.load(Ordering::SeqCst)), (3, 0));
        own.waker.wake_by_ref();
        own.waker.wake_by_ref();
        assert_eq!(told.0.load(Ordering::SeqCst), 1, "at rest it is woken by the runtime, once");
    }

    #[test]
    fn one_that_never_has_enough_lets_others_go_first() {
        let (mut own, turns) = ringing(usize::MAX);
        let told = Arc::new(Told::default());
        let waker = Waker::from(Arc::clone(&told));
        for round in 1..=3 {
            assert!(Pin::new(&mut own).poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!((turns.load(Ordering::SeqCst), told.0.load(Ordering::SeqCst)), (round * IN_A_ROW, round));
        }
    }

    /// Somebody rings at any moment of a turn, with two things to tell, each again as soon as it was seen. It is only looked at, as a channel is
    /// whose waker is known: nothing but the bell itself orders one thread behind the other.
    #[test]
    fn no_ring_is_lost() {
        const RINGS: usize = 500_000;
        let (hand_over, handed) = std::sync::mpsc::channel::<Waker>();
        let (told, seen): (Arc<[AtomicUsize; 2]>, Arc<[AtomicUsize; 2]>) = Default::default();
        let (tells, looks) = (Arc::clone(&told), Arc::clone(&seen));
        // It waits by asking again and again: whoever sleeps would never be quick enough to meet the end of a turn.
        let ringer = std::thread::spawn(move || {
            let waker = handed.recv().expect("it has its first turn");
            let enough = Instant::now() + Duration::from_secs(20);
            for ring in 1..=RINGS {
                // On a machine that has little time for us, as many as it has had time for.
                let ring = if Instant::now() < enough { ring } else { RINGS };
                for (told, seen) in told.iter().zip(seen.iter()) {
                    let (mut asked, mut deadline, last) = (0_u32, None, told.load(Ordering::Acquire));
                    while seen.load(Ordering::Acquire) < last {
                        asked += 1;
                        if asked.is_multiple_of(10_000) {
                            let now = Instant::now();
                            let deadline = *deadline.get_or_insert(now + Duration::from_mins(1));
                            assert!(now < deadline, "a ring was lost");
                            std::thread::yield_now();
                        }
                    }
                    told.store(ring, Ordering::Release);
                    waker.wake_by_ref();
                }
                if ring == RINGS {
                    break;
                }
            }
        });
        let mut hand_over = Some(hand_over);
        let inner = poll_fn(move |context| {
            if let Some(hand_over) = hand_over.take() {
                hand_over.send(context.waker().clone()).expect("somebody waits for it");
            }
            let mut last = [0; 2];
            for ((told, seen), last) in tells.iter().zip(looks.iter()).zip(&mut last) {
                *last = told.load(Ordering::Acquire);
                seen.store(*last, Ordering::Release);
            }
            if last == [RINGS; 2] { Poll::Ready(()) } else { Poll::Pending }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ended = async { tokio::time::timeout(Duration::from_mins(2), OwnTurn::new(inner)).await };
        let ended = runtime.block_on(ended);
        ringer.join().expect("every ring was seen");
        ended.expect("it had its last turn");
    }
}
