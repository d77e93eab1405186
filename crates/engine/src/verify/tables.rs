//! Each table held against what the log says, in both directions.

use onceward_core::decide::readiness;
use onceward_core::hex;
use onceward_core::model::WorkKey;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::scan::{
    At, Beside, Cell, Columns, Kept, Known, MANY, Scan, Table, What, effect_columns, execution_columns, expected,
    key_columns,
};
use onceward_store::{Difference, Keyed, Kind, Standing, StoreError};
use sha2::{Digest, Sha256};

use super::missing::{Met, is_of_records};
use super::seen::Seen;
use super::{PAGE, Stop, Verify};

/// How often a table is read before a row is called missing. A heartbeat may carry a row from before the reader to behind it
/// without a word in the log; twice in a row it would have to be very unlucky.
const ROUNDS: usize = 3;

/// No lease is longer.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl<S: Scan> Verify<'_, S> {
    /// Every table, and what is missing in it.
    pub(super) async fn tables(&mut self) -> Result<(), Stop> {
        let mut of_records = Vec::new();
        for table in self.store.tables() {
            let mut met = Met::of(*table);
            self.read(&mut met, true).await?;
            if is_of_records(*table) {
                // All of them are asked of each record once, at the end: reading a record back takes longer than a row.
                of_records.push(met);
            } else if self.missing(&met, false)? > 0 {
                self.again(met).await?;
            }
        }
        for met in self.missing_records(of_records)? {
            self.again(met).await?;
        }
        Ok(())
    }

    /// Something was missing: it may have gone from before the reader to behind it.
    async fn again(&mut self, mut met: Met) -> Result<(), Stop> {
        for round in 2..=ROUNDS {
            self.read(&mut met, false).await?;
            if self.missing(&met, round == ROUNDS)? == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn read(&mut self, met: &mut Met, is_first: bool) -> Result<(), Stop> {
        // Whoever waits for its time stands in `later`, and is put where it belongs at any moment after that, without a word in the
        // log: first there, then here, it is met once at least.
        if matches!(met.table, Table::Ready | Table::Lanes) {
            let tell = is_first && met.table == Table::Ready;
            self.pages(Table::Later, &mut met.since, &mut met.seen, tell).await?;
        }
        self.pages(met.table, &mut met.since, &mut met.seen, is_first).await
    }

    /// All rows of a table. What is wrong with them is told once, and they are counted once.
    async fn pages(&mut self, table: Table, since: &mut Option<u64>, seen: &mut Seen, tell: bool) -> Result<(), Stop> {
        let mut cursor = None;
        let mut done = 0;
        loop {
            let page = self.store.scan(table, cursor, PAGE).await?;
            self.catch_up(page.seq).await?;
            since.get_or_insert(page.seq);
            done += u64::try_from(page.rows.len()).unwrap_or(0);
            for row in page.rows {
                self.row(table, &row, page.seq, seen, tell)?;
            }
            self.at(table.name(), done, self.about(table));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        self.report.rows += if tell { done } else { 0 };
        Ok(())
    }

    /// One row as it is kept. What is wrong with it is told once, in the first round.
    fn row(&mut self, table: Table, row: &Kept, seq: u64, seen: &mut Seen, tell: bool) -> Result<(), StoreError> {
        let mut wrong = Vec::new();
        match &row.at {
            At::Record(id) if table == Table::Effects => self.of_effect(*id, row, seen, &mut wrong)?,
            At::Record(id) => self.of_record(table, *id, row, seen, (tell, &mut wrong))?,
            At::Execution(id, token) => self.of_execution(*id, *token, row, seen, &mut wrong)?,
            At::Link { target, name, source } => match self.scratch.link(*target, name, *source)? {
                Some(link) => seen.mark(link.row),
                None => wrong.push(What::Extra),
            },
            At::Key(key) => self.of_key(table, key, row, seq, seen, &mut wrong)?,
            At::Nobody(_) => wrong.push(What::Extra),
        }
        if tell {
            for what in wrong {
                self.found(Difference { rule: rule(table), ..Difference::new(table.name(), &row.at, what) });
            }
        }
        Ok(())
    }

    fn of_record(
        &mut self,
        table: Table,
        id: RecordId,
        row: &Kept,
        seen: &mut Seen,
        (tell, wrong): (bool, &mut Vec<What>),
    ) -> Result<(), StoreError> {
        let Some(known) = self.scratch.known(id)? else {
            wrong.push(What::Extra);
            return Ok(());
        };
        seen.mark(known.row);
        if known.lost {
            return Ok(());
        }
        let Some(told) = expected(table, &known, self.scratch.catalog(), row.beside) else {
            wrong.push(What::Extra);
            return Ok(());
        };
        let mut told = told;
        if let Some((_, number)) =
            told.iter_mut().find(|(name, _)| *name == "row" && self.scratch.standing().checkpoint > 0)
        {
            // Where records are gone, those that stay keep their numbers: none has a smaller one than it has a place.
            let kept = row.columns.iter().find(|(name, _)| *name == "row").and_then(|(_, kept)| kept.clone());
            if kept.as_deref().and_then(|kept| kept.parse().ok()).is_some_and(|kept: u64| kept >= known.row) {
                *number = kept;
            }
        }
        compare(&row.columns, &told, wrong);
        // Entries are found by the record's id, and the hash is of it too.
        if table == Table::Records && !known.vouched {
            wrong.push(What::Broken("no entry of its log carries a hash that fits its id".to_owned()));
        }
        match row.beside {
            Beside::Front(false) => {
                wrong.push(What::Broken("it stands in `ready`, and not in front of its work key's lane".to_owned()));
            }
            Beside::Lane { front, ready, better } => {
                // The two disagree, and which of them is right nobody knows: both are named.
                if front != i64::from(ready) {
                    wrong.push(differs("front", front, i64::from(ready)));
                    if tell && !ready {
                        let ready = Difference::new(Table::Ready.name(), &row.at, What::Missing);
                        self.found(Difference { rule: rule(Table::Ready), ..ready });
                    }
                } else if front == 0 && self.is_held_back(&known, better)? {
                    wrong.push(What::Broken("it stands at the back of its lane, and nobody is before it".to_owned()));
                }
            }
            Beside::Twice(true) => {
                wrong.push(What::Broken("it waits for its time, and is handed out already".to_owned()));
            }
            Beside::Nothing | Beside::Front(true) | Beside::Twice(false) | Beside::Lease(_) => {}
        }
        if let Some((_, Some(links))) = row.columns.iter().find(|(name, _)| *name == "links") {
            let (least, most) = (known.linked, known.raised);
            if !links.parse().is_ok_and(|links: u64| (least..=most).contains(&links)) {
                wrong.push(differs("links", links, format!("{least} to {most}")));
            }
        }
        Ok(())
    }

    fn of_effect(
        &mut self,
        id: RecordId,
        row: &Kept,
        seen: &mut Seen,
        wrong: &mut Vec<What>,
    ) -> Result<(), StoreError> {
        let Some(known) = self.scratch.brief(id)? else {
            wrong.push(What::Extra);
            return Ok(());
        };
        seen.mark(known.row);
        match &known.effect {
            _ if known.lost => {}
            Some(effect) => compare(&row.columns, &effect_columns(effect), wrong),
            None => wrong.push(What::Extra),
        }
        Ok(())
    }

    /// Whether a job that stands at the back of its lane should stand in front: there is room for one more than those before it.
    fn is_held_back(&mut self, known: &Known, better: u64) -> Result<bool, StoreError> {
        let Some(key) = readiness(&known.record).and_then(|waiting| waiting.key) else { return Ok(false) };
        let same = |key: &WorkKey| (key.ordered, key.limit);
        let own = known.record.lifecycle.work.as_ref().and_then(|work| work.key.as_ref()).map(same);
        let current = self.scratch.catalog().definitions.get(&key.lifecycle);
        let current = current.and_then(|lifecycle| lifecycle.work.as_ref()?.key.as_ref()).map(same);
        // Where versions share a key in different ways, who stands in front is a guess, and `decide` has the last word.
        let (Some((ordered, limit)), true) = (own, own == current) else { return Ok(false) };
        if ordered {
            let first = self.scratch.first_of(&key)?;
            return Ok(first.first().is_some_and(|(_, id)| *id == known.record.id));
        }
        let count = onceward_core::decide::CountKey {
            lifecycle: key.lifecycle,
            limit: "work.key".into(),
            parts: key.parts,
            window: None,
        };
        let running = u64::try_from(self.scratch.count(&count)?).unwrap_or(0);
        Ok(better < MANY && limit.is_none_or(|limit| better < u64::from(limit).saturating_sub(running)))
    }

    fn of_execution(
        &mut self,
        id: RecordId,
        token: i64,
        row: &Kept,
        seen: &mut Seen,
        wrong: &mut Vec<What>,
    ) -> Result<(), StoreError> {
        let Some(known) = self.scratch.brief(id)? else {
            wrong.push(What::Extra);
            return Ok(());
        };
        let execution = match self.scratch.execution(known.row, id, token)? {
            Some(Keyed { row, value, .. }) => {
                seen.mark(row);
                value
            }
            None if known.lost => return Ok(()),
            None => {
                wrong.push(What::Extra);
                return Ok(());
            }
        };
        if known.lost {
            return Ok(());
        }
        let mut kept = row.columns.clone();
        if execution.status.is_live() {
            let ends = kept.iter().position(|(name, _)| *name == "expires_at");
            let ends = ends.and_then(|at| kept.remove(at).1).and_then(|ends| ends.parse::<i64>().ok());
            let least = execution.expires_at;
            let most = self.now.max(self.latest).checked_add(DAY).unwrap_or(Time::MAX).max(least);
            if !ends.is_some_and(|ends| (least.micros()..=most.micros()).contains(&ends)) {
                let told = format!("{} or later, and at most {}", least.micros(), most.micros());
                wrong.push(differs("expires_at", ends.unwrap_or_default(), told));
            }
        }
        compare(&kept, &execution_columns(&execution), wrong);
        Ok(())
    }

    fn of_key(
        &mut self,
        table: Table,
        key: &str,
        row: &Kept,
        seq: u64,
        seen: &mut Seen,
        wrong: &mut Vec<What>,
    ) -> Result<(), StoreError> {
        if table == Table::Counter {
            seen.mark(1);
            compare(&row.columns, &vec![("one", cell(1)), ("seq", cell(seq))], wrong);
            return Ok(());
        }
        if table == Table::Pruned {
            seen.mark(1);
            let Standing { checkpoint, head, floor } = *self.scratch.standing();
            let head = hex::encode(&head);
            let told =
                [("one", cell(1)), ("checkpoint", cell(checkpoint)), ("floor", cell(floor)), ("head", cell(head))];
            compare(&row.columns, &told.to_vec(), wrong);
            return Ok(());
        }
        if table == Table::Entries {
            match self.scratch.moved(key)? {
                Some(moved) => seen.mark(moved.row),
                None => wrong.push(What::Extra),
            }
            return Ok(());
        }
        if table == Table::KeyChanges {
            seen.mark(1);
            compare(&row.columns, &vec![("one", cell(1)), ("changes", cell(self.scratch.key_changes))], wrong);
            return Ok(());
        }
        let Some(kind) = kind(table) else { return Ok(()) };
        let kept = self.scratch.keyed(kind, key)?;
        if let Some(kept) = &kept {
            seen.mark(kept.row);
        }
        let value = kept.and_then(|kept| kept.value);
        let told: Columns = match (table, value) {
            (Table::Contents, refs) => {
                // Whether what a caller named ever came is not in the log; what an operation made itself was there.
                let none = hex::encode(&Sha256::digest(b""));
                let made = self.scratch.keyed(Kind::Content, key)?.is_some();
                let has_come = made || row.columns.first().is_none_or(|(_, bytes)| bytes.as_deref() != Some(&none));
                let bytes = if has_come { key.to_owned() } else { none };
                vec![("bytes", cell(bytes)), ("refs", cell(refs.unwrap_or_else(|| "0".to_owned())))]
            }
            // PostgreSQL locks a work key by its count, so that there is one also where nothing ran yet.
            (Table::Counts, None) if key.contains("work.key") && row.columns == [("count", cell(0))] => return Ok(()),
            (_, None) => {
                wrong.push(What::Extra);
                return Ok(());
            }
            (Table::ApiKeys, Some(_)) => match self.scratch.api_key(key)? {
                Some(known) => key_columns(&known),
                None => Columns::new(),
            },
            (Table::Uniques, Some(holder)) => vec![("holder", cell(holder))],
            (Table::Accounts, Some(balance)) => {
                let (asset, name) = key.split_once(onceward_store::scan::SEPARATOR).unwrap_or((key, ""));
                let outside = self.scratch.catalog().ever_outside(asset, name);
                vec![("outside", cell(u8::from(outside))), ("balance", cell(balance))]
            }
            (_, Some(count)) => vec![("count", cell(count))],
        };
        compare(&row.columns, &told, wrong);
        Ok(())
    }
}

/// The rows with keys that a table keeps.
pub(super) const fn kind(table: Table) -> Option<Kind> {
    match table {
        Table::Uniques => Some(Kind::Unique),
        Table::Counts => Some(Kind::Count),
        Table::Accounts => Some(Kind::Account),
        Table::Tallies => Some(Kind::Tally),
        Table::Contents => Some(Kind::Reference),
        Table::ApiKeys => Some(Kind::ApiKey),
        _ => None,
    }
}

/// What does not hold when a table is wrong.
pub(super) const fn rule(table: Table) -> Option<&'static str> {
    match table {
        Table::Effects => Some("INV-1"),
        Table::Records | Table::Executions => Some("INV-3"),
        // Whoever waits is found, and what is due is done.
        Table::Queues | Table::Ready | Table::Lanes | Table::Later | Table::Timers => Some("INV-4"),
        Table::Counts | Table::Accounts | Table::Entries => Some("INV-7"),
        Table::ApiKeys | Table::KeyChanges => Some("INV-8"),
        _ => None,
    }
}

fn compare(kept: &Columns, told: &Columns, wrong: &mut Vec<What>) {
    for (column, kept) in kept {
        if *column == "links" {
            continue;
        }
        let told = told.iter().find(|(name, _)| name == column).map(|(_, told)| told);
        if told != Some(kept) && !is_hash_of(kept, told) {
            wrong.push(What::Differs { column, kept: kept.clone(), told: told.cloned().flatten() });
        }
    }
}

/// A store whose indexes take no long text keeps a long key as its hash.
fn is_hash_of(kept: &Cell, told: Option<&Cell>) -> bool {
    let (Some(kept), Some(Some(told))) = (kept, told) else { return false };
    kept.strip_prefix('#').is_some_and(|hash| hash == hex::encode(&Sha256::digest(told.as_bytes())))
}

fn differs(column: &'static str, kept: impl ToString, told: impl ToString) -> What {
    What::Differs { column, kept: cell(kept), told: cell(told) }
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    reason = "a column may be nothing; numbers are copied"
)]
fn cell(value: impl ToString) -> Cell {
    Some(value.to_string().into())
}
