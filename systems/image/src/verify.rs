//! Whether the bucket has the picture of each asset: a look for `onceward verify`, which only reads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onceward_core::hex;
use onceward_core::model::Lifecycle;
use onceward_core::record::Payload;
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, ObjectError, Objects, Report, Watch};
use onceward_store::Difference;
use onceward_store::scan::{At, Kept, Scan, Table};
use serde_json::Value as Json;

use crate::ASSET;

/// Rows that are read in one transaction.
const PAGE: usize = 500;

/// What a difference is called.
const PICTURES: &str = "pictures";

/// A picture in somebody's library.
struct Picture {
    asset: RecordId,
    url: String,
    payload: Payload,
}

/// Look for the picture of every stored asset: is it in the bucket, as long as it was; and with `contents`, are its bytes those of its hash? What
/// is wrong is added to the report.
pub async fn verify_pictures<S: Scan>(
    view: &S,
    objects: &Objects,
    contents: bool,
    watch: &mut dyn Watch,
    report: &mut Report,
) -> Result<(), EngineError> {
    let catalog = view.learn().await?.catalog;
    // A version's number is its place among all.
    let versions = catalog.all().zip(1_u32..).filter(|(version, _)| *version.name == *ASSET);
    let versions = versions.map(|(version, number)| (number.to_string(), Arc::clone(version))).collect();
    let (mut after, mut looked) = (None, 0);
    loop {
        let page = view.scan(Table::Records, after.clone(), PAGE).await?;
        let mut wrong = Vec::new();
        for picture in page.rows.iter().filter_map(|row| stored(row, &versions)) {
            looked += 1;
            if let Some(why) = what_is_wrong(objects, &picture, contents).await? {
                wrong.push((picture.asset, why));
            }
        }
        if !wrong.is_empty() {
            // Its owner may have removed it meanwhile.
            let again = view.scan(Table::Records, after, PAGE).await?;
            let still = again.rows.iter().filter_map(|row| stored(row, &versions)).map(|picture| picture.asset);
            let still: HashSet<RecordId> = still.collect();
            for (asset, why) in wrong.into_iter().filter(|(asset, _)| still.contains(asset)) {
                let difference = Difference::broken(PICTURES, asset, why).against("IMG-3");
                watch.difference(&difference);
                report.add(difference);
            }
        }
        if looked > 0 {
            watch.progress(PICTURES, looked, looked);
        }
        after = page.next;
        if after.is_none() {
            report.objects += looked;
            return Ok(());
        }
    }
}

/// The picture of a row that is an asset in the library. What such a row cannot say is found by others who look at rows.
fn stored(row: &Kept, versions: &HashMap<String, Arc<Lifecycle>>) -> Option<Picture> {
    let value =
        |column: &str| row.columns.iter().find(|(name, _)| *name == column).and_then(|(_, kept)| kept.as_deref());
    let lifecycle = versions.get(value("definition")?)?;
    let At::Record(asset) = row.at else { return None };
    if value("state")? != lifecycle.state("stored")?.to_string() {
        return None;
    }
    let fields: Vec<Json> = serde_json::from_str(value("fields")?).ok()?;
    let field = |name: &str| fields.get(usize::from(lifecycle.field(name)?));
    let payload = Payload { sha256: hex::decode(field("sha256")?.as_str()?)?, bytes: field("bytes")?.as_u64()? };
    Some(Picture { asset, url: field("url")?.as_str()?.to_owned(), payload })
}

async fn what_is_wrong(objects: &Objects, picture: &Picture, contents: bool) -> Result<Option<String>, EngineError> {
    let Picture { url, payload, .. } = picture;
    match objects.size_named(url).await {
        Ok(Some(bytes)) if bytes == payload.bytes => {}
        Ok(Some(bytes)) => return Ok(Some(format!("{url} has {bytes} bytes in the bucket, not {}", payload.bytes))),
        // What no name can be, nothing has.
        Ok(None) | Err(ObjectError::BadName(_)) => return Ok(Some(format!("{url} is not in the bucket"))),
        Err(error) => return Err(error.into()),
    }
    if !contents {
        return Ok(None);
    }
    let Some(mut reader) = objects.get_named(url, payload).await? else { return Ok(None) };
    loop {
        match reader.next().await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(ObjectError::Damaged(_)) => return Ok(Some(format!("{url} is another picture than its hash says"))),
            Err(error) => return Err(error.into()),
        }
    }
}
