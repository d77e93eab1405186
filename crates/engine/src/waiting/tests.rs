//! Who is woken, and whose wish is granted.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use onceward_core::record::Actor;

use super::*;
use crate::leasing::{GoesOn, Wanted};

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

/// In line, as one is who looked and found nothing.
fn stand<'a>(lines: &'a Lines, lifecycles: &[&str]) -> (Waiter<'a>, Pin<Box<OwnedNotified>>) {
    let waiter = lines.join(&names(lifecycles));
    let mut turn = Box::pin(waiter.turn());
    turn.as_mut().enable();
    (waiter, turn)
}

fn woken(turns: &mut [(Waiter, Pin<Box<OwnedNotified>>)]) -> Vec<usize> {
    let context = &mut Context::from_waker(Waker::noop());
    let ready =
        turns.iter_mut().enumerate().filter_map(|(at, (_, turn))| turn.as_mut().poll(context).is_ready().then_some(at));
    ready.collect()
}

#[test]
fn as_many_are_woken_as_there_are_jobs_and_the_first_first() {
    let lines = Lines::default();
    let mut waiting: Vec<_> = (0..100).map(|_| stand(&lines, &["a"])).collect();
    let mut others: Vec<_> = (0..2).map(|_| stand(&lines, &["b"])).collect();
    lines.wake(&names(&["a"]), 3);
    assert_eq!(woken(&mut waiting), [0, 1, 2]);
    assert!(woken(&mut others).is_empty());
}

#[test]
fn a_job_wakes_all_lines_that_ask_for_it_among_others() {
    let lines = Lines::default();
    let mut waiting = [stand(&lines, &["a"]), stand(&lines, &["a", "b"]), stand(&lines, &["b"])];
    lines.wake(&names(&["a"]), 1);
    assert_eq!(woken(&mut waiting), [0, 1]);
}

#[test]
fn a_turn_that_is_not_used_goes_to_the_next() {
    let lines = Lines::default();
    let mut waiting: Vec<_> = (0..3).map(|_| stand(&lines, &["a"])).collect();
    lines.wake(&names(&["a"]), 1);
    // Gone before it knew.
    drop(waiting.remove(0));
    assert_eq!(woken(&mut waiting), [0]);
    // Gone after it knew, and before it looked.
    let (mut waiter, turn) = waiting.remove(0);
    waiter.was_woken();
    drop((waiter, turn));
    assert_eq!(woken(&mut waiting), [0]);
    // It looked: that was the end of it.
    let (mut waiter, turn) = waiting.remove(0);
    waiter.was_woken();
    waiter.has_looked();
    let mut last = [stand(&lines, &["a"])];
    drop((waiter, turn));
    assert!(woken(&mut last).is_empty());
}

fn wish(worker: &str, goes_on: bool) -> Wish {
    let goes_on: GoesOn = Arc::new(move || goes_on);
    Wish::new(&Actor::engine(), Wanted::one("a", worker), None, &goes_on)
}

fn next(lines: &Lines, lifecycle: &str) -> Option<String> {
    lines.wish_for(lifecycle, &HashSet::new()).map(|granting| granting.wish.wanted.worker.to_string())
}

#[test]
fn the_first_wish_goes_first_whatever_its_line() {
    let lines = Lines::default();
    let (a, both, b) = (lines.join(&names(&["a"])), lines.join(&names(&["a", "b"])), lines.join(&names(&["b"])));
    let _wished = [both.wish(wish("1", true)), b.wish(wish("2", true)), a.wish(wish("3", true))];
    assert_eq!((lines.wishes(), next(&lines, "c")), (3, None));
    let others = HashSet::from([Arc::from("a")]);
    assert!(lines.wish_for("a", &others).is_none(), "all name it");
    assert_eq!(next(&lines, "a").as_deref(), Some("1"));
    assert_eq!(next(&lines, "a").as_deref(), Some("3"));
    assert_eq!(next(&lines, "a"), None);
    assert_eq!(next(&lines, "b").as_deref(), Some("2"));
    assert_eq!(lines.wishes(), 0);
}

#[test]
fn who_wants_nothing_any_more_is_passed_by() {
    let lines = Lines::default();
    let waiter = lines.join(&names(&["a"]));
    let gone = waiter.wish(wish("1", true));
    let _wished = [waiter.wish(wish("2", false)), waiter.wish(wish("3", true))];
    drop(gone);
    assert_eq!(lines.wishes(), 2);
    assert_eq!(next(&lines, "a").as_deref(), Some("3"));
}

/// What waits goes before what is made now: whoever is woken for it is not given the other.
#[test]
fn whoever_is_woken_wishes_no_longer() {
    let lines = Lines::default();
    let waiting = [stand(&lines, &["a"]), stand(&lines, &["a"]), stand(&lines, &["b"])];
    let mut wished: Vec<_> =
        waiting.iter().zip(["1", "2", "3"]).map(|((waiter, _), name)| waiter.wish(wish(name, true))).collect();
    lines.wake(&names(&["a"]), 1);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(pin!(wished[0].given()).poll(context).is_ready(), "it looks");
    assert!(pin!(wished[1].given()).poll(context).is_pending());
    assert_eq!(next(&lines, "a").as_deref(), Some("2"));
    assert_eq!(next(&lines, "b").as_deref(), Some("3"));
}

/// A job that is on its way to somebody is not left to nobody: its wish is withdrawn only once it is known what comes of it.
#[test]
fn a_wish_that_is_being_granted_is_waited_for() {
    let lines = Lines::default();
    let waiter = lines.join(&names(&["a"]));
    let (wished, context) = (waiter.wish(wish("1", true)), &mut Context::from_waker(Waker::noop()));
    let granting = lines.wish_for("a", &HashSet::new());
    let mut withdrawn = pin!(wished.withdraw());
    assert!(withdrawn.as_mut().poll(context).is_pending());
    drop(granting);
    assert!(matches!(withdrawn.as_mut().poll(context), Poll::Ready(Given::Failed)));
    let mut withdrawn = pin!(waiter.wish(wish("1", true)).withdraw());
    assert!(matches!(withdrawn.as_mut().poll(context), Poll::Ready(Given::Ended)), "nobody is granting it");
}

#[test]
fn news_that_comes_between_a_look_and_the_wait_is_not_missed() {
    let lines = Lines::default();
    let waiter = lines.join(&names(&["a"]));
    let mut turn = pin!(waiter.turn());
    turn.as_mut().enable();
    lines.look();
    assert!(turn.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_line_without_anybody_is_forgotten() {
    let lines = Lines::default();
    let waiting = [stand(&lines, &["a"]), stand(&lines, &["a"])];
    assert_eq!(lines.lines().len(), 1);
    drop(waiting);
    assert!(lines.lines().is_empty());
}
