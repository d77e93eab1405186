//! A place for objects, into which a test can also look from behind.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use onceward_core::hex;
use onceward_core::record::Payload;
use onceward_engine::{Config, ObjectError, Objects, PayloadReader};
use onceward_testkit::Folder;
use onceward_testkit::s3::Server;
use sha2::{Digest, Sha256};

use crate::stage::wait;

pub(crate) struct Spot<'a> {
    pub(crate) objects: Objects,
    /// As it is opened.
    pub(crate) url: String,
    pub(crate) settings: Vec<(String, String)>,
    /// Where its files are, with the same names in a folder and in a bucket.
    pub(crate) root: PathBuf,
    server: Option<&'a Server>,
    _folder: Folder,
}

/// The server that all tests share which do it no harm.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl<'a> Spot<'a> {
    pub(crate) async fn in_folder() -> Self {
        let folder = Folder::new();
        let root = folder.file().with_extension("objects");
        let url = root.display().to_string();
        let objects = Objects::open_with(&url, []).await.expect("a folder");
        Self { objects, url, settings: Vec::new(), root, server: None, _folder: folder }
    }

    pub(crate) async fn in_bucket(server: &'a Server) -> Self {
        let (bucket, folder) = server.bucket();
        let (url, settings) = (format!("{bucket}/some/prefix"), server.settings());
        let objects = Objects::open_with(&url, settings.clone()).await.expect("a bucket");
        let root = folder.join("some/prefix");
        Self { objects, url, settings, root, server: Some(server), _folder: Folder::new() }
    }

    pub(crate) fn config(&self) -> Config {
        Config { objects: Some(self.objects.clone()), ..Config::default() }
    }

    /// The file of an object.
    pub(crate) fn file(&self, sha256: &[u8; 32]) -> PathBuf {
        let name = hex::encode(sha256);
        self.root.join(&name[..2]).join(&name[2..])
    }

    /// All files below the place, whatever they are, by their paths.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        walk(&self.root, &mut |path| {
            files.push(path.strip_prefix(&self.root).expect("below it").display().to_string());
        });
        files.sort();
        files
    }

    /// Whatever is here was written so long ago.
    pub(crate) fn age(&self, by: Duration) {
        walk(&self.root, &mut |path| {
            // What a server just cleans up may be gone by now.
            if let Ok(file) = std::fs::File::options().write(true).open(path) {
                file.set_modified(SystemTime::now() - by).expect("an older time");
            }
        });
        self.changed();
    }

    pub(crate) fn remove(&self, sha256: &[u8; 32]) {
        std::fs::remove_file(self.file(sha256)).expect("it was there");
        self.changed();
    }

    /// Something was done to the files from behind.
    pub(crate) fn changed(&self) {
        if let Some(server) = self.server {
            server.forget(&self.url);
        }
    }
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() { walk(&path, each) } else { each(&path) }
    }
}

/// The same test in a folder and in a bucket.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
pub(crate) fn on_both(test: impl AsyncFn(&Spot<'_>)) {
    println!("in a folder");
    wait(async { test(&Spot::in_folder().await).await });
    println!("in a bucket");
    wait(async { test(&Spot::in_bucket(server()).await).await });
}

pub(crate) fn bytes(length: usize, seed: u8) -> Arc<[u8]> {
    (0..length).map(|at| u8::try_from(at % 251).expect("a byte") ^ seed).collect()
}

pub(crate) fn payload(bytes: &[u8]) -> Payload {
    Payload { sha256: Sha256::digest(bytes).into(), bytes: u64::try_from(bytes.len()).expect("a length") }
}

/// Read to the end; the bytes, and those of the largest piece.
pub(crate) async fn read(mut reader: PayloadReader) -> Result<(Vec<u8>, usize), ObjectError> {
    let (mut read, mut largest) = (Vec::new(), 0);
    while let Some(piece) = reader.next().await? {
        largest = largest.max(piece.len());
        read.extend_from_slice(&piece);
    }
    assert!(reader.next().await?.is_none(), "the end is the end");
    Ok((read, largest))
}
