//! Verifies, read-only, that the bucket contains the image of each stored asset; part of `onceward verify`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onceward_core::hex;
use onceward_core::model::Lifecycle;
use onceward_core::record::PayloadRef;
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, ObjectError, ObjectStorage, ProgressObserver, VerifyReport};
use onceward_store::TableDifference;
use onceward_store::scan::{ProjectionTable, RowSubject, Scan, StoredRow};
use serde_json::Value as Json;

use crate::ASSET_LIFECYCLE;

/// Rows read in one transaction.
const SCAN_PAGE_ROWS: usize = 500;

/// Name of this check in the report.
const IMAGES_CHECK_NAME: &str = "images";

/// The image of a stored asset, as its row describes it.
struct StoredImage {
    asset: RecordId,
    url: String,
    payload: PayloadRef,
}

/// Verifies that the image of every stored asset is in the bucket with the recorded size and, with `verify_contents`,
/// the recorded hash. Adds each difference to the report.
pub async fn verify_images<S: Scan>(
    scanner: &S,
    objects: &ObjectStorage,
    verify_contents: bool,
    observer: &mut dyn ProgressObserver,
    report: &mut VerifyReport,
) -> Result<(), EngineError> {
    let catalog = scanner.scan_catalog().await?.catalog;
    // Version numbers count from 1 over all versions.
    let versions = catalog.all_versions().zip(1_u32..).filter(|(version, _)| *version.name == *ASSET_LIFECYCLE);
    let versions = versions.map(|(version, number)| (number.to_string(), Arc::clone(version))).collect();
    let (mut after, mut scanned) = (None, 0);
    loop {
        let page = scanner.scan(ProjectionTable::Records, after.clone(), SCAN_PAGE_ROWS).await?;
        let mut defects = Vec::new();
        for picture in page.rows.iter().filter_map(|row| parse_stored_image(row, &versions)) {
            scanned += 1;
            if let Some(defect) = find_image_defect(objects, &picture, verify_contents).await? {
                defects.push((picture.asset, defect));
            }
        }
        if !defects.is_empty() {
            // Re-read the page: the owner may have removed the asset since.
            let rescanned = scanner.scan(ProjectionTable::Records, after, SCAN_PAGE_ROWS).await?;
            let still =
                rescanned.rows.iter().filter_map(|row| parse_stored_image(row, &versions)).map(|picture| picture.asset);
            let still_stored: HashSet<RecordId> = still.collect();
            for (asset, why) in defects.into_iter().filter(|(asset, _)| still_stored.contains(asset)) {
                let difference = TableDifference::invalid(IMAGES_CHECK_NAME, asset, why).with_rule("IMG-3");
                observer.on_difference(&difference);
                report.add_difference(difference);
            }
        }
        if scanned > 0 {
            observer.on_progress(IMAGES_CHECK_NAME, scanned, scanned);
        }
        after = page.next;
        if after.is_none() {
            report.objects += scanned;
            return Ok(());
        }
    }
}

/// Parses the row of a stored asset. Returns `None` for malformed rows, which other checks report.
fn parse_stored_image(row: &StoredRow, versions: &HashMap<String, Arc<Lifecycle>>) -> Option<StoredImage> {
    let value =
        |column: &str| row.columns.iter().find(|(name, _)| *name == column).and_then(|(_, text)| text.as_deref());
    let lifecycle = versions.get(value("definition")?)?;
    let RowSubject::Record(asset) = row.subject else { return None };
    if value("state")? != lifecycle.state_index("stored")?.to_string() {
        return None;
    }
    let fields: Vec<Json> = serde_json::from_str(value("fields")?).ok()?;
    let field = |name: &str| fields.get(usize::from(lifecycle.field_index(name)?));
    let payload = PayloadRef { sha256: hex::decode(field("sha256")?.as_str()?)?, bytes: field("bytes")?.as_u64()? };
    Some(StoredImage { asset, url: field("url")?.as_str()?.to_owned(), payload })
}

async fn find_image_defect(
    objects: &ObjectStorage,
    image: &StoredImage,
    verify_contents: bool,
) -> Result<Option<String>, EngineError> {
    let StoredImage { url, payload, .. } = image;
    match objects.named_size(url).await {
        Ok(Some(bytes)) if bytes == payload.bytes => {}
        Ok(Some(bytes)) => return Ok(Some(format!("{url} has {bytes} bytes in the bucket, not {}", payload.bytes))),
        // No object can have an invalid name.
        Ok(None) | Err(ObjectError::InvalidObjectName(_)) => return Ok(Some(format!("{url} is not in the bucket"))),
        Err(error) => return Err(error.into()),
    }
    if !verify_contents {
        return Ok(None);
    }
    let Some(mut reader) = objects.get_named(url, payload).await? else { return Ok(None) };
    loop {
        match reader.next_chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(ObjectError::Damaged(_)) => return Ok(Some(format!("{url} does not match its hash"))),
            Err(error) => return Err(error.into()),
        }
    }
}
