//! Rows that should be in a table, and were not met when it was read.

use onceward_core::decide::readiness;
use onceward_core::time::Time;
use onceward_store::scan::{At, Known, SEPARATOR, Scan, Table, What, stands};
use onceward_store::{Difference, Kind, StoreError};

use super::seen::Seen;
use super::tables::{kind, rule};
use super::{PAGE, Verify};

/// A table that was read.
pub(super) struct Met {
    pub(super) table: Table,
    /// How far the log went when that began.
    pub(super) since: Option<u64>,
    pub(super) seen: Seen,
}

impl Met {
    pub(super) fn of(table: Table) -> Self {
        Self { table, since: None, seen: Seen::default() }
    }
}

/// Whether a table has at most one row of each record, and none of anything else.
pub(super) const fn is_of_records(table: Table) -> bool {
    matches!(
        table,
        Table::Records | Table::Effects | Table::Queues | Table::Ready | Table::Lanes | Table::Later | Table::Timers
    )
}

impl<S: Scan> Verify<'_, S> {
    /// All tables of records at once; those that miss something. Nothing is told yet.
    pub(super) fn missing_records(&mut self, tables: Vec<Met>) -> Result<Vec<Met>, StoreError> {
        let mut short = vec![false; tables.len()];
        let (mut last, all) = (0, self.scratch.records);
        loop {
            let records = self.scratch.records_after(last, PAGE)?;
            let Some(known) = records.last() else { break };
            last = known.row;
            for known in &records {
                for (met, short) in tables.iter().zip(&mut short) {
                    let is_met = met.seen.has(known.row) || known.entry > met.since.unwrap_or(0);
                    *short |= !is_met && self.stands_in(met.table, known).is_some();
                }
            }
            self.at("missing", last, all);
        }
        Ok(tables.into_iter().zip(short).filter_map(|(met, is_short)| is_short.then_some(met)).collect())
    }

    /// Rows that should be there and were not met; how many. Those that changed while the table was read are left out.
    pub(super) fn missing(&mut self, met: &Met, tell: bool) -> Result<u64, StoreError> {
        let (since, mut missing) = (met.since.unwrap_or(0), 0);
        let mut last = 0;
        loop {
            let rows = self.rows_after(met.table, last)?;
            let Some((row, ..)) = rows.last() else { break };
            last = *row;
            for (row, stands, born) in rows {
                let Some((table, at)) = stands.filter(|_| !met.seen.has(row)) else { continue };
                if born > since {
                    self.report.too_young += u64::from(tell);
                    continue;
                }
                missing += 1;
                if tell {
                    let difference = Difference::new(table.name(), at, What::Missing);
                    self.found(Difference { rule: rule(table), ..difference });
                }
            }
        }
        Ok(missing)
    }

    /// Rows of the scratch after a number: what each stands for in which table, if it stands for something, and since when.
    fn rows_after(&mut self, table: Table, last: u64) -> Result<Vec<Expected>, StoreError> {
        if let Some(kind) = kind(table) {
            let rows = self.scratch.keyed_after(kind, last, PAGE)?.into_iter();
            return Ok(rows
                .map(|row| {
                    // A row that counts nothing may as well not be there.
                    let counts = match (kind, row.value.as_deref()) {
                        (_, None) => false,
                        (Kind::Count, Some(_)) if self.is_of_an_ended_window(&row.at) => false,
                        (Kind::Count | Kind::Tally | Kind::Reference, Some(value)) => value != "0",
                        _ => true,
                    };
                    (row.row, counts.then_some((table, row.at)), row.born)
                })
                .collect());
        }
        Ok(match table {
            Table::Counter | Table::Pruned | Table::KeyChanges => {
                vec![(1, Some((table, At::Key("1".to_owned()))), 0)].into_iter().filter(|_| last == 0).collect()
            }
            Table::Executions => {
                let rows = self.scratch.executions_after(last, PAGE)?.into_iter();
                rows.map(|row| (row.row, Some((table, row.at)), row.born)).collect()
            }
            Table::Entries => {
                let rows = self.scratch.moved_after(last, PAGE)?.into_iter();
                rows.map(|row| (row.row, Some((table, row.at)), row.born)).collect()
            }
            Table::Links => {
                let rows = self.scratch.links_after(last, PAGE)?.into_iter();
                rows.map(|row| (row.row, Some((table, row.at)), row.born)).collect()
            }
            _ => {
                let rows = self.scratch.records_after(last, PAGE)?.into_iter();
                rows.map(|known| {
                    let at = |table| (table, At::Record(known.record.id));
                    (known.row, self.stands_in(table, &known).map(at), known.entry)
                })
                .collect()
            }
        })
    }

    /// Whether a count is of a window of a limit `per` a time that is over: it may be pruned, and nobody asks for it.
    fn is_of_an_ended_window(&self, at: &At) -> bool {
        let At::Key(key) = at else { return false };
        let window = key.rsplit(SEPARATOR).next().and_then(|window| window.parse().ok());
        let lifecycles = self.scratch.catalog().lifecycles();
        let limits = lifecycles.values().flat_map(|lifecycle| &lifecycle.limits);
        let Some(longest) = limits.filter_map(|limit| limit.per).max() else { return false };
        let end = window.and_then(|window| Time::from_micros(window).checked_add(longest));
        end.is_some_and(|end| end <= self.now.max(self.latest))
    }

    /// The table that must have a row of a record, where it is this one, or where the record should still wait for its time before it
    /// stands in this one. In `ready` that is not known of jobs with a work key: their lane says it.
    fn stands_in(&self, table: Table, known: &Known) -> Option<Table> {
        if known.lost {
            return None;
        }
        if !stands(table, known) {
            return None;
        }
        let (Table::Ready | Table::Lanes, Some(waiting)) = (table, readiness(&known.record)) else {
            return Some(table);
        };
        if waiting.from > self.now.max(self.latest) {
            return ((table == Table::Lanes) == waiting.key.is_some()).then_some(Table::Later);
        }
        (table == Table::Lanes || waiting.key.is_none()).then_some(table)
    }
}

/// A row that should be there: its number in the scratch, what it stands for in which table, if it does, and since when.
type Expected = (u64, Option<(Table, At)>, u64);
