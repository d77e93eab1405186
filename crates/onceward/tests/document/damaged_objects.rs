//! Tests that damaged objects are never served as complete.

use std::path::{Path, PathBuf};

use onceward_testkit::server_process::ALL_DATABASES;

use crate::support::DocumentServer;

/// Changes one byte in the middle of a file.
fn flip_middle_byte(file: &Path) {
    let mut bytes = std::fs::read(file).expect("file exists");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).expect("written");
}

fn object_files(server: &DocumentServer) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(server.objects()).expect("folder").flatten();
    folders
        .filter(|folder| folder.file_name().len() == 2)
        .flat_map(|folder| std::fs::read_dir(folder.path()).expect("folder").flatten())
        .map(|file| file.path())
        .collect()
}

/// A streamed document is cut off, an unstreamed one is refused, and both are logged.
#[test]
fn damaged_document_download_is_refused_or_cut_off() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        // One chunk, slightly more than one, many; and one that is verified before it is sent.
        for (name, length) in [("few", 100_000), ("one", 256 << 10), ("bit", (256 << 10) + 1), ("many", 1_000_000)] {
            let made = server.upload(&server.alice, name, &vec![b'x'; length]);
            let id = made.json()["jobId"].as_str().expect("id").to_owned();
            let path = format!("/v1/records/{id}/payload");
            let (sound, is_whole) = server.process.get_partial(&server.alice, &path);
            assert!(sound.status == 200 && is_whole && sound.body.len() == length, "{db:?} {name}");
            let files = object_files(&server);
            assert_eq!(files.len(), 1);
            flip_middle_byte(&files[0]);
            let (harmed, is_whole) = server.process.get_partial(&server.alice, &path);
            if length <= 256 << 10 {
                harmed.assert_problem(500, "object_damaged");
            } else {
                assert!(harmed.status == 200 && !is_whole, "{db:?} {name}: {} bytes", harmed.body.len());
            }
            std::fs::remove_file(&files[0]).expect("object file");
        }
        let written = server.process.stop();
        assert!(written.matches("object_damaged").count() >= 4, "{db:?}: {written}");
    }
}
