//! Pictures: a user's library, and the pictures themselves out of the private bucket.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use onceward_core::hex;
use onceward_core::record::{Payload, Record};
use onceward_core::value::RecordId;
use onceward_engine::EngineError;
use onceward_server::{App, Asked, At, Caller, Problem, When, bytes, cursor, limit, ok, seen};
use onceward_store::ListQuery;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{ASSET, bucket};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list)).routes(routes!(get, remove)).routes(routes!(image))
}

/// Where a picture is had.
pub(super) fn image_of(asset: RecordId) -> String {
    format!("/image/assets/{asset}/image")
}

/// A picture in its owner's library.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ImageAsset)]
struct AssetShape<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    /// `stored`, or `removed` by its owner; until its picture is out of the bucket it is `removing` or `clearing`.
    state: &'a str,
    owner: &'a str,
    /// The job that drew it.
    #[schema(value_type = Option<String>, format = Uuid)]
    job: Option<String>,
    /// Where its owner gets it; for nobody else.
    url: Option<String>,
    kind: &'a str,
    #[schema(minimum = 1)]
    bytes: i64,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: When,
}

impl<'a> AssetShape<'a> {
    fn of(asset: &'a Record) -> Self {
        Self {
            id: asset.id.to_string(),
            state: asset.state_name(),
            owner: &asset.owner,
            job: asset.named("job").map(|job| job.to_string()),
            url: is_stored(asset).then(|| image_of(asset.id)),
            kind: bucket::kind(asset.text("url").unwrap_or_default()),
            bytes: asset.int("bytes").unwrap_or_default(),
            sha256: asset.text("sha256").unwrap_or_default(),
            created_at: When(asset.created_at),
        }
    }
}

pub(super) fn is_stored(asset: &Record) -> bool {
    &**asset.state_name() == "stored"
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
    /// At most so many; 100 where it is left out
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
}

/// A page of a library. It may have fewer pictures than were asked for, or none, and still have a `next`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageAssets)]
struct AssetsShape<'a> {
    assets: Vec<AssetShape<'a>>,
    /// Where the next page starts; null on the last.
    next: Option<String>,
}

/// List one's pictures
///
/// The caller's own, oldest first, without those that were removed.
#[utoipa::path(
    get, path = "/image/assets", tag = "image", params(Which),
    responses((status = 200, description = "A page of them", body = AssetsShape))
)]
async fn list(State(app): State<App>, caller: Caller, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    let query = ListQuery {
        lifecycle: Some(ASSET.into()),
        state: Some("stored".into()),
        owner: Some(caller.actor.id.clone()),
        after: cursor(which.cursor.as_deref())?,
        limit: limit(which.limit)?,
        ..ListQuery::default()
    };
    let page = app.engine().list(&caller.actor, &query).await?;
    let assets = page.records.iter().map(|asset| AssetShape::of(asset)).collect();
    ok(&AssetsShape { assets, next: page.next.map(|next| next.to_string()) })
}

/// Look at a picture's entry
///
/// For its owner and for operators.
#[utoipa::path(
    get, path = "/image/assets/{id}", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The asset's id")),
    responses((status = 200, description = "The entry", body = AssetShape))
)]
async fn get(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    ok(&AssetShape::of(&*seen(&app, &caller, ASSET, id).await?))
}

/// Get a picture
///
/// Its bytes, for its owner and nobody else.
#[utoipa::path(
    get, path = "/image/assets/{id}/image", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The asset's id")),
    responses(
        (status = 200, description = "The picture", content(
            (Vec<u8> = "image/png"), (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/webp"), (Vec<u8> = "application/octet-stream")
        )),
    )
)]
async fn image(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    let asset = seen(&app, &caller, ASSET, id).await?;
    let (name, payload) =
        kept(&asset).filter(|_| asset.owner == caller.actor.id && is_stored(&asset)).ok_or_else(none)?;
    let objects = app.engine().objects().ok_or_else(none)?;
    let reader = objects.get_named(name, &payload).await.map_err(EngineError::from)?.ok_or_else(none)?;
    let mut response = bytes(reader, Some(HeaderValue::from_static(bucket::kind(name)))).await?;
    // No cache between the owner and us keeps it for others.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    Ok(response)
}

fn none() -> Problem {
    Problem::new(404, "not_found", "there is no such picture, or it is not for you")
}

/// The name of a picture in the bucket, and what must be there.
fn kept(asset: &Record) -> Option<(&str, Payload)> {
    let sha256 = hex::decode(asset.text("sha256")?)?;
    let bytes = u64::try_from(asset.int("bytes")?).ok()?;
    Some((asset.text("url")?, Payload { sha256, bytes }))
}

/// Remove a picture
///
/// By its owner: out of the library at once, and out of the bucket as soon as that can be done. What is removed already may be removed again.
#[utoipa::path(
    delete, path = "/image/assets/{id}", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The asset's id")),
    responses((status = 200, description = "It is nobody's to look at any more", body = AssetShape))
)]
async fn remove(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    let mut asset = seen(&app, &caller, ASSET, id).await?;
    if is_stored(&asset) {
        let fired = app.engine().fire(&caller.actor, id, "remove", serde_json::Map::new()).await?;
        asset = fired.record.ok_or_else(Problem::not_found)?;
    } else if asset.owner != caller.actor.id {
        return Err(Problem::not_found());
    }
    ok(&AssetShape::of(&asset))
}
