//! Where a verb finds large payloads.

use anyhow::Result;
use clap::Args;
use onceward_engine::Objects;

use crate::database::Database;

/// As `--objects` names it.
#[derive(Args)]
pub(crate) struct Kept {
    /// Where payloads of more than 64 KB are: a folder, or a bucket that speaks S3 as s3://BUCKET/PREFIX, with the usual AWS_… variables.
    /// A database file has its own folder beside it, as FILE.objects. With PostgreSQL they stand in the database unless a place is named,
    /// which all processes must share; docs/payloads.md tells more
    #[arg(long, env = "ONCEWARD_OBJECTS", value_name = "URL|FOLDER")]
    objects: Option<String>,
}

impl Kept {
    fn name(&self) -> Option<&str> {
        // A variable that is set to nothing is none.
        self.objects.as_deref().filter(|url| !url.is_empty())
    }

    pub(crate) fn is_named(&self) -> bool {
        self.name().is_some()
    }

    /// The place that was named, where one was; it was asked whether it lets us in.
    pub(crate) async fn named(&self) -> Result<Option<Objects>> {
        match self.name() {
            Some(url) => Ok(Some(Objects::open(url).await?)),
            None => Ok(None),
        }
    }

    /// That, or the folder beside the database if it is there.
    pub(crate) async fn existing(&self, database: &Database) -> Result<Option<Objects>> {
        match self.named().await? {
            None => Ok(database.objects().filter(|folder| folder.is_dir()).map(Objects::folder)),
            named => Ok(named),
        }
    }
}
