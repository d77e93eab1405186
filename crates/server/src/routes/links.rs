//! How a record stands to others.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_core::value::RecordId;
use onceward_engine::{Neighbour, RelationsQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::{Asked, At, cursor, limit};
use crate::problem::Problem;
use crate::shape::{Text, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(links))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
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
struct RelationsShape<'a> {
    /// The records that its own fields name, by field. Left out where one link is asked for.
    refs: BTreeMap<&'a str, Vec<NeighbourShape<'a>>>,
    /// The records that name it, by the names that its lifecycle gives to such links.
    links: BTreeMap<&'a str, LinkedShape<'a>>,
}

/// A page of a link.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Linked)]
struct LinkedShape<'a> {
    records: Vec<NeighbourShape<'a>>,
    /// Where the next page starts; none on the last.
    next: Option<String>,
}

/// A record at the other end.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Neighbour)]
struct NeighbourShape<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: Text<RecordId>,
    lifecycle: &'a str,
    state: &'a str,
}

fn shown(records: &[Neighbour]) -> Vec<NeighbourShape<'_>> {
    let shapes =
        records.iter().map(|Neighbour { id, lifecycle, state }| NeighbourShape { id: Text(*id), lifecycle, state });
    shapes.collect()
}

/// Get a record's relations
///
/// Whom it names in its fields, and who names it, as far as the caller may see what is at the other end. Asked without `name`, of every link the first page comes.
#[utoipa::path(
    get, path = "/v1/records/{id}/links", tag = "records",
    params(("id" = String, Path, format = Uuid, description = "The record's id"), Which),
    responses((status = 200, description = "Its relations", body = RelationsShape))
)]
async fn links(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    Asked(which): Asked<Which>,
) -> Result<Response, Problem> {
    if which.cursor.is_some() && which.name.is_none() {
        return Err(Problem::bad_input("a `cursor` goes with the `name` of its link"));
    }
    let query = RelationsQuery {
        link: which.name.as_deref().map(Arc::from),
        after: cursor(which.cursor.as_deref())?,
        limit: limit(which.limit)?,
    };
    let found = app.engine().relations(&caller.actor, id, &query).await?.ok_or_else(Problem::not_found)?;
    if which.name.is_some() && found.links.is_empty() {
        return Err(Problem::bad_input("the record's lifecycle has no link of this `name`"));
    }
    let refs = found.refs.iter().map(|(field, records)| (&**field, shown(records))).collect();
    let links = found.links.iter().map(|(name, page)| {
        (&**name, LinkedShape { records: shown(&page.records), next: page.next.map(|next| next.to_string()) })
    });
    ok(&RelationsShape { refs, links: links.collect() })
}
