//! Relations between records.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::value::RecordId;
use onceward_engine::{RelatedRecord, RelationsQuery};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{PathParams, QueryParams, parse_cursor, validate_limit};
use crate::problem::Problem;
use crate::response::json_ok;

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

fn related_records(records: &[RelatedRecord]) -> Vec<wire::RelatedRecord> {
    let related = records.iter().map(|RelatedRecord { id, lifecycle, state }| wire::RelatedRecord {
        id: id.0,
        lifecycle: lifecycle.to_string(),
        state: state.to_string(),
    });
    related.collect()
}

/// Get a record's relations
///
/// The records that this record references, and those that reference it, as far as the caller may see them. Without
/// `name`, returns the first page of every link.
#[utoipa::path(
    get, path = "/v1/records/{id}/links", operation_id = "get_record_relations", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "Id of the record"), LinksParams),
    responses((status = 200, description = "The record's relations", body = wire::Relations))
)]
async fn links(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    QueryParams(params): QueryParams<LinksParams>,
) -> Result<Response, Problem> {
    if params.cursor.is_some() && params.name.is_none() {
        return Err(Problem::invalid_input("`cursor` needs the `name` of its link"));
    }
    let query = RelationsQuery {
        link: params.name.as_deref().map(Arc::from),
        after: parse_cursor(params.cursor.as_deref())?,
        limit: validate_limit(params.limit)?,
    };
    let found = app.engine().relations(&caller.actor, id, &query).await?.ok_or_else(Problem::not_found)?;
    if params.name.is_some() && found.links.is_empty() {
        return Err(Problem::invalid_input("`name` is not a link of the record's lifecycle"));
    }
    let refs = found.refs.iter().map(|(field, records)| (field.to_string(), related_records(records)));
    let links = found.links.iter().map(|(name, page)| {
        let next = page.next.map(|next| next.to_string());
        (name.to_string(), wire::RelatedPage { records: related_records(&page.records), next })
    });
    json_ok(&wire::Relations { refs: refs.collect(), links: links.collect() })
}
