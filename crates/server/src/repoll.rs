//! What is woken while it has its turn goes on in that turn.
//!
//! A connection wakes itself with every request that has a body: the handler asks for the bytes, and they are read by the very same task.
//! The runtime would put it at the end of its queue, and wake a sleeping thread to share the work. On an idle server that alone takes
//! longer than reading the request (decision 0020).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Turns at most that one takes in a row, before others have theirs.
const MAX_REPOLLS: usize = 4;

const STATE_IDLE: u8 = 0;
const STATE_POLLING: u8 = 1;
const STATE_WOKEN: u8 = 2;

/// Polled again at once where it was woken while it was polled.
#[derive(Debug)]
pub(crate) struct RepollOnSelfWake<F> {
    inner: F,
    self_waker: Arc<SelfWaker>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct SelfWaker {
    state: AtomicU8,
    runtime_waker: AtomicWaker,
}

impl Wake for SelfWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever has its turn, or is woken already, sees it for itself.
        if self.state.swap(STATE_WOKEN, Ordering::AcqRel) == STATE_IDLE {
            self.runtime_waker.wake();
        }
    }
}

impl<F> RepollOnSelfWake<F> {
    pub(crate) fn new(inner: F) -> Self {
        let bell: Arc<SelfWaker> = Arc::default();
        Self { inner, waker: Waker::from(Arc::clone(&bell)), self_waker: bell }
    }
}

impl<F: Future + Unpin> Future for RepollOnSelfWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<F::Output> {
        let Self { inner, self_waker: bell, waker } = &mut *self;
        // Before anything can ring.
        bell.runtime_waker.register(context.waker());
        for _ in 0..MAX_REPOLLS {
            // Takes in what rang before, and is seen by what rings from here on.
            bell.state.swap(STATE_POLLING, Ordering::AcqRel);
            if let Poll::Ready(done) = Pin::new(&mut *inner).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(done);
            }
            if bell.state.compare_exchange(STATE_POLLING, STATE_IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
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
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A future that rings its own bell for the first so many turns, and never ends; with the count of its turns.
    fn self_waking_future(self_wakes: usize) -> (RepollOnSelfWake<impl Future<Output = ()> + Unpin>, Arc<AtomicUsize>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let poll_count = Arc::clone(&polls);
        let inner = poll_fn(move |context| {
            if poll_count.fetch_add(1, Ordering::SeqCst) < self_wakes {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        });
        (RepollOnSelfWake::new(inner), polls)
    }

    #[test]
    fn self_wake_repolls_without_waking_the_runtime() {
        let (mut future, turns) = self_waking_future(2);
        let wake_counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&wake_counter));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!((turns.load(Ordering::SeqCst), wake_counter.0.load(Ordering::SeqCst)), (3, 0));
        future.waker.wake_by_ref();
        future.waker.wake_by_ref();
        assert_eq!(wake_counter.0.load(Ordering::SeqCst), 1, "at rest it is woken by the runtime, once");
    }

    #[test]
    fn endless_self_wakes_yield_after_max_repolls() {
        let (mut future, turns) = self_waking_future(usize::MAX);
        let wake_counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&wake_counter));
        for round in 1..=3 {
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(
                (turns.load(Ordering::SeqCst), wake_counter.0.load(Ordering::SeqCst)),
                (round * MAX_REPOLLS, round)
            );
        }
    }

    /// Somebody rings at any moment of a turn, with two things to tell, each again as soon as it was seen. It is only looked at, as a channel is
    /// whose waker is known: nothing but the bell itself orders one thread behind the other.
    #[test]
    fn wake_from_other_thread_is_never_lost() {
        const WAKES_PER_CHANNEL: usize = 500_000;
        let (waker_sender, waker_receiver) = std::sync::mpsc::channel::<Waker>();
        let (sent, seen): (Arc<[AtomicUsize; 2]>, Arc<[AtomicUsize; 2]>) = Default::default();
        let (observed_sent, acknowledged) = (Arc::clone(&sent), Arc::clone(&seen));
        // It waits by asking again and again: whoever sleeps would never be quick enough to meet the end of a turn.
        let waking_thread = std::thread::spawn(move || {
            let waker = waker_receiver.recv().expect("it has its first turn");
            let send_deadline = Instant::now() + Duration::from_secs(20);
            for ring in 1..=WAKES_PER_CHANNEL {
                // On a machine that has little time for us, as many as it has had time for.
                let ring = if Instant::now() < send_deadline { ring } else { WAKES_PER_CHANNEL };
                for (told, seen) in sent.iter().zip(seen.iter()) {
                    let (mut spins, mut deadline, last) = (0_u32, None, told.load(Ordering::Acquire));
                    while seen.load(Ordering::Acquire) < last {
                        spins += 1;
                        if spins.is_multiple_of(10_000) {
                            let now = Instant::now();
                            let deadline = *deadline.get_or_insert(now + Duration::from_mins(1));
                            assert!(now < deadline, "a ring was lost");
                            std::thread::yield_now();
                        }
                    }
                    told.store(ring, Ordering::Release);
                    waker.wake_by_ref();
                }
                if ring == WAKES_PER_CHANNEL {
                    break;
                }
            }
        });
        let mut hand_over = Some(waker_sender);
        let inner = poll_fn(move |context| {
            if let Some(hand_over) = hand_over.take() {
                hand_over.send(context.waker().clone()).expect("somebody waits for it");
            }
            let mut last = [0; 2];
            for ((told, seen), last) in observed_sent.iter().zip(acknowledged.iter()).zip(&mut last) {
                *last = told.load(Ordering::Acquire);
                seen.store(*last, Ordering::Release);
            }
            if last == [WAKES_PER_CHANNEL; 2] { Poll::Ready(()) } else { Poll::Pending }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ended = async { tokio::time::timeout(Duration::from_mins(2), RepollOnSelfWake::new(inner)).await };
        let ended = runtime.block_on(ended);
        waking_thread.join().expect("every ring was seen");
        ended.expect("it had its last turn");
    }
}
