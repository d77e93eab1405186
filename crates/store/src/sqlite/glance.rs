//! How a file stands, for who watches it all the time.

use std::sync::Arc;

use onceward_core::time::Time;
use rusqlite::{Connection, Rows, params};

use super::read;
use crate::error::StoreError;
use crate::glance::{COUNTED, ENDS, Glance, Ready, TIMERS};
use crate::names::Known;

const OLDEST: &str = "SELECT r.definition, r.state, min(w.ready_at) FROM \
     (SELECT * FROM (SELECT record, ready_at FROM ready WHERE lifecycle = ?1 ORDER BY rank, record LIMIT ?2) UNION \
     SELECT * FROM (SELECT record, ready_at FROM ready WHERE lifecycle = ?1 ORDER BY rank DESC, record DESC LIMIT ?2)) w \
     JOIN records r ON r.row = w.record WHERE w.ready_at <= ?3 GROUP BY r.definition, r.state";

const READY: &str = "SELECT count(*) FROM (SELECT 1 FROM ready WHERE lifecycle = ?1 AND ready_at <= ?2 LIMIT ?3)";

/// Their time has come, and nobody has looked since.
const LATER: &str = "SELECT r.definition, r.state, min(l.ready_at) FROM \
     (SELECT record, ready_at FROM later WHERE ready_at <= ?1 ORDER BY ready_at, record LIMIT ?2) l \
     JOIN records r ON r.row = l.record GROUP BY r.definition, r.state";

/// Every live lease has a timer for its end, and few other timers are as near.
const LEASES: &str = "SELECT count(*) FROM (SELECT record FROM timers ORDER BY due, record LIMIT ?1) t \
     JOIN records r ON r.row = t.record JOIN executions e ON e.record = r.row AND e.token = r.attempt WHERE e.status < 3";

const OVERDUE: &str =
    "SELECT count(*), min(due) FROM (SELECT due FROM timers WHERE due <= ?1 ORDER BY due, record LIMIT ?2)";

pub(super) fn glance(connection: &Connection, known: &Known, now: Time) -> Result<Glance, StoreError> {
    let mut glance =
        Glance { counts: read::counts_by_state(connection, known, None)?, oldest: Vec::new(), ..Glance::default() };
    let mut statement = connection.prepare_cached(OLDEST)?;
    let mut counting = connection.prepare_cached(READY)?;
    for lifecycle in known.catalog.definitions.lifecycles.keys() {
        let name = known.names.known(lifecycle)?;
        waits(&mut glance, statement.query(params![name, ENDS, now.micros()])?, known)?;
        let jobs: u64 = counting.query_row(params![name, now.micros(), COUNTED], |row| row.get(0))?;
        if jobs > 0 {
            glance.ready.push(Ready { lifecycle: Arc::clone(lifecycle), jobs });
        }
    }
    let mut statement = connection.prepare_cached(LATER)?;
    waits(&mut glance, statement.query(params![now.micros(), ENDS])?, known)?;
    glance.leases = connection.prepare_cached(LEASES)?.query_row([TIMERS], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(OVERDUE)?;
    let overdue = statement.query_row(params![now.micros(), TIMERS], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (count, since): (u64, Option<i64>) = overdue;
    (glance.overdue, glance.overdue_since) = (count, since.map(Time::from_micros));
    glance.oldest.sort_unstable();
    Ok(glance)
}

fn waits(glance: &mut Glance, mut found: Rows, known: &Known) -> Result<(), StoreError> {
    while let Some(row) = found.next()? {
        let version = known.catalog.by_number(row.get(0)?);
        let state: usize = row.get(1)?;
        let fitting = version.and_then(|version| Some((&version.name, &version.states.get(state)?.name)));
        let (lifecycle, state) =
            fitting.ok_or_else(|| StoreError::corrupt("a waiting job does not fit its lifecycle"))?;
        glance.waits(lifecycle, state, Time::from_micros(row.get(2)?));
    }
    Ok(())
}
