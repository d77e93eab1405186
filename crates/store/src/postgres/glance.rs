//! How a database stands, for who watches it all the time.

use std::sync::Arc;

use onceward_core::time::Time;

use super::pipeline::{Pipeline, arg};
use super::rows::{number, size, time, unsigned};
use super::{Inner, read};
use crate::error::StoreError;
use crate::glance::{COUNTED, ENDS, Glance, Ready, TIMERS};

const OLDEST: &str = "SELECT r.definition, r.state, min(w.ready_at) FROM unnest($1::bigint[]) l(id) \
     CROSS JOIN LATERAL ((SELECT record, ready_at FROM onceward.ready WHERE lifecycle = l.id ORDER BY rank, record LIMIT $2) UNION \
     (SELECT record, ready_at FROM onceward.ready WHERE lifecycle = l.id ORDER BY rank DESC, record DESC LIMIT $2)) w \
     JOIN onceward.records r ON r.row = w.record WHERE w.ready_at <= $3 GROUP BY r.definition, r.state";

const READY: &str = "SELECT l.at, (SELECT count(*) FROM \
     (SELECT 1 FROM onceward.ready WHERE lifecycle = l.id AND ready_at <= $2 LIMIT $3) w) \
     FROM unnest($1::bigint[]) WITH ORDINALITY l(id, at)";

/// Their time has come, and nobody has looked since.
const LATER: &str = "SELECT r.definition, r.state, min(l.ready_at) FROM \
     (SELECT record, ready_at FROM onceward.later WHERE ready_at <= $1 ORDER BY ready_at, record LIMIT $2) l \
     JOIN onceward.records r ON r.row = l.record GROUP BY r.definition, r.state";

/// Every live lease has a timer for its end, and few other timers are as near.
const LEASES: &str = "SELECT count(*) FROM (SELECT record FROM onceward.timers ORDER BY due, record LIMIT $1) t \
     JOIN onceward.records r ON r.row = t.record JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt \
     WHERE e.status < 3";

const OVERDUE: &str = "SELECT count(*), min(due) FROM \
     (SELECT due FROM onceward.timers WHERE due <= $1 ORDER BY due, record LIMIT $2) t";

pub(super) async fn glance(inner: &Inner, now: Time) -> Result<Glance, StoreError> {
    let mut glance = Glance { counts: read::counts_by_state(inner, None).await?, ..Glance::default() };
    let known = inner.newest().await?;
    let lifecycles = known.catalog.definitions.lifecycles.keys().map(|name| known.names.known(name));
    let lifecycles = lifecycles.collect::<Result<Vec<i64>, _>>()?;
    let mut pipeline = Pipeline::default();
    let ready = pipeline.add(READY, vec![arg(lifecycles.clone()), arg(now.micros()), arg(size(COUNTED))]);
    let oldest = pipeline.add(OLDEST, vec![arg(lifecycles), arg(size(ENDS)), arg(now.micros())]);
    let later = pipeline.add(LATER, vec![arg(now.micros()), arg(size(ENDS))]);
    let leases = pipeline.add(LEASES, vec![arg(size(TIMERS))]);
    let overdue = pipeline.add(OVERDUE, vec![arg(now.micros()), arg(size(TIMERS))]);
    let answers = inner.run(&pipeline).await?;
    let names: Vec<&Arc<str>> = known.catalog.definitions.lifecycles.keys().collect();
    for row in &answers[ready] {
        // Counted from one.
        let at = usize::try_from(unsigned(row, 0)?).unwrap_or(usize::MAX).wrapping_sub(1);
        let (lifecycle, jobs) = (names.get(at), unsigned(row, 1)?);
        if let (Some(lifecycle), 1..) = (lifecycle, jobs) {
            glance.ready.push(Ready { lifecycle: Arc::clone(lifecycle), jobs });
        }
    }
    let newest = answers[oldest]
        .iter()
        .chain(&answers[later])
        .try_fold(0, |newest, row| number(row, 0).map(|number| number.max(newest)))?;
    let known = inner.known_up_to(newest).await?;
    for row in answers[oldest].iter().chain(&answers[later]) {
        let version = known.catalog.by_number(number(row, 0)?);
        let state = usize::try_from(row.try_get::<_, i16>(1)?).ok();
        let found = version.and_then(|version| Some((&version.name, &version.states.get(state?)?.name)));
        let (lifecycle, state) =
            found.ok_or_else(|| StoreError::corrupt("a waiting job does not fit its lifecycle"))?;
        glance.waits(lifecycle, state, time(row, 2)?);
    }
    if let Some(row) = answers[leases].first() {
        glance.leases = unsigned(row, 0)?;
    }
    if let Some(row) = answers[overdue].first() {
        glance.overdue = unsigned(row, 0)?;
        glance.overdue_since = row.try_get::<_, Option<i64>>(1)?.map(Time::from_micros);
    }
    glance.oldest.sort_unstable();
    glance.ready.sort_unstable();
    Ok(glance)
}
