//! Object storage in an S3 bucket. S3 writes objects atomically, so drafts are needed only while a hash is unknown.
//! Names are the same as in a folder, so that one can be copied to the other.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::multipart::MultipartStore as _;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use onceward_core::hex;

use super::ObjectError;
use super::errors::{none_if_missing, to_object_error};
use super::folder::{DRAFTS_FOLDER, MIN_DRAFT_AGE, NAMED_FOLDER, StoredObject};
use super::name::ObjectName;

/// Suffix of the note that stores the id of a multipart upload. S3 does not list such an upload among the objects, and
/// keeps its parts until it is aborted.
pub(super) const UPLOAD_NOTE_SUFFIX: &str = ".upload";

/// Folder of deletion markers, among the drafts: garbage collection also deletes markers of dead processes.
const MARKERS_FOLDER: &str = "deletions";

/// No deletion starts under an older marker.
const MAX_MARKER_AGE: Duration = Duration::from_secs(30);

/// Deletions under a marker have ended after this time: the last one starts within [`MAX_MARKER_AGE`], and consists of
/// two requests that end within 90 seconds each, retries included.
const MARKER_TTL: Duration = Duration::from_mins(4);

const MARKER_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A second attempt follows a deletion that began before the first write. A third would need another such deletion.
const MAX_WRITE_ATTEMPTS: usize = 3;

pub(super) type ChunkStream = BoxStream<'static, Result<Bytes, Error>>;

pub(super) type NameStream = BoxStream<'static, Result<String, ObjectError>>;

pub(super) struct S3Bucket {
    pub(super) store: AmazonS3,
    /// Ends with a slash, or is empty.
    prefix: String,
    /// The URL from the configuration. It contains no secrets.
    url: String,
}

/// The store's own `Debug` shows credentials.
impl fmt::Debug for S3Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("S3Bucket").field(&self.url).finish()
    }
}

impl S3Bucket {
    pub(super) fn new(store: AmazonS3, prefix: Option<&ObjectName>, url: &str) -> Self {
        let prefix = prefix.map_or_else(String::new, |prefix| format!("{}/", prefix.as_str()));
        Self { store, prefix, url: url.to_owned() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn object_path(&self, sha256: &[u8; 32]) -> Path {
        let name = hex::encode(sha256);
        Path::from(format!("{}{}/{}", self.prefix, &name[..2], &name[2..]))
    }

    fn named_path(&self, name: &ObjectName) -> Path {
        Path::from(format!("{}{NAMED_FOLDER}/{}", self.prefix, name.as_str()))
    }

    pub(super) fn draft_path(&self, name: &str) -> Path {
        Path::from(format!("{}{DRAFTS_FOLDER}/{name}", self.prefix))
    }

    /// Lists one object to test the access.
    pub(super) async fn probe(&self) -> Result<(), Error> {
        let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
        let prefix = Some(self.prefix.as_str()).filter(|prefix| !prefix.is_empty());
        self.store.list_paginated(prefix, options).await.map(drop)
    }

    /// Returns the current time of the bucket's clock, by writing an object. Object times have whole seconds, so it
    /// returns the end of the second. Also tests write access.
    pub(super) async fn now(&self) -> Result<SystemTime, Error> {
        let draft_name =
            super::random_name().map_err(|source| Error::Generic { store: "chance", source: source.into() })?;
        let path = self.draft_path(&draft_name);
        self.store.put(&path, Bytes::new().into()).await?;
        let about = self.store.head(&path).await?;
        self.store.delete(&path).await?;
        Ok(SystemTime::from(about.last_modified) + Duration::from_secs(1))
    }

    pub(super) async fn put_object(&self, sha256: &[u8; 32], bytes: Bytes) -> Result<(), ObjectError> {
        let path = self.object_path(sha256);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            self.store.put(&path, bytes.clone().into()).await.map_err(to_object_error)?;
            if self.survives_deletions(&path).await? {
                return Ok(());
            }
        }
        Err(written_object_missing())
    }

    /// Copies a finished draft to its hash, inside the bucket. An existing object is replaced and gets a new time.
    pub(super) async fn publish_draft(&self, draft: &Path, sha256: &[u8; 32]) -> Result<(), ObjectError> {
        let path = self.object_path(sha256);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            self.store.copy(draft, &path).await.map_err(to_object_error)?;
            if self.survives_deletions(&path).await? {
                return Ok(());
            }
        }
        Err(written_object_missing())
    }

    /// Returns whether a written object is safe from deletions that began before it was written, here or in another
    /// process. S3 cannot delete an object only if it is old, so each deletion is announced by a marker object.
    ///
    /// A deletion that announces itself later sees that the object is new. So this waits until the deletions that are
    /// announced now have ended, and then looks whether the object still exists.
    async fn survives_deletions(&self, path: &Path) -> Result<bool, ObjectError> {
        let mut announced = self.deletion_markers().await?;
        if !announced.is_empty() {
            let Some(written) = none_if_missing(self.store.head(path).await)? else { return Ok(false) };
            // The deletions of a process that died have ended long ago, but its marker stays until it is collected.
            announced.retain(|marker| !is_stale(marker, written.last_modified.into(), MARKER_TTL));
        }
        let deadline = Instant::now() + MARKER_TTL;
        while !announced.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(MARKER_POLL_INTERVAL).await;
            let current = self.deletion_markers().await?;
            announced.retain(|marker| current.iter().any(|other| other.location == marker.location));
        }
        Ok(none_if_missing(self.store.head(path).await)?.is_some())
    }

    async fn deletion_markers(&self) -> Result<Vec<ObjectMeta>, ObjectError> {
        self.store.list(Some(&self.draft_path(MARKERS_FOLDER))).try_collect().await.map_err(to_object_error)
    }

    pub(super) async fn put_named(&self, name: &ObjectName, bytes: Bytes) -> Result<(), ObjectError> {
        self.store.put(&self.named_path(name), bytes.into()).await.map_err(to_object_error)?;
        Ok(())
    }

    pub(super) async fn open_object(&self, sha256: &[u8; 32]) -> Result<Option<ChunkStream>, ObjectError> {
        let got = none_if_missing(self.store.get(&self.object_path(sha256)).await)?;
        Ok(got.map(object_store::GetResult::into_stream))
    }

    pub(super) async fn open_named(&self, name: &ObjectName) -> Result<Option<ChunkStream>, ObjectError> {
        let got = none_if_missing(self.store.get(&self.named_path(name)).await)?;
        Ok(got.map(object_store::GetResult::into_stream))
    }

    pub(super) async fn object_size(&self, sha256: &[u8; 32]) -> Result<Option<u64>, ObjectError> {
        Ok(none_if_missing(self.store.head(&self.object_path(sha256)).await)?.map(|about| about.size))
    }

    pub(super) async fn named_size(&self, name: &ObjectName) -> Result<Option<u64>, ObjectError> {
        Ok(none_if_missing(self.store.head(&self.named_path(name)).await)?.map(|about| about.size))
    }

    pub(super) async fn remove_named(&self, name: &ObjectName) -> Result<(), ObjectError> {
        none_if_missing(self.store.delete(&self.named_path(name)).await).map(drop)
    }

    /// Streams the named objects under a name.
    pub(super) fn list_named(
        &self,
        name: &ObjectName,
        is_selected: impl Fn(&ObjectMeta) -> bool + Send + 'static,
    ) -> NameStream {
        let before = format!("{}{NAMED_FOLDER}/", self.prefix);
        let all = self.store.list(Some(&self.named_path(name))).map_err(to_object_error);
        let names = all.try_filter_map(move |about| {
            let name = about.location.as_ref().strip_prefix(&before).filter(|_| is_selected(&about)).map(str::to_owned);
            std::future::ready(Ok(name))
        });
        names.boxed()
    }

    /// Deletes stale drafts and aborts stale multipart uploads.
    pub(super) async fn delete_stale_drafts(&self, now: SystemTime, age: Duration) -> Result<(), ObjectError> {
        let prefix = Path::from(format!("{}{DRAFTS_FOLDER}", self.prefix));
        let mut drafts = self.store.list(Some(&prefix));
        while let Some(about) = drafts.try_next().await.map_err(to_object_error)? {
            if !is_stale(&about, now, age.max(MIN_DRAFT_AGE)) {
                continue;
            }
            if let Some(draft) = about.location.as_ref().strip_suffix(UPLOAD_NOTE_SUFFIX)
                && let Some(note) = none_if_missing(self.store.get(&about.location).await)?
            {
                let id = note.bytes().await.map_err(to_object_error)?;
                let id = String::from_utf8_lossy(&id).into_owned();
                none_if_missing(self.store.abort_multipart(&Path::from(draft), &id).await)?;
            }
            none_if_missing(self.store.delete(&about.location).await)?;
        }
        Ok(())
    }

    /// Streams objects that are at least `age` old.
    pub(super) fn list_stale(
        &self,
        now: SystemTime,
        age: Duration,
    ) -> BoxStream<'_, Result<StoredObject, ObjectError>> {
        let prefix = Path::from(self.prefix.as_str());
        let all = self.store.list(Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty()));
        let old = all.map_err(to_object_error).try_filter_map(move |about| {
            let sha256 = self.parse_hash(&about.location).filter(|_| is_stale(&about, now, age));
            std::future::ready(Ok(sha256.map(|sha256| StoredObject { sha256, bytes: about.size })))
        });
        old.boxed()
    }

    /// Returns the hash of an object path.
    fn parse_hash(&self, path: &Path) -> Option<[u8; 32]> {
        let (first, rest) = path.as_ref().strip_prefix(&self.prefix)?.split_once('/')?;
        let byte = u8::from_str_radix(first, 16).ok().filter(|byte| hex::encode(&[*byte]) == first)?;
        super::parse_hash(byte, rest)
    }

    /// Announces deletions. The marker is valid for [`MAX_MARKER_AGE`].
    pub(super) async fn announce_deletions(&self) -> Result<DeletionMarker, ObjectError> {
        let path = self.draft_path(&format!("{MARKERS_FOLDER}/{}", super::random_name()?));
        let written_at = Instant::now();
        self.store.put(&path, Bytes::new().into()).await.map_err(to_object_error)?;
        Ok(DeletionMarker { path, written_at })
    }

    /// Ends the announcement. If a deletion failed, its request may still be running: then the marker must stay.
    pub(super) async fn end_deletions(&self, marker: DeletionMarker) -> Result<(), ObjectError> {
        none_if_missing(self.store.delete(&marker.path).await).map(drop)
    }

    /// Deletes an object if it is still stale: it may have been written again.
    pub(super) async fn remove_if_stale(
        &self,
        sha256: &[u8; 32],
        now: SystemTime,
        age: Duration,
    ) -> Result<bool, ObjectError> {
        let path = self.object_path(sha256);
        let Some(about) = none_if_missing(self.store.head(&path).await)? else { return Ok(false) };
        Ok(is_stale(&about, now, age) && none_if_missing(self.store.delete(&path).await)?.is_some())
    }
}

fn written_object_missing() -> ObjectError {
    std::io::Error::other("the bucket does not have an object that was just written").into()
}

/// An object that tells other processes that deletions are in progress.
pub(super) struct DeletionMarker {
    path: Path,
    written_at: Instant,
}

impl DeletionMarker {
    /// Whether the marker is too old for another deletion.
    pub(super) fn is_expired(&self) -> bool {
        self.written_at.elapsed() > MAX_MARKER_AGE
    }
}

pub(super) fn is_stale(about: &ObjectMeta, now: SystemTime, age: Duration) -> bool {
    now.duration_since(SystemTime::from(about.last_modified)).is_ok_and(|since| since >= age)
}
