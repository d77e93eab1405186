//! Relations between records.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_core::value::RecordId;
use onceward_engine::{RelatedRecord, RelationsQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{PathParams, QueryParams, parse_cursor, validate_limit};
use crate::problem::Problem;
use crate::response::{DisplayText, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(links))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LinksParams {
    /// Only this link.
    name: Option<String>,
    /// The `next` of the previous page. Requires `name`.
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
    /// Maximum number of records per link.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// A record's relations, limited to related records that the caller may see.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Relations)]
struct RelationsJson<'a> {
    /// Records that this record references, by field. Empty if `name` is given.
    refs: BTreeMap<&'a str, Vec<RelatedRecordJson<'a>>>,
    /// Records that reference this one, by the link names of its lifecycle.
    links: BTreeMap<&'a str, RelatedPageJson<'a>>,
}

/// A page of a link.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RelatedPage)]
struct RelatedPageJson<'a> {
    records: Vec<RelatedRecordJson<'a>>,
    /// Cursor of the next page; null on the last page.
    next: Option<String>,
}

/// A related record.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RelatedRecord)]
struct RelatedRecordJson<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: DisplayText<RecordId>,
    lifecycle: &'a str,
    state: &'a str,
}

fn related_records(records: &[RelatedRecord]) -> Vec<RelatedRecordJson<'_>> {
    let shapes = records.iter().map(|RelatedRecord { id, lifecycle, state }| RelatedRecordJson {
        id: DisplayText(*id),
        lifecycle,
        state,
    });
    shapes.collect()
}

/// Get a record's relations
///
/// The records it references and the records that reference it, limited to those that the caller may see. Without
/// `name`, returns the first page of every link.
#[utoipa::path(
    get, path = "/v1/records/{id}/links", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "The record's id"), LinksParams),
    responses((status = 200, description = "Its relations", body = RelationsJson))
)]
async fn links(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    QueryParams(params): QueryParams<LinksParams>,
) -> Result<Response, Problem> {
    if params.cursor.is_some() && params.name.is_none() {
        return Err(Problem::invalid_input("a `cursor` goes with the `name` of its link"));
    }
    let query = RelationsQuery {
        link: params.name.as_deref().map(Arc::from),
        after: parse_cursor(params.cursor.as_deref())?,
        limit: validate_limit(params.limit)?,
    };
    let found = app.engine().relations(&caller.actor, id, &query).await?.ok_or_else(Problem::not_found)?;
    if params.name.is_some() && found.links.is_empty() {
        return Err(Problem::invalid_input("the record's lifecycle has no link of this `name`"));
    }
    let refs = found.refs.iter().map(|(field, records)| (&**field, related_records(records))).collect();
    let links = found.links.iter().map(|(name, page)| {
        (
            &**name,
            RelatedPageJson { records: related_records(&page.records), next: page.next.map(|next| next.to_string()) },
        )
    });
    json_ok(&RelationsJson { refs, links: links.collect() })
}
