//! How much may be under way at once, and whether the server is leaving.

mod places;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward_core::counted;
use tokio::sync::{Notify, watch};

use crate::problem::Problem;
use crate::settings::Settings;

pub(crate) use places::Place;
use places::{Full, Places};

#[derive(Debug)]
pub(crate) struct Gate {
    leaving: watch::Sender<bool>,
    under_way: AtomicUsize,
    /// Told when nothing is under way any more.
    quiet: Notify,
    polls: Arc<Places>,
    streams: Arc<Places>,
    /// Bytes of bodies that have come and are not answered yet.
    bodies: Arc<AtomicUsize>,
    bodies_most: usize,
    connected: Arc<AtomicUsize>,
}

/// What is held now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) connections: usize,
    pub(crate) polls: usize,
    pub(crate) streams: usize,
    pub(crate) body_bytes: usize,
}

impl Gate {
    pub(crate) fn new(settings: &Settings) -> Self {
        let places = |count: usize| Arc::new(Places::new(count, settings.key_share));
        Self {
            connected: Arc::default(),
            leaving: watch::Sender::new(false),
            under_way: AtomicUsize::new(0),
            quiet: Notify::new(),
            polls: places(settings.polls),
            streams: places(settings.streams),
            bodies: Arc::default(),
            bodies_most: settings.bodies_bytes,
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
        self.quiet.notify_waiters();
    }

    /// Waits until the server is to stop.
    pub(crate) async fn left(&self) {
        let mut leaving = self.leaving.subscribe();
        // Its sender lives as long as this.
        let _ = leaving.wait_for(|leaving| *leaving).await;
    }

    pub(crate) fn enter(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self)
    }

    /// Waits until no request is under way.
    pub(crate) async fn quiet(&self) {
        loop {
            let told = self.quiet.notified();
            if self.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            told.await;
        }
    }

    /// A place for a lease that waits, for who comes with this key.
    pub(crate) fn poll(&self, key: Option<&Arc<str>>) -> Result<Place, Problem> {
        self.polls.take(key).map_err(|full| match full {
            Full::ForAll => Problem::new(
                503,
                "too_many_waiting",
                "as many leases wait for work as may: try again, or ask without wait_ms",
            ),
            Full::ForKey(most) => too_many_of_key(counted(
                most,
                "lease of this key waits for work already",
                "leases of this key wait for work already",
            )),
        })
    }

    /// A place for a stream, for who comes with this key.
    pub(crate) fn stream(&self, key: Option<&Arc<str>>) -> Result<Place, Problem> {
        self.streams.take(key).map_err(|full| match full {
            Full::ForAll => {
                Problem::new(503, "too_many_streams", "as many streams are open as may be: try again later")
            }
            Full::ForKey(most) => too_many_of_key(counted(
                most,
                "stream of this key is open already",
                "streams of this key are open already",
            )),
        })
    }

    /// One more connection, until this is dropped.
    pub(crate) fn connect(&self) -> Connected {
        self.connected.fetch_add(1, Ordering::SeqCst);
        Connected(Arc::clone(&self.connected))
    }

    pub(crate) fn held(&self) -> Held {
        Held {
            connections: self.connected.load(Ordering::SeqCst),
            polls: self.polls.taken(),
            streams: self.streams.taken(),
            body_bytes: self.bodies.load(Ordering::SeqCst),
        }
    }

    pub(crate) fn body(&self) -> BodyRoom {
        BodyRoom { all: Arc::clone(&self.bodies), most: self.bodies_most, own: AtomicUsize::new(0) }
    }
}

/// The server has room; this key has had its share of it.
fn too_many_of_key(detail: String) -> Problem {
    Problem::new(429, "too_many_of_key", detail)
}

/// A connection that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct Connected(Arc<AtomicUsize>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Gate);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_leaving() {
            self.0.quiet.notify_waiters();
        }
    }
}

/// What one body takes of the room for all; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyRoom {
    all: Arc<AtomicUsize>,
    most: usize,
    own: AtomicUsize,
}

impl BodyRoom {
    /// `false` where there is no room, and then nothing is taken: bytes that are turned away must not turn away others. One that is
    /// alone always has some.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let own = self.own.load(Ordering::SeqCst);
        let fits = |all: usize| {
            let grown = all.saturating_add(bytes);
            (all <= own || grown <= self.most).then_some(grown)
        };
        let is_taken = self.all.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok();
        if is_taken {
            self.own.store(own.saturating_add(bytes), Ordering::SeqCst);
        }
        is_taken
    }
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}
