//! What one producer and worker does: it makes tasks, takes some, keeps, commits, fails and takes them back, and asks again where it got
//! no answer. All of it drawn from the seed.

use anyhow::Result;
use onceward_core::record::Token;
use onceward_core::value::RecordId;
use onceward_testkit::random::Chance;
use serde_json::{Value as Json, json};

use crate::books::Books;
use crate::questions::{self, Told};

/// Leases last so many seconds: some run out while their worker goes on.
const LEASES: [i64; 4] = [1, 2, 30, 30];

/// A lease in somebody's hands.
#[derive(Clone, Debug)]
struct Held {
    id: RecordId,
    token: Token,
    worker: String,
}

#[derive(Clone, Debug)]
enum Doing {
    /// `fresh`: with a name that nobody had.
    Make {
        name: String,
        key: Option<String>,
        fresh: bool,
    },
    Lease {
        id: Option<RecordId>,
        worker: String,
        seconds: i64,
    },
    Beat {
        held: Held,
    },
    Commit {
        held: Held,
        finish: bool,
    },
    Finish {
        held: Held,
    },
    Fail {
        held: Held,
    },
    Cancel {
        id: RecordId,
        why: String,
    },
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Toiler {
    chance: Chance,
    name: String,
    count: u64,
    /// The newest task of its own.
    own: Option<(String, RecordId)>,
    held: Option<Held>,
    doing: Option<Doing>,
    /// Committed, and still to be finished.
    then: Option<Held>,
    /// It was asked before, and what became of it is not known.
    again: bool,
}

impl Toiler {
    pub(crate) fn new(name: String, chance: Chance) -> Self {
        Self { chance, name, count: 0, own: None, held: None, doing: None, then: None, again: false }
    }

    /// A name that nobody had.
    fn next_name(&mut self) -> String {
        self.count += 1;
        format!("{}-{}", self.name, self.count)
    }

    /// The next thing to ask.
    pub(crate) fn ask(&mut self) -> Json {
        let doing = self.choose();
        let question = doing.question();
        self.doing = Some(doing);
        question
    }

    fn choose(&mut self) -> Doing {
        // No answer came: what carries a key or a token may be asked again.
        if let Some(doing @ (Doing::Make { key: Some(_), .. } | Doing::Commit { .. } | Doing::Finish { .. })) =
            self.doing.take()
        {
            return doing;
        }
        self.again = false;
        if let Some(held) = self.then.take() {
            return Doing::Finish { held };
        }
        if let Some(held) = self.held.clone() {
            return match self.chance.below(20) {
                0..3 => Doing::Beat { held },
                3..13 => Doing::Commit { held, finish: true },
                13..15 => Doing::Commit { held, finish: false },
                15..18 => Doing::Fail { held },
                // A worker that goes away without a word.
                18 => self.make(),
                _ => Doing::Cancel { id: held.id, why: self.next_name() },
            };
        }
        let worker = self.next_name();
        let seconds = LEASES[self.chance.below(LEASES.len())];
        match (&self.own, self.chance.below(20)) {
            (Some((_, id)), 0..6) => Doing::Lease { id: Some(*id), worker, seconds },
            (Some((_, id)), 6) => Doing::Cancel { id: *id, why: worker },
            (Some((name, _)), 7) => Doing::Make { name: name.clone(), key: None, fresh: false },
            (_, 8..13) => Doing::Lease { id: None, worker, seconds },
            _ => self.make(),
        }
    }

    fn make(&mut self) -> Doing {
        self.held = None;
        let name = self.next_name();
        let key = self.chance.yes(50).then(|| format!("key-{name}"));
        Doing::Make { name, key, fresh: true }
    }

    /// It was answered.
    pub(crate) fn told(&mut self, told: &Told, books: &mut Books) -> Result<()> {
        let Some(doing) = self.doing.clone() else { return Ok(()) };
        match told {
            Told::Unknown(_) => {
                self.left_alone();
                return Ok(());
            }
            Told::Refused(_) => {
                books.refused += 1;
                self.refused(doing, books);
            }
            Told::Done { id, token, .. } => {
                books.acknowledged += 1;
                self.done(doing, *id, *token, books)?;
            }
        }
        self.doing = None;
        Ok(())
    }

    fn done(&mut self, doing: Doing, id: Option<RecordId>, token: Option<Token>, books: &mut Books) -> Result<()> {
        match doing {
            Doing::Make { name, .. } => {
                if let Some(id) = id {
                    books.made(&name, id)?;
                    self.own = Some((name, id));
                }
            }
            Doing::Lease { worker, .. } => match (id, token) {
                (Some(id), Some(token)) => {
                    books.leased(id, token, &worker)?;
                    self.held = Some(Held { id, token, worker });
                }
                // There was nothing to do.
                _ => books.unleased(&worker),
            },
            Doing::Beat { .. } => {}
            Doing::Commit { held, finish } => {
                books.committed(held.id, &held.worker, finish)?;
                self.held = None;
                if !finish {
                    self.then = Some(held);
                }
            }
            Doing::Finish { held } => books.finished(held.id),
            Doing::Fail { held } => {
                books.failed(held.id, held.token);
                self.held = None;
            }
            Doing::Cancel { id, why } => {
                books.cancelled(id, &why)?;
                self.held = None;
            }
        }
        Ok(())
    }

    fn refused(&mut self, doing: Doing, books: &mut Books) {
        match doing {
            // The name of a task that is there stays as it is.
            Doing::Make { name, key: None, fresh: true } => books.unmade(&name),
            Doing::Lease { worker, .. } => {
                books.unleased(&worker);
                self.own = None;
            }
            // Where it was asked before, the first time may have landed.
            Doing::Commit { held, .. } if !self.again => books.uncommitted(held.id, &held.worker),
            Doing::Cancel { id, why } => {
                books.uncancelled(id, &why);
                self.own = None;
            }
            _ => {}
        }
        self.held = None;
    }

    /// No answer will come. A lease that was on its way is not known to it, so it is nobody's.
    pub(crate) fn left_alone(&mut self) {
        self.again = true;
        if let Some(Doing::Fail { .. } | Doing::Cancel { .. }) = self.doing {
            self.held = None;
            self.own = None;
        }
    }
}

impl Doing {
    fn question(&self) -> Json {
        match self {
            Self::Make { name, key, .. } => questions::task(name, key.as_deref()),
            Self::Lease { id: Some(id), worker, seconds } => questions::lease(worker, *id, *seconds),
            Self::Lease { id: None, worker, seconds } => questions::lease_any(worker, *seconds),
            Self::Beat { held } => questions::heartbeat(&held.worker, held.id, held.token, 2),
            Self::Commit { held, finish } => {
                questions::commit(&held.worker, held.id, held.token, json!(held.worker), *finish)
            }
            Self::Finish { held } => questions::finish(&held.worker, held.id, held.token),
            Self::Fail { held } => questions::fail(&held.worker, held.id, held.token),
            Self::Cancel { id, why } => questions::cancel(*id, why),
        }
    }
}
