//! A server of the test's own.

use onceward_testkit::Folder;
use onceward_testkit::served::{self, Db, Served};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

pub(crate) fn start(db: Db) -> Served {
    let folder = Folder::new();
    Served::start(&mut served::command(BINARY, &db.url(&folder))).keeping(folder)
}
