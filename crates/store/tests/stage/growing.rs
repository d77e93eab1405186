//! A database that only grows.

use std::path::PathBuf;
use std::sync::Arc;

use onceward_core::decide::{Call, NoOp, NoOpReason, Operation};
use onceward_core::record::Payload;
use onceward_core::value::RecordId;
use onceward_store::{Base, Batch, Clock, Content, Outcome, Save, SqliteStore, Store, Write};
use onceward_testkit::user;

use super::{Folder, start, wait};

pub(crate) const MEGABYTE: usize = 1 << 20;

/// It grows by contents that are all different.
pub(crate) struct Growing {
    pub(crate) folder: Folder,
    pub(crate) store: SqliteStore,
    pub(crate) number: u64,
}

impl Growing {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let store = SqliteStore::open(folder.file(), Clock::manual(start())).expect("a new file");
        Self { folder, store, number: 0 }
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.file().with_file_name(name)
    }

    pub(crate) fn wal_bytes(&self) -> usize {
        let found = std::fs::metadata(self.beside("test.db-wal")).expect("a WAL");
        usize::try_from(found.len()).expect("not so long")
    }

    pub(crate) fn write(&mut self, bytes: usize) {
        self.number += 1;
        let mut sha256 = [0; 32];
        sha256[..8].copy_from_slice(&self.number.to_be_bytes());
        let payload = Payload { sha256, bytes: bytes as u64 };
        let nobody = RecordId(uuid::Uuid::nil());
        let call = Call::Due { record: nobody };
        let operation = Operation { seed: 1, actor: user("ann"), call, answers: Vec::new(), trace: None };
        let no_op = NoOp { subject: nobody, reason: NoOpReason::Unchanged, met: Vec::new(), reads: Vec::new() };
        let contents = vec![Content { payload, bytes: vec![7; bytes].into() }];
        let write = Write { contents, ..Write::new(operation, Outcome::NoOp(no_op)) };
        let batch = Batch { writes: vec![write], now: start(), catalog: 0 };
        let saved = wait(self.store.save(&Arc::new(Base::default()), &Arc::new(batch))).expect("written");
        assert!(matches!(saved, Save::Saved { .. }), "{saved:?}");
    }
}
