//! Tests access to stored files, documents and results.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use onceward_testkit::server_process::DatabaseKind;
use serde_json::json;

use crate::support::{BINARY, DocumentServer};

/// Collects each file and folder below this one with its mode.
fn collect_modes(folder: &Path, all: &mut BTreeSet<(String, u32)>) {
    for entry in std::fs::read_dir(folder).expect("folder").flatten() {
        let about = entry.metadata().expect("file exists");
        all.insert((entry.file_name().to_string_lossy().into_owned(), about.permissions().mode() & 0o7777));
        if about.is_dir() {
            collect_modes(&entry.path(), all);
        }
    }
}

/// Covers the database and its side files, documents of each size, and a backup. Existing files keep their modes.
#[test]
fn stored_files_are_readable_by_server_user_only() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    for (name, length) in [("few", 1_000), ("many", 100_000)] {
        assert_eq!(server.upload(&server.alice, name, &vec![b'x'; length]).status, 201);
    }
    let database = server.folder.database_path();
    let folder = database.parent().expect("folder").to_owned();
    let copy = folder.join("copy.db");
    let url = format!("sqlite:{}", database.display());
    let done = Command::new(BINARY).args(["backup", "--db", &url]).arg(&copy).output().expect("the binary runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut all = BTreeSet::new();
    collect_modes(&folder, &mut all);
    let named = |end: &str| all.iter().filter(|(name, _)| name.ends_with(end)).count();
    assert!(["-wal", ".lock", ".objects", "copy.db", "drafts"].iter().all(|end| named(end) == 1), "{all:?}");
    assert!(all.iter().any(|(name, _)| name.len() == 62), "no object stored: {all:?}");
    let open: Vec<_> = all.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(open.is_empty(), "{open:?}");

    // A file that its owner shared stays shared.
    std::fs::set_permissions(&copy, Permissions::from_mode(0o640)).expect("API key");
    let url = format!("sqlite:{}", copy.display());
    let made = Command::new(BINARY)
        .args(["key", "create", "--owner", "eve", "--role", "viewer", "--db", &url])
        .output()
        .expect("start process");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let stayed = std::fs::metadata(&copy).expect("file exists").permissions().mode();
    assert_eq!(stayed & 0o7777, 0o640);
}

/// Documents: owner and lease holder. Results: owner and operators. Other callers get 404.
#[test]
fn document_and_result_are_readable_by_their_parties_only() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let id = server.submit_document("letter", b"a letter");
    let reads = |key: &str| {
        let (document, result) = (format!("/v1/records/{id}/payload"), format!("/document/jobs/{id}/result"));
        (server.get(key, &document).status, server.get(key, &result).status)
    };
    let leased = server.lease_job();
    assert_eq!(reads(&server.worker), (200, 404));
    assert_eq!(server.report(&leased, "commit", json!({ "result": "its text", "finish": true })).status, 200);
    let all = [&server.alice, &server.operator, &server.worker, &server.bob].map(|key| reads(key));
    assert_eq!(all, [(200, 200), (404, 200), (404, 404), (404, 404)]);
}
