//! Tests of wakeups and parked requests.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use onceward_core::record::Actor;

use super::*;
use crate::dispatch::{KeepWaiting, LeaseRequest};

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

/// Joins like a poller that scanned and found nothing.
fn join_queue<'a>(queues: &'a PollerQueues, lifecycles: &[&str]) -> (Poller<'a>, Pin<Box<OwnedNotified>>) {
    let waiter = queues.join(&names(lifecycles));
    let mut turn = Box::pin(waiter.wakeup());
    turn.as_mut().enable();
    (waiter, turn)
}

fn woken_indexes(pollers: &mut [(Poller, Pin<Box<OwnedNotified>>)]) -> Vec<usize> {
    let context = &mut Context::from_waker(Waker::noop());
    let ready = pollers
        .iter_mut()
        .enumerate()
        .filter_map(|(at, (_, turn))| turn.as_mut().poll(context).is_ready().then_some(at));
    ready.collect()
}

#[test]
fn wake_notifies_one_poller_per_job_in_fifo_order() {
    let lines = PollerQueues::default();
    let mut waiting: Vec<_> = (0..100).map(|_| join_queue(&lines, &["a"])).collect();
    let mut others: Vec<_> = (0..2).map(|_| join_queue(&lines, &["b"])).collect();
    lines.wake(&names(&["a"]), 3);
    assert_eq!(woken_indexes(&mut waiting), [0, 1, 2]);
    assert!(woken_indexes(&mut others).is_empty());
}

#[test]
fn wake_notifies_every_queue_containing_the_lifecycle() {
    let lines = PollerQueues::default();
    let mut waiting = [join_queue(&lines, &["a"]), join_queue(&lines, &["a", "b"]), join_queue(&lines, &["b"])];
    lines.wake(&names(&["a"]), 1);
    assert_eq!(woken_indexes(&mut waiting), [0, 1]);
}

#[test]
fn wakeup_of_dropped_poller_passes_to_next_unless_it_scanned() {
    let lines = PollerQueues::default();
    let mut waiting: Vec<_> = (0..3).map(|_| join_queue(&lines, &["a"])).collect();
    lines.wake(&names(&["a"]), 1);
    // Dropped before it was polled.
    drop(waiting.remove(0));
    assert_eq!(woken_indexes(&mut waiting), [0]);
    // Dropped after it was woken, before it scanned.
    let (mut waiter, turn) = waiting.remove(0);
    waiter.mark_woken();
    drop((waiter, turn));
    assert_eq!(woken_indexes(&mut waiting), [0]);
    // After a scan the wakeup is used.
    let (mut waiter, turn) = waiting.remove(0);
    waiter.mark_woken();
    waiter.mark_scanned();
    let mut last = [join_queue(&lines, &["a"])];
    drop((waiter, turn));
    assert!(woken_indexes(&mut last).is_empty());
}

fn parked_request(worker: &str, keeps_waiting: bool) -> ParkedRequest {
    let goes_on: KeepWaiting = Arc::new(move || keeps_waiting);
    ParkedRequest::new(&Actor::engine(), LeaseRequest::single_job("a", worker), None, &goes_on)
}

fn claim_worker_name(lines: &PollerQueues, lifecycle: &str) -> Option<String> {
    lines.claim_parked(lifecycle, &HashSet::new()).map(|granting| granting.request.request.worker.to_string())
}

#[test]
fn claim_parked_takes_oldest_request_across_queues() {
    let lines = PollerQueues::default();
    let (a, both, b) = (lines.join(&names(&["a"])), lines.join(&names(&["a", "b"])), lines.join(&names(&["b"])));
    let _wished =
        [both.park(parked_request("1", true)), b.park(parked_request("2", true)), a.park(parked_request("3", true))];
    assert_eq!((lines.parked_count(), claim_worker_name(&lines, "c")), (3, None));
    let others = HashSet::from([Arc::from("a")]);
    assert!(lines.claim_parked("a", &others).is_none(), "all other pollers name the record");
    assert_eq!(claim_worker_name(&lines, "a").as_deref(), Some("1"));
    assert_eq!(claim_worker_name(&lines, "a").as_deref(), Some("3"));
    assert_eq!(claim_worker_name(&lines, "a"), None);
    assert_eq!(claim_worker_name(&lines, "b").as_deref(), Some("2"));
    assert_eq!(lines.parked_count(), 0);
}

#[test]
fn claim_parked_skips_dropped_and_cancelled_requests() {
    let lines = PollerQueues::default();
    let waiter = lines.join(&names(&["a"]));
    let gone = waiter.park(parked_request("1", true));
    let _wished = [waiter.park(parked_request("2", false)), waiter.park(parked_request("3", true))];
    drop(gone);
    assert_eq!(lines.parked_count(), 2);
    assert_eq!(claim_worker_name(&lines, "a").as_deref(), Some("3"));
}

/// The poller is woken for a ready job, which comes before new ones.
#[test]
fn wake_unparks_request_of_woken_poller() {
    let lines = PollerQueues::default();
    let waiting = [join_queue(&lines, &["a"]), join_queue(&lines, &["a"]), join_queue(&lines, &["b"])];
    let mut wished: Vec<_> = waiting
        .iter()
        .zip(["1", "2", "3"])
        .map(|((waiter, _), name)| waiter.park(parked_request(name, true)))
        .collect();
    lines.wake(&names(&["a"]), 1);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(pin!(wished[0].wait_result()).poll(context).is_ready(), "the poller scans");
    assert!(pin!(wished[1].wait_result()).poll(context).is_pending());
    assert_eq!(claim_worker_name(&lines, "a").as_deref(), Some("2"));
    assert_eq!(claim_worker_name(&lines, "b").as_deref(), Some("3"));
}

/// Otherwise the job would be leased to a poller that is gone.
#[test]
fn withdraw_waits_for_pending_match() {
    let lines = PollerQueues::default();
    let waiter = lines.join(&names(&["a"]));
    let (wished, context) = (waiter.park(parked_request("1", true)), &mut Context::from_waker(Waker::noop()));
    let granting = lines.claim_parked("a", &HashSet::new());
    let mut withdrawn = pin!(wished.withdraw());
    assert!(withdrawn.as_mut().poll(context).is_pending());
    drop(granting);
    assert!(matches!(withdrawn.as_mut().poll(context), Poll::Ready(MatchResult::Failed)));
    let mut withdrawn = pin!(waiter.park(parked_request("1", true)).withdraw());
    assert!(matches!(withdrawn.as_mut().poll(context), Poll::Ready(MatchResult::Unparked)), "no batch matches it");
}

#[test]
fn wakeup_between_scan_and_wait_is_not_lost() {
    let lines = PollerQueues::default();
    let waiter = lines.join(&names(&["a"]));
    let mut turn = pin!(waiter.wakeup());
    turn.as_mut().enable();
    lines.wake_one_each();
    assert!(turn.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn empty_queue_is_removed() {
    let lines = PollerQueues::default();
    let waiting = [join_queue(&lines, &["a"]), join_queue(&lines, &["a"])];
    assert_eq!(lines.lock_queues().len(), 1);
    drop(waiting);
    assert!(lines.lock_queues().is_empty());
}
