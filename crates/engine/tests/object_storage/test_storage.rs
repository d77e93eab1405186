//! Object storage whose files a test can inspect and change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use onceward_core::hex;
use onceward_core::record::PayloadRef;
use onceward_engine::{EngineConfig, ObjectError, ObjectStorage, PayloadReader};
use onceward_testkit::TempDir;
use onceward_testkit::s3::S3Server;
use sha2::{Digest, Sha256};

use crate::support::block_on;

pub(crate) struct TestStorage<'a> {
    pub(crate) storage: ObjectStorage,
    pub(crate) url: String,
    pub(crate) settings: Vec<(String, String)>,
    /// Where its files are; a folder and a bucket use the same names.
    pub(crate) root: PathBuf,
    server: Option<&'a S3Server>,
    _folder: TempDir,
}

/// The server that all harmless tests share.
pub(crate) fn shared_server() -> &'static S3Server {
    static SHARED_SERVER: OnceLock<S3Server> = OnceLock::new();
    SHARED_SERVER.get_or_init(S3Server::start)
}

impl<'a> TestStorage<'a> {
    pub(crate) async fn in_folder() -> Self {
        let folder = TempDir::new();
        let root = folder.database_path().with_extension("objects");
        let url = root.display().to_string();
        let objects = ObjectStorage::open_with(&url, []).await.expect("a folder");
        Self { storage: objects, url, settings: Vec::new(), root, server: None, _folder: folder }
    }

    pub(crate) async fn in_bucket(server: &'a S3Server) -> Self {
        let (bucket, folder) = server.new_bucket();
        let (url, settings) = (format!("{bucket}/some/prefix"), server.env_vars());
        let objects = ObjectStorage::open_with(&url, settings.clone()).await.expect("a bucket");
        let root = folder.join("some/prefix");
        Self { storage: objects, url, settings, root, server: Some(server), _folder: TempDir::new() }
    }

    pub(crate) fn config(&self) -> EngineConfig {
        EngineConfig { object_storage: Some(self.storage.clone()), ..EngineConfig::default() }
    }

    pub(crate) fn object_path(&self, sha256: &[u8; 32]) -> PathBuf {
        let name = hex::encode(sha256);
        self.root.join(&name[..2]).join(&name[2..])
    }

    pub(crate) fn list_files(&self) -> Vec<String> {
        let mut files = Vec::new();
        visit_files(&self.root, &mut |path| {
            files.push(path.strip_prefix(&self.root).expect("the path is below the root").display().to_string());
        });
        // The lock file of a folder.
        files.retain(|file| file != "lock");
        files.sort();
        files
    }

    /// Sets the age of all files.
    pub(crate) fn set_age(&self, by: Duration) {
        visit_files(&self.root, &mut |path| {
            // A file that the server cleans up may be gone.
            if let Ok(file) = std::fs::File::options().write(true).open(path) {
                file.set_modified(SystemTime::now() - by).expect("an older time");
            }
        });
        self.notify_changed();
    }

    pub(crate) fn remove(&self, sha256: &[u8; 32]) {
        std::fs::remove_file(self.object_path(sha256)).expect("the object existed");
        self.notify_changed();
    }

    /// Tells the server that its files were changed.
    pub(crate) fn notify_changed(&self) {
        if let Some(server) = self.server {
            server.invalidate_cache(&self.url);
        }
    }
}

fn visit_files(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() { visit_files(&path, each) } else { each(&path) }
    }
}

/// Runs the test in a folder and in a bucket.
#[allow(clippy::needless_pass_by_value, reason = "callers pass closures")]
pub(crate) fn on_both_backends(test: impl AsyncFn(&TestStorage<'_>)) {
    println!("in a folder");
    block_on(async { test(&TestStorage::in_folder().await).await });
    println!("in a bucket");
    block_on(async { test(&TestStorage::in_bucket(shared_server()).await).await });
}

pub(crate) fn test_bytes(length: usize, seed: u8) -> Arc<[u8]> {
    (0..length).map(|at| u8::try_from(at % 251).expect("a byte") ^ seed).collect()
}

pub(crate) fn payload_of(bytes: &[u8]) -> PayloadRef {
    PayloadRef { sha256: Sha256::digest(bytes).into(), bytes: u64::try_from(bytes.len()).expect("a length") }
}

/// Reads to the end; returns the bytes and the size of the largest chunk.
pub(crate) async fn read_all(mut reader: PayloadReader) -> Result<(Vec<u8>, usize), ObjectError> {
    let (mut read, mut largest) = (Vec::new(), 0);
    while let Some(piece) = reader.next_chunk().await? {
        largest = largest.max(piece.len());
        read.extend_from_slice(&piece);
    }
    assert!(reader.next_chunk().await?.is_none(), "no chunk follows the end");
    Ok((read, largest))
}
