//! Databases that random play has filled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onceward_core::decide::Operation;
use onceward_core::diagnostic::Files;
use onceward_core::record::Payload;
use onceward_core::time::Time;
use onceward_engine::{Report, verify};
use onceward_store::scan::Scan;
use onceward_store::{Catalog, Clock, Content, Request, RequestName, Save, SqliteStore, SqliteView, Store};
use onceward_testkit::random::{Chance, Play};
use sha2::{Digest, Sha256};

use crate::stage::driver::Driver;
use crate::stage::{Folder, start, suite, system, wait};

pub(crate) const SYSTEMS: [&str; 5] = ["execution", "document", "image", "relay", "mesh"];

/// A database in a folder of its own.
pub(crate) struct Built {
    folder: Folder,
    pub(crate) latest: Time,
}

impl Built {
    /// All five systems and the stores' own suite, played at random.
    pub(crate) fn new(seed: u64, operations: usize) -> Self {
        let built = Self { folder: Folder::new(), latest: Time::MIN };
        let store = SqliteStore::open(built.path(), Clock::manual(start())).expect("a new file");
        let latest = wait(fill(&store, seed, operations));
        Self { latest, ..built }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.file()
    }

    /// A copy to do harm to.
    pub(crate) fn copy(&self) -> Copy {
        let folder = Folder::new();
        std::fs::copy(self.path(), folder.file()).expect("a copy");
        Copy { folder, latest: self.latest }
    }
}

pub(crate) struct Copy {
    folder: Folder,
    latest: Time,
}

impl Copy {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.file()
    }

    /// Write into it as no engine would.
    pub(crate) fn connection(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).expect("the copy opens");
        connection.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").expect("pragmas");
        connection
    }

    pub(crate) fn verify(&self) -> Report {
        looked_through(&self.path(), self.latest)
    }
}

pub(crate) fn looked_through(path: &Path, now: Time) -> Report {
    let view = SqliteView::open(path).expect("it can be opened");
    examined(&view, now)
}

pub(crate) fn examined<S: Scan>(store: &S, now: Time) -> Report {
    wait(verify(store, now, &mut ())).expect("it can be read")
}

/// Play, in batches of random sizes. The latest time.
pub(crate) async fn fill<S: Store>(store: &S, seed: u64, operations: usize) -> Time {
    let mut files: Vec<Files> = SYSTEMS.iter().map(|name| system(name)).collect();
    files.push(suite());
    for files in &files {
        store.put_definitions(files).await.expect("sound files");
    }
    let catalog = store.definitions().await.expect("definitions");
    let operations = played(&catalog, seed, operations);
    let mut chance = Chance::new(!seed);
    let mut left = &operations[..];
    let mut latest = Time::MIN;
    let mut number = 0;
    while !left.is_empty() {
        let (now, rest) = left.split_at((1 + chance.below(9)).min(left.len()));
        left = rest;
        let driver = Driver::new(store).await;
        let mut open = driver.open(now[0].1);
        for (operation, time) in now {
            latest = latest.max(*time);
            driver.decide(&mut open, operation.clone(), *time).await;
            number += 1;
            let Some(write) = open.batch.writes.last_mut() else { continue };
            if chance.yes(20) && write.request.is_none() {
                let bytes: Arc<[u8]> = format!("content {number}").into_bytes().into();
                let payload = Payload { sha256: Sha256::digest(&bytes).into(), bytes: 1 };
                write.contents.push(Content { payload, bytes });
                let name = RequestName { owner: "ann".into(), key: format!("request {number}").into() };
                write.request = Some(Request { name, digest: [7; 32], answer: "\"yes\"".into() });
            }
        }
        let save = driver.save(&open).await;
        assert!(matches!(save, Save::Saved { .. }), "nobody else is here, yet: {save:?}");
    }
    latest
}

fn played(catalog: &Catalog, seed: u64, operations: usize) -> Vec<(Operation, Time)> {
    let mut play = Play::new(catalog.definitions.clone(), true, seed);
    if let Err(broken) = play.play(operations, &mut []) {
        panic!("{}: {}", broken.property, broken.detail);
    }
    play.log
}

/// Says which seed it was when a test dies in the middle of a case.
pub(crate) struct Running(pub(crate) u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("play it again with ONCEWARD_SEED={}", self.0);
        }
    }
}
