//! Lists old named objects, for the system that owns them.

use std::fs::ReadDir;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;

use super::bucket::{self, NameStream};
use super::errors::to_object_error;
use super::name::ObjectName;
use super::{ObjectBackend, ObjectError, ObjectStorage, folder, run_blocking};

const MAX_NAMES_PER_BATCH: usize = 500;

/// Lists the objects directly under a name, such as `originals`, that are at least `min_age` old.
pub struct StaleNames {
    prefix: ObjectName,
    min_age: Duration,
    cursor: NameCursor,
}

enum NameCursor {
    Folder(ReadDir, SystemTime),
    Bucket(NameStream),
    Exhausted,
}

impl ObjectStorage {
    pub async fn stale_names(&self, prefix: &str, min_age: Duration) -> Result<StaleNames, ObjectError> {
        let prefix = ObjectName::new(prefix)?;
        let cursor = match &self.backend {
            ObjectBackend::Folder(folder) => {
                let (folder, under) = (folder.clone(), prefix.clone());
                let entries = run_blocking(move || folder.list_named(&under)).await?;
                entries.map_or(NameCursor::Exhausted, |(entries, now)| NameCursor::Folder(entries, now))
            }
            ObjectBackend::Bucket(bucket) => {
                let now = bucket.now().await.map_err(to_object_error)?;
                NameCursor::Bucket(bucket.list_named(&prefix, move |about| bucket::is_stale(about, now, min_age)))
            }
        };
        Ok(StaleNames { prefix, min_age, cursor })
    }
}

impl StaleNames {
    /// Returns the next names, possibly none; `None` at the end. Names that change during the listing may or may not be
    /// included.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<String>>, ObjectError> {
        match std::mem::replace(&mut self.cursor, NameCursor::Exhausted) {
            NameCursor::Exhausted => Ok(None),
            NameCursor::Folder(mut entries, now) => {
                let (under, age) = (self.prefix.clone(), self.min_age);
                let scan = move || {
                    let mut names = Vec::new();
                    for scanned in 1.. {
                        let Some(entry) = entries.next() else { return Ok((names, NameCursor::Exhausted)) };
                        let entry = entry?;
                        // A file name that is not UTF-8 cannot be an object name.
                        let name = entry.file_name().to_str().map(|name| format!("{}/{name}", under.as_str()));
                        if entry.file_type()?.is_file() && folder::is_stale(&entry.path(), now, age)? {
                            names.extend(name);
                        }
                        if scanned == MAX_NAMES_PER_BATCH {
                            break;
                        }
                    }
                    Ok((names, NameCursor::Folder(entries, now)))
                };
                let (names, cursor) = run_blocking(scan).await?;
                self.cursor = cursor;
                Ok(Some(names))
            }
            NameCursor::Bucket(mut all) => {
                let mut names = Vec::new();
                while names.len() < MAX_NAMES_PER_BATCH {
                    let Some(name) = all.next().await else { return Ok(Some(names)) };
                    let name = name?;
                    // Deeper objects are skipped.
                    if name.matches('/').count() == self.prefix.as_str().matches('/').count() + 1 {
                        names.push(name);
                    }
                }
                self.cursor = NameCursor::Bucket(all);
                Ok(Some(names))
            }
        }
    }
}
