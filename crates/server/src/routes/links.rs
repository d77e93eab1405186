//! How a record stands to others.

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
use crate::extract::{PathParams, QueryParams, parse_cursor, parse_limit};
use crate::problem::Problem;
use crate::response::{DisplayText, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(links))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LinksParams {
    /// Only the link of this name, page by page.
    name: Option<String>,
    /// The `next` of the page before, with its `name`.
    #[param(pattern = "^[0-9]{1,19}$")]
    cursor: Option<String>,
    /// Records of each link at most.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// A record's relations, as far as the caller may see what is at their other end.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Relations)]
struct RelationsJson<'a> {
    /// The records that its own fields name, by field. Left out where one link is asked for.
    refs: BTreeMap<&'a str, Vec<RelatedRecordJson<'a>>>,
    /// The records that name it, by the names that its lifecycle gives to such links.
    links: BTreeMap<&'a str, RelatedPageJson<'a>>,
}

/// A page of a link.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RelatedPage)]
struct RelatedPageJson<'a> {
    records: Vec<RelatedRecordJson<'a>>,
    /// Where the next page starts; none on the last.
    next: Option<String>,
}

/// A record at the other end.
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
/// Whom it names in its fields, and who names it, as far as the caller may see what is at the other end. Asked without `name`, of every link the first page comes.
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
        return Err(Problem::bad_input("a `cursor` goes with the `name` of its link"));
    }
    let query = RelationsQuery {
        link: params.name.as_deref().map(Arc::from),
        after: parse_cursor(params.cursor.as_deref())?,
        limit: parse_limit(params.limit)?,
    };
    let found = app.engine().relations(&caller.actor, id, &query).await?.ok_or_else(Problem::not_found)?;
    if params.name.is_some() && found.links.is_empty() {
        return Err(Problem::bad_input("the record's lifecycle has no link of this `name`"));
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
