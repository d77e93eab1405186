//! A database that only grows.

use std::path::PathBuf;
use std::sync::Arc;

use onceward_core::decide::{Call, NoOp, NoOpReason, Operation};
use onceward_core::record::PayloadRef;
use onceward_core::value::RecordId;
use onceward_store::{
    Batch, Clock, DecidedOperation, OperationOutcome, PayloadBytes, ReadSet, SaveResult, SqliteStore, Store,
};
use onceward_testkit::user;

use super::{TempDir, block_on, start_time};

pub(crate) const BYTES_PER_MEGABYTE: usize = 1 << 20;

/// Each write adds a different payload.
pub(crate) struct GrowingDatabase {
    pub(crate) folder: TempDir,
    pub(crate) store: SqliteStore,
    pub(crate) payload_count: u64,
}

impl GrowingDatabase {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new();
        let store = SqliteStore::open(folder.database_path(), Clock::manual(start_time())).expect("a new file");
        Self { folder, store, payload_count: 0 }
    }

    pub(crate) fn sibling_path(&self, name: &str) -> PathBuf {
        self.folder.database_path().with_file_name(name)
    }

    pub(crate) fn wal_bytes(&self) -> usize {
        let found = std::fs::metadata(self.sibling_path("test.db-wal")).expect("a WAL");
        usize::try_from(found.len()).expect("the length fits")
    }

    pub(crate) fn write_payload(&mut self, bytes: usize) {
        self.payload_count += 1;
        let mut sha256 = [0; 32];
        sha256[..8].copy_from_slice(&self.payload_count.to_be_bytes());
        let payload = PayloadRef { sha256, bytes: bytes as u64 };
        let missing_record = RecordId(uuid::Uuid::nil());
        let call = Call::FireDue { record: missing_record };
        let operation = Operation { seed: 1, actor: user("ann"), call, check_answers: Vec::new(), trace: None };
        let no_op = NoOp {
            subject: missing_record,
            reason: NoOpReason::Unchanged,
            existing: Vec::new(),
            read_keys: Vec::new(),
        };
        let contents = vec![PayloadBytes { payload, bytes: vec![7; bytes].into() }];
        let write =
            DecidedOperation { payloads: contents, ..DecidedOperation::new(operation, OperationOutcome::NoOp(no_op)) };
        let batch = Batch { operations: vec![write], decided_at: start_time(), catalog_revision: 0 };
        let saved = block_on(self.store.save(&Arc::new(ReadSet::default()), &Arc::new(batch))).expect("written");
        assert!(matches!(saved, SaveResult::Saved { .. }), "{saved:?}");
    }
}
