//! Verifies that all externally stored payloads exist and match their hashes.

use onceward_core::record::PayloadRef;
use onceward_core::{count_noun, hex};
use onceward_store::TableDifference;
use onceward_store::scan::{ProjectionTable, RowSubject, Scan, StoredRow};
use sha2::{Digest, Sha256};

use super::{ObjectError, ObjectStorage};
use crate::error::EngineError;
use crate::verify::{ProgressObserver, VerifyReport};

/// Keeps each read transaction short.
const SCAN_PAGE_ROWS: usize = 500;

/// Checks every payload that a record references and the database does not contain: does the object exist, and with
/// `verify_bytes`, does it match its hash? Differences are added to the report. Without a storage, such payloads make
/// the verification incomplete.
pub async fn verify_objects<S: Scan>(
    store: &S,
    storage: Option<&ObjectStorage>,
    verify_bytes: bool,
    observer: &mut dyn ProgressObserver,
    report: &mut VerifyReport,
) -> Result<(), EngineError> {
    let (mut cursor, mut examined) = (None, 0);
    loop {
        let page = store.scan(ProjectionTable::Contents, cursor, SCAN_PAGE_ROWS).await?;
        for row in &page.rows {
            let Some(sha256) = externally_stored_hash(row) else { continue };
            examined += 1;
            let Some(storage) = storage else { continue };
            if let Some(problem) = object_problem(storage, &sha256, verify_bytes).await? {
                let difference =
                    TableDifference::invalid(ProjectionTable::Contents.name(), hex::encode(&sha256), problem);
                observer.on_difference(&difference);
                report.add_difference(difference);
            }
        }
        observer.on_progress("objects", examined, examined);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if storage.is_some() {
        report.objects = examined;
    } else if examined > 0 {
        let payloads = count_noun(examined, "payload is", "payloads are");
        let why = format!("{payloads} in object storage; name that storage with `--objects`");
        report.stopped.get_or_insert(why);
    }
    Ok(())
}

/// Looks for the objects of the first page of payloads. Returns how many of them should exist, and how many do not.
pub async fn sample_missing_objects<S: Scan>(store: &S, storage: &ObjectStorage) -> Result<(u64, u64), EngineError> {
    let page = store.scan(ProjectionTable::Contents, None, SCAN_PAGE_ROWS).await?;
    let (mut examined, mut missing) = (0, 0);
    for sha256 in page.rows.iter().filter_map(externally_stored_hash) {
        examined += 1;
        missing += u64::from(storage.object_size(&sha256).await?.is_none());
    }
    Ok((examined, missing))
}

/// Returns the hash of a referenced payload that is not in the database.
fn externally_stored_hash(row: &StoredRow) -> Option<[u8; 32]> {
    let value =
        |column: &str| row.columns.iter().find(|(name, _)| *name == column).and_then(|(_, cell)| cell.as_deref());
    let RowSubject::Key(key) = &row.subject else { return None };
    let empty_hash = hex::encode(&Sha256::digest(b""));
    let is_inline = value("bytes") != Some(&empty_hash) || *key == empty_hash;
    if is_inline || value("refs") == Some("0") {
        return None;
    }
    super::parse_hash(u8::from_str_radix(key.get(..2)?, 16).ok()?, key.get(2..)?)
}

async fn object_problem(
    storage: &ObjectStorage,
    sha256: &[u8; 32],
    verify_bytes: bool,
) -> Result<Option<String>, EngineError> {
    let Some(bytes) = storage.object_size(sha256).await? else {
        return Ok(Some("its bytes are neither in the database nor in the object storage".to_owned()));
    };
    if !verify_bytes {
        return Ok(None);
    }
    let Some(mut reader) = storage.get(&PayloadRef { sha256: *sha256, bytes }).await? else { return Ok(None) };
    loop {
        match reader.next_chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(error @ ObjectError::Damaged(_)) => return Ok(Some(error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
}
