//! Whether large payloads are where they should be.

use onceward_core::hex;
use onceward_core::record::Payload;
use onceward_store::Difference;
use onceward_store::scan::{At, Kept, Scan, Table};
use sha2::{Digest, Sha256};

use super::{ObjectError, Objects};
use crate::error::EngineError;
use crate::verify::{Report, Watch};

/// Rows that are read in one transaction.
const PAGE: usize = 500;

/// Look for every payload that a record has and the database has not: is it among the objects, and with `contents`, are its bytes
/// those of its hash? What is wrong is added to the report.
pub async fn verify_objects<S: Scan>(
    store: &S,
    objects: &Objects,
    contents: bool,
    watch: &mut dyn Watch,
    report: &mut Report,
) -> Result<(), EngineError> {
    let (mut cursor, mut done) = (None, 0);
    loop {
        let page = store.scan(Table::Contents, cursor, PAGE).await?;
        for row in &page.rows {
            let Some(sha256) = elsewhere(row) else { continue };
            done += 1;
            if let Some(why) = wrong(objects, &sha256, contents).await? {
                let difference = Difference::broken(Table::Contents.name(), hex::encode(&sha256), why);
                watch.difference(&difference);
                report.add(difference);
            }
        }
        watch.progress("objects", done, done);
        cursor = page.next;
        if cursor.is_none() {
            report.objects = done;
            return Ok(());
        }
    }
}

/// The hash of bytes that some record has, and the database has not.
fn elsewhere(row: &Kept) -> Option<[u8; 32]> {
    let value =
        |column: &str| row.columns.iter().find(|(name, _)| *name == column).and_then(|(_, kept)| kept.as_deref());
    let At::Key(key) = &row.at else { return None };
    let none = hex::encode(&Sha256::digest(b""));
    let is_here = value("bytes") != Some(&none) || *key == none;
    if is_here || value("refs") == Some("0") {
        return None;
    }
    super::hash(u8::from_str_radix(key.get(..2)?, 16).ok()?, key.get(2..)?)
}

async fn wrong(objects: &Objects, sha256: &[u8; 32], contents: bool) -> Result<Option<String>, EngineError> {
    let Some(bytes) = objects.size(sha256).await? else {
        return Ok(Some("its bytes are neither in the database nor among the objects".to_owned()));
    };
    if !contents {
        return Ok(None);
    }
    let Some(mut reader) = objects.get(&Payload { sha256: *sha256, bytes }).await? else { return Ok(None) };
    loop {
        match reader.next().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(error @ ObjectError::Damaged(_)) => return Ok(Some(error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
}
