//! Polls a connection again in place when it wakes itself.
//!
//! A connection wakes itself with every request that has a body: the handler waits for bytes that the same task
//! reads. The runtime would move the task to the end of its queue and wake an idle thread. On an idle server that
//! alone takes longer than reading the request (decision 0020).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Repolls in a row before the task yields to others.
const MAX_REPOLLS: usize = 4;

const STATE_IDLE: u8 = 0;
const STATE_POLLING: u8 = 1;
const STATE_WOKEN: u8 = 2;

/// Polls `inner` again immediately if it was woken during its poll.
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
        // While polling, or if already woken, `poll` notices the state by itself.
        if self.state.swap(STATE_WOKEN, Ordering::AcqRel) == STATE_IDLE {
            self.runtime_waker.wake();
        }
    }
}

impl<F> RepollOnSelfWake<F> {
    pub(crate) fn new(inner: F) -> Self {
        let self_waker: Arc<SelfWaker> = Arc::default();
        Self { inner, waker: Waker::from(Arc::clone(&self_waker)), self_waker }
    }
}

impl<F: Future + Unpin> Future for RepollOnSelfWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<F::Output> {
        let Self { inner, self_waker, waker } = &mut *self;
        // Register before any wake can happen.
        self_waker.runtime_waker.register(context.waker());
        for _ in 0..MAX_REPOLLS {
            // Clears earlier wakes; later ones set the state again.
            self_waker.state.swap(STATE_POLLING, Ordering::AcqRel);
            if let Poll::Ready(done) = Pin::new(&mut *inner).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(done);
            }
            if self_waker.state.compare_exchange(STATE_POLLING, STATE_IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
                return Poll::Pending;
            }
        }
        // Yield to other tasks, then continue.
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

    /// Counts wakes of the runtime.
    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns a future that wakes itself during its first `self_wakes` polls and never completes, and its poll
    /// count.
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
        let (mut future, polls) = self_waking_future(2);
        let wake_counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&wake_counter));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!((polls.load(Ordering::SeqCst), wake_counter.0.load(Ordering::SeqCst)), (3, 0));
        future.waker.wake_by_ref();
        future.waker.wake_by_ref();
        assert_eq!(wake_counter.0.load(Ordering::SeqCst), 1, "two wakes between polls wake the runtime once");
    }

    #[test]
    fn endless_self_wakes_yield_after_max_repolls() {
        let (mut future, polls) = self_waking_future(usize::MAX);
        let wake_counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&wake_counter));
        for round in 1..=3 {
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(
                (polls.load(Ordering::SeqCst), wake_counter.0.load(Ordering::SeqCst)),
                (round * MAX_REPOLLS, round)
            );
        }
    }

    /// Two channels wake the future at any moment of a poll, each again as soon as its last value was seen. Only
    /// the waker orders the two threads.
    #[test]
    fn wake_from_other_thread_is_never_lost() {
        const WAKES_PER_CHANNEL: usize = 500_000;
        let (waker_sender, waker_receiver) = std::sync::mpsc::channel::<Waker>();
        let (sent, seen): (Arc<[AtomicUsize; 2]>, Arc<[AtomicUsize; 2]>) = Default::default();
        let (observed_sent, acknowledged) = (Arc::clone(&sent), Arc::clone(&seen));
        // The thread spins: a sleeping thread would rarely hit the end of a poll.
        let waking_thread = std::thread::spawn(move || {
            let waker = waker_receiver.recv().expect("first poll sends its waker");
            let send_deadline = Instant::now() + Duration::from_secs(20);
            for value in 1..=WAKES_PER_CHANNEL {
                // On a slow machine, stop early with fewer wakes.
                let value = if Instant::now() < send_deadline { value } else { WAKES_PER_CHANNEL };
                for (sent, seen) in sent.iter().zip(seen.iter()) {
                    let (mut spins, mut deadline, last) = (0_u32, None, sent.load(Ordering::Acquire));
                    while seen.load(Ordering::Acquire) < last {
                        spins += 1;
                        if spins.is_multiple_of(10_000) {
                            let now = Instant::now();
                            let deadline = *deadline.get_or_insert(now + Duration::from_mins(1));
                            assert!(now < deadline, "a wake was lost");
                            std::thread::yield_now();
                        }
                    }
                    sent.store(value, Ordering::Release);
                    waker.wake_by_ref();
                }
                if value == WAKES_PER_CHANNEL {
                    break;
                }
            }
        });
        let mut hand_over = Some(waker_sender);
        let inner = poll_fn(move |context| {
            if let Some(hand_over) = hand_over.take() {
                hand_over.send(context.waker().clone()).expect("the waking thread receives");
            }
            let mut last = [0; 2];
            for ((sent, seen), last) in observed_sent.iter().zip(acknowledged.iter()).zip(&mut last) {
                *last = sent.load(Ordering::Acquire);
                seen.store(*last, Ordering::Release);
            }
            if last == [WAKES_PER_CHANNEL; 2] { Poll::Ready(()) } else { Poll::Pending }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio runtime");
        let ended = async { tokio::time::timeout(Duration::from_mins(2), RepollOnSelfWake::new(inner)).await };
        let ended = runtime.block_on(ended);
        waking_thread.join().expect("waking thread");
        ended.expect("future completes");
    }
}
