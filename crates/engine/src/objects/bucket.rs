//! Object storage in an S3 bucket. S3 writes objects atomically, so drafts are needed only while a hash is unknown.
//! Names are the same as in a folder, so that one can be copied to the other.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::multipart::MultipartStore as _;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use onceward_core::hex;
use tokio::sync::RwLock;

use super::ObjectError;
use super::errors::{none_if_missing, to_object_error};
use super::folder::{DRAFTS_FOLDER, MIN_DRAFT_AGE, NAMED_FOLDER, StoredObject};
use super::name::ObjectName;

/// Suffix of the note that stores the id of a multipart upload. S3 does not list such an upload among the objects, and
/// keeps its parts until it is aborted.
pub(super) const UPLOAD_NOTE_SUFFIX: &str = ".upload";

pub(super) type ChunkStream = BoxStream<'static, Result<Bytes, Error>>;

pub(super) type NameStream = BoxStream<'static, Result<String, ObjectError>>;

pub(super) struct S3Bucket {
    pub(super) store: AmazonS3,
    /// Ends with a slash, or is empty.
    prefix: String,
    /// The URL from the configuration. It contains no secrets.
    url: String,
    /// By first byte of the hash: shared while an object is written, exclusive while a stale object is checked and
    /// deleted.
    name_locks: Vec<RwLock<()>>,
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
        let name_locks = (0..=u8::MAX).map(|_| RwLock::new(())).collect();
        Self { store, prefix, url: url.to_owned(), name_locks }
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
        let _name_lock = self.lock_name_shared(sha256).await;
        self.store.put(&self.object_path(sha256), bytes.into()).await.map_err(to_object_error)?;
        Ok(())
    }

    /// Copies a finished draft to its hash, inside the bucket. An existing object is replaced and gets a new time.
    pub(super) async fn publish_draft(&self, draft: &Path, sha256: &[u8; 32]) -> Result<(), ObjectError> {
        let _name_lock = self.lock_name_shared(sha256).await;
        self.store.copy(draft, &self.object_path(sha256)).await.map_err(to_object_error)
    }

    async fn lock_name_shared(&self, sha256: &[u8; 32]) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.name_locks[usize::from(sha256[0])].read().await
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

    /// Deletes an object if it is still stale: it may have been written again.
    pub(super) async fn remove_if_stale(
        &self,
        sha256: &[u8; 32],
        now: SystemTime,
        age: Duration,
    ) -> Result<bool, ObjectError> {
        let path = self.object_path(sha256);
        let _name_lock = self.name_locks[usize::from(sha256[0])].write().await;
        let Some(about) = none_if_missing(self.store.head(&path).await)? else { return Ok(false) };
        Ok(is_stale(&about, now, age) && none_if_missing(self.store.delete(&path).await)?.is_some())
    }
}

pub(super) fn is_stale(about: &ObjectMeta, now: SystemTime, age: Duration) -> bool {
    now.duration_since(SystemTime::from(about.last_modified)).is_ok_and(|since| since >= age)
}
