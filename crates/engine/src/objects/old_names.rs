//! What systems have kept under names of their own long ago: for them to judge, nobody else can.

use std::fs::ReadDir;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;

use super::bucket::{self, Names};
use super::name::Name;
use super::trouble::trouble;
use super::{ObjectError, Objects, Place, blocking, folder};

/// Names that are looked at in one go.
const SOME: usize = 500;

/// A walk through all that lies directly under a name, such as `originals`, and was written at least so long ago.
pub struct OldNames {
    under: Name,
    age: Duration,
    place: Walked,
}

enum Walked {
    Folder(ReadDir, SystemTime),
    Bucket(Names),
    Done,
}

impl Objects {
    pub async fn old_names(&self, under: &str, age: Duration) -> Result<OldNames, ObjectError> {
        let under = Name::new(under)?;
        let place = match &self.place {
            Place::Folder(folder) => {
                let (folder, under) = (folder.clone(), under.clone());
                let entries = blocking(move || folder.under(&under)).await?;
                entries.map_or(Walked::Done, |(entries, now)| Walked::Folder(entries, now))
            }
            Place::Bucket(bucket) => {
                let now = bucket.now().await.map_err(trouble)?;
                Walked::Bucket(bucket.under(&under, move |about| bucket::is_old(about, now, age)))
            }
        };
        Ok(OldNames { under, age, place })
    }
}

impl OldNames {
    /// Some of them, perhaps none; `None` at the end. What is written or removed meanwhile may be among them or not.
    pub async fn next(&mut self) -> Result<Option<Vec<String>>, ObjectError> {
        match std::mem::replace(&mut self.place, Walked::Done) {
            Walked::Done => Ok(None),
            Walked::Folder(mut entries, now) => {
                let (under, age) = (self.under.clone(), self.age);
                let look = move || {
                    let mut names = Vec::new();
                    for looked in 1.. {
                        let Some(entry) = entries.next() else { return Ok((names, Walked::Done)) };
                        let entry = entry?;
                        // One that is no text is no name of ours.
                        let name = entry.file_name().to_str().map(|name| format!("{}/{name}", under.as_str()));
                        if entry.file_type()?.is_file() && folder::is_old(&entry.path(), now, age)? {
                            names.extend(name);
                        }
                        if looked == SOME {
                            break;
                        }
                    }
                    Ok((names, Walked::Folder(entries, now)))
                };
                let (names, place) = blocking(look).await?;
                self.place = place;
                Ok(Some(names))
            }
            Walked::Bucket(mut all) => {
                let mut names = Vec::new();
                while names.len() < SOME {
                    let Some(name) = all.next().await else { return Ok(Some(names)) };
                    let name = name?;
                    // What lies deeper is not asked for.
                    if name.matches('/').count() == self.under.as_str().matches('/').count() + 1 {
                        names.push(name);
                    }
                }
                self.place = Walked::Bucket(all);
                Ok(Some(names))
            }
        }
    }
}
