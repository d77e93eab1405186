//! A bucket that speaks S3. A name there is given at once and as a whole, so nothing is written apart unless its hash is not yet
//! known. The names are those of a folder, so that the one can be copied to the other.

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
use super::folder::{DRAFTS, Found, LEFT_BEHIND, NAMED};
use super::name::Name;
use super::trouble::{found, trouble};

/// What names an upload that has begun has this at its end, and the upload's id in it: an upload itself cannot be seen among the
/// objects, and its parts are kept until somebody ends it.
pub(super) const NOTE: &str = ".upload";

/// Bytes in pieces, as they come.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, Error>>;

/// Names, as they are listed.
pub(super) type Names = BoxStream<'static, Result<String, ObjectError>>;

pub(super) struct Bucket {
    pub(super) store: AmazonS3,
    /// With a slash at its end, or empty.
    prefix: String,
    /// As it was asked for. It has no secrets.
    url: String,
    /// By a hash's first byte: held together to give an object its name, and alone to look whether it is still old and take it
    /// out.
    names: Vec<RwLock<()>>,
}

/// The store's own picture shows its keys.
impl fmt::Debug for Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Bucket").field(&self.url).finish()
    }
}

impl Bucket {
    pub(super) fn new(store: AmazonS3, prefix: Option<&Name>, url: &str) -> Self {
        let prefix = prefix.map_or_else(String::new, |prefix| format!("{}/", prefix.as_str()));
        let names = (0..=u8::MAX).map(|_| RwLock::new(())).collect();
        Self { store, prefix, url: url.to_owned(), names }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn path(&self, sha256: &[u8; 32]) -> Path {
        let name = hex::encode(sha256);
        Path::from(format!("{}{}/{}", self.prefix, &name[..2], &name[2..]))
    }

    fn named(&self, name: &Name) -> Path {
        Path::from(format!("{}{NAMED}/{}", self.prefix, name.as_str()))
    }

    pub(super) fn draft(&self, name: &str) -> Path {
        Path::from(format!("{}{DRAFTS}/{name}", self.prefix))
    }

    /// Ask for its first object, whether there is one or not.
    pub(super) async fn look(&self) -> Result<(), Error> {
        let one = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
        let prefix = Some(self.prefix.as_str()).filter(|prefix| !prefix.is_empty());
        self.store.list_paginated(prefix, one).await.map(drop)
    }

    /// Now, by the clock that the objects' own times come from. They are told in whole seconds: it is the end of this one.
    /// Shows also that we may write.
    pub(super) async fn now(&self) -> Result<SystemTime, Error> {
        let chance = super::chance().map_err(|source| Error::Generic { store: "chance", source: source.into() })?;
        let path = self.draft(&chance);
        self.store.put(&path, Bytes::new().into()).await?;
        let about = self.store.head(&path).await?;
        self.store.delete(&path).await?;
        Ok(SystemTime::from(about.last_modified) + Duration::from_secs(1))
    }

    pub(super) async fn keep(&self, sha256: &[u8; 32], bytes: Bytes) -> Result<(), ObjectError> {
        let _arriving = self.arriving(sha256).await;
        self.store.put(&self.path(sha256), bytes.into()).await.map_err(trouble)?;
        Ok(())
    }

    /// Give a finished draft its name. The bucket copies it by itself; one that is there already is replaced, and is young again.
    pub(super) async fn keep_draft(&self, draft: &Path, sha256: &[u8; 32]) -> Result<(), ObjectError> {
        let _arriving = self.arriving(sha256).await;
        self.store.copy(draft, &self.path(sha256)).await.map_err(trouble)
    }

    async fn arriving(&self, sha256: &[u8; 32]) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.names[usize::from(sha256[0])].read().await
    }

    pub(super) async fn keep_named(&self, name: &Name, bytes: Bytes) -> Result<(), ObjectError> {
        self.store.put(&self.named(name), bytes.into()).await.map_err(trouble)?;
        Ok(())
    }

    pub(super) async fn read(&self, sha256: &[u8; 32]) -> Result<Option<Pieces>, ObjectError> {
        let got = found(self.store.get(&self.path(sha256)).await)?;
        Ok(got.map(object_store::GetResult::into_stream))
    }

    pub(super) async fn read_named(&self, name: &Name) -> Result<Option<Pieces>, ObjectError> {
        let got = found(self.store.get(&self.named(name)).await)?;
        Ok(got.map(object_store::GetResult::into_stream))
    }

    pub(super) async fn size(&self, sha256: &[u8; 32]) -> Result<Option<u64>, ObjectError> {
        Ok(found(self.store.head(&self.path(sha256)).await)?.map(|about| about.size))
    }

    pub(super) async fn size_named(&self, name: &Name) -> Result<Option<u64>, ObjectError> {
        Ok(found(self.store.head(&self.named(name)).await)?.map(|about| about.size))
    }

    pub(super) async fn remove_named(&self, name: &Name) -> Result<(), ObjectError> {
        found(self.store.delete(&self.named(name)).await).map(drop)
    }

    /// What lies under a name, page by page, by the names that a system knows.
    pub(super) fn under(&self, name: &Name, old: impl Fn(&ObjectMeta) -> bool + Send + 'static) -> Names {
        let before = format!("{}{NAMED}/", self.prefix);
        let all = self.store.list(Some(&self.named(name))).map_err(trouble);
        let names = all.try_filter_map(move |about| {
            let name = about.location.as_ref().strip_prefix(&before).filter(|_| old(&about)).map(str::to_owned);
            std::future::ready(Ok(name))
        });
        names.boxed()
    }

    /// Take out drafts, and end uploads, that whoever began them has left behind.
    pub(super) async fn sweep(&self, now: SystemTime, age: Duration) -> Result<(), ObjectError> {
        let prefix = Path::from(format!("{}{DRAFTS}", self.prefix));
        let mut drafts = self.store.list(Some(&prefix));
        while let Some(about) = drafts.try_next().await.map_err(trouble)? {
            if !is_old(&about, now, age.max(LEFT_BEHIND)) {
                continue;
            }
            if let Some(draft) = about.location.as_ref().strip_suffix(NOTE)
                && let Some(note) = found(self.store.get(&about.location).await)?
            {
                let id = note.bytes().await.map_err(trouble)?;
                let id = String::from_utf8_lossy(&id).into_owned();
                found(self.store.abort_multipart(&Path::from(draft), &id).await)?;
            }
            found(self.store.delete(&about.location).await)?;
        }
        Ok(())
    }

    /// Objects that were written so long ago, page by page.
    pub(super) fn old(&self, now: SystemTime, age: Duration) -> BoxStream<'_, Result<Found, ObjectError>> {
        let prefix = Path::from(self.prefix.as_str());
        let all = self.store.list(Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty()));
        let old = all.map_err(trouble).try_filter_map(move |about| {
            let sha256 = self.hash(&about.location).filter(|_| is_old(&about, now, age));
            std::future::ready(Ok(sha256.map(|sha256| Found { sha256, bytes: about.size })))
        });
        old.boxed()
    }

    /// The hash whose object has this name.
    fn hash(&self, path: &Path) -> Option<[u8; 32]> {
        let (first, rest) = path.as_ref().strip_prefix(&self.prefix)?.split_once('/')?;
        let byte = u8::from_str_radix(first, 16).ok().filter(|byte| hex::encode(&[*byte]) == first)?;
        super::hash(byte, rest)
    }

    /// Take an object out if it is still as old: somebody may have brought it again meanwhile.
    pub(super) async fn remove(&self, sha256: &[u8; 32], now: SystemTime, age: Duration) -> Result<bool, ObjectError> {
        let path = self.path(sha256);
        let _alone = self.names[usize::from(sha256[0])].write().await;
        let Some(about) = found(self.store.head(&path).await)? else { return Ok(false) };
        Ok(is_old(&about, now, age) && found(self.store.delete(&path).await)?.is_some())
    }
}

pub(super) fn is_old(about: &ObjectMeta, now: SystemTime, age: Duration) -> bool {
    now.duration_since(SystemTime::from(about.last_modified)).is_ok_and(|since| since >= age)
}
