//! Routes of image assets: the caller's library and the images in the private bucket.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use onceward_core::hex;
use onceward_core::record::{PayloadRef, Record};
use onceward_core::value::RecordId;
use onceward_engine::EngineError;
use onceward_server::{
    AppState, Caller, PathParams, Problem, QueryParams, Rfc3339, bytes_response, json_ok, parse_cursor,
    require_visible, validate_limit,
};
use onceward_store::ListQuery;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{ASSET_LIFECYCLE, bucket};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list)).routes(routes!(get, remove)).routes(routes!(image))
}

pub(super) fn image_path(asset: RecordId) -> String {
    format!("/image/assets/{asset}/image")
}

/// An image in its owner's library.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ImageAsset)]
struct ImageAssetJson<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    /// `stored` or `removed`; `removing` or `clearing` until the image is deleted from the bucket.
    state: &'a str,
    owner: &'a str,
    /// The job that generated the image.
    #[schema(value_type = Option<String>, format = Uuid)]
    job: Option<String>,
    /// Path of the image, for its owner only; null once it is removed.
    url: Option<String>,
    kind: &'a str,
    #[schema(minimum = 1)]
    bytes: i64,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
}

impl<'a> ImageAssetJson<'a> {
    fn from_record(asset: &'a Record) -> Self {
        Self {
            id: asset.id.to_string(),
            state: asset.state_name(),
            owner: &asset.owner,
            job: asset.ref_field("job").map(|job| job.to_string()),
            url: is_stored(asset).then(|| image_path(asset.id)),
            kind: bucket::media_type(asset.text_field("url").unwrap_or_default()),
            bytes: asset.int_field("bytes").unwrap_or_default(),
            sha256: asset.text_field("sha256").unwrap_or_default(),
            created_at: Rfc3339(asset.created_at),
        }
    }
}

pub(super) fn is_stored(asset: &Record) -> bool {
    &**asset.state_name() == "stored"
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ImageAssetQuery {
    /// Maximum number of assets; default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// A page of the library. It may contain fewer assets than `limit`, even none, and still have a `next`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageAssets)]
struct ImageAssetPageJson<'a> {
    assets: Vec<ImageAssetJson<'a>>,
    /// Cursor of the next page; null on the last page.
    next: Option<String>,
}

/// List the caller's images
///
/// Oldest first, without removed images.
#[utoipa::path(
    get, path = "/image/assets", operation_id = "list_image_assets", tag = "image", params(ImageAssetQuery),
    responses((status = 200, description = "A page of assets", body = ImageAssetPageJson))
)]
async fn list(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(query_params): QueryParams<ImageAssetQuery>,
) -> Result<Response, Problem> {
    let query = ListQuery {
        lifecycle: Some(ASSET_LIFECYCLE.into()),
        state: Some("stored".into()),
        owner: Some(caller.actor.id.clone()),
        after: parse_cursor(query_params.cursor.as_deref())?,
        limit: validate_limit(query_params.limit)?,
        ..ListQuery::default()
    };
    let page = app.engine().list(&caller.actor, &query).await?;
    let assets = page.records.iter().map(|asset| ImageAssetJson::from_record(asset)).collect();
    json_ok(&ImageAssetPageJson { assets, next: page.next.map(|next| next.to_string()) })
}

/// Get an image asset
///
/// For its owner and operators.
#[utoipa::path(
    get, path = "/image/assets/{id}", operation_id = "get_image_asset", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The asset's id")),
    responses((status = 200, description = "The asset", body = ImageAssetJson))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    json_ok(&ImageAssetJson::from_record(&*require_visible(&app, &caller, ASSET_LIFECYCLE, id).await?))
}

/// Get an image
///
/// Returns the bytes of the image, to its owner only.
#[utoipa::path(
    get, path = "/image/assets/{id}/image", operation_id = "get_image", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The asset's id")),
    responses(
        (status = 200, description = "The image", content(
            (Vec<u8> = "image/png"), (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/webp"), (Vec<u8> = "application/octet-stream")
        )),
    )
)]
async fn image(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    let asset = require_visible(&app, &caller, ASSET_LIFECYCLE, id).await?;
    let (name, payload) = stored_payload(&asset)
        .filter(|_| asset.owner == caller.actor.id && is_stored(&asset))
        .ok_or_else(image_not_found)?;
    let objects = app.engine().object_storage().ok_or_else(image_not_found)?;
    let reader = objects.get_named(name, &payload).await.map_err(EngineError::from)?.ok_or_else(image_not_found)?;
    let mut response = bytes_response(reader, Some(HeaderValue::from_static(bucket::media_type(name)))).await?;
    // Shared caches must not store the image.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    Ok(response)
}

fn image_not_found() -> Problem {
    Problem::new(404, "not_found", "the image does not exist or is not visible to the caller")
}

/// Returns the image's object name and its expected hash and size.
fn stored_payload(asset: &Record) -> Option<(&str, PayloadRef)> {
    let sha256 = hex::decode(asset.text_field("sha256")?)?;
    let bytes = u64::try_from(asset.int_field("bytes")?).ok()?;
    Some((asset.text_field("url")?, PayloadRef { sha256, bytes }))
}

/// Remove an image
///
/// For its owner. The image leaves the library at once and is deleted from the bucket soon after. Removing it again
/// succeeds and changes nothing.
#[utoipa::path(
    delete, path = "/image/assets/{id}", operation_id = "remove_image", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The asset's id")),
    responses((status = 200, description = "Removed", body = ImageAssetJson))
)]
async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    let mut asset = require_visible(&app, &caller, ASSET_LIFECYCLE, id).await?;
    if is_stored(&asset) {
        let receipt = app.engine().fire(&caller.actor, id, "remove", serde_json::Map::new()).await?;
        asset = receipt.record.ok_or_else(Problem::not_found)?;
    } else if asset.owner != caller.actor.id {
        return Err(Problem::not_found());
    }
    json_ok(&ImageAssetJson::from_record(&asset))
}
