//! Opens the object storage that a command uses.

use anyhow::Result;
use clap::Args;
use onceward_engine::ObjectStorage;

use crate::database::DatabaseUrl;

/// The flag `--objects`.
#[derive(Args)]
pub(crate) struct ObjectStorageArgs {
    /// Object storage for payloads over 64 KB: a folder, or an S3 bucket as `s3://BUCKET/PREFIX` with the usual AWS_… variables. All
    /// processes on one database must use the same object storage. Default: the folder FILE.objects beside a database file; with PostgreSQL, payloads
    /// are stored in the database. See docs/payloads.md
    #[arg(long, env = "ONCEWARD_OBJECTS", value_name = "URL|FOLDER")]
    objects: Option<String>,
}

impl ObjectStorageArgs {
    fn url(&self) -> Option<&str> {
        // An empty environment variable counts as unset.
        self.objects.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn has_url(&self) -> bool {
        self.url().is_some()
    }

    /// Opens the object storage named by the flag, if any, and checks that it is accessible.
    pub(crate) async fn open(&self) -> Result<Option<ObjectStorage>> {
        match self.url() {
            Some(url) => Ok(Some(ObjectStorage::open(url).await?)),
            None => Ok(None),
        }
    }

    /// Like [`open`](Self::open), but falls back to the folder beside an embedded database.
    pub(crate) async fn open_or_default(&self, database: &DatabaseUrl) -> Result<Option<ObjectStorage>> {
        match self.open().await? {
            None => Ok(database.default_object_folder().map(ObjectStorage::folder)),
            named => Ok(named),
        }
    }
}
