//! Rows: what stands under `[[on.…]]`.

use toml::de::DeValue;

use super::ast::{Answer, At, Cause, Deliver, Event, Move, Refuse, Row, Spawn};
use super::declarations::Kept;
use super::read::{Reader, Table};
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};

const ROW_KEYS: [&str; 16] = [
    "go", "by", "when", "refuse", "take", "input", "set", "move", "spawn", "require", "cascade", "deliver", "after",
    "at", "forever", "audit",
];

impl Reader<'_> {
    pub(crate) fn events_of(&mut self, top: Table) -> Vec<Event> {
        let Some(on) = self.table_at(top, "on", "[on]") else { return Vec::new() };
        self.at_most(on.entries.len(), bounds::EVENTS, "too-many-events", on.at, "events in one file");
        let mut left = bounds::ROWS;
        let mut total = 0;
        let mut events = Vec::new();
        for (name, node) in on.entries.iter().take(bounds::EVENTS) {
            let name = self.key(name);
            if !self.name(&name, "an event's name") {
                continue;
            }
            let DeValue::Array(items) = node.get_ref() else {
                self.report(
                    Diagnostic::error("wrong-kind", name.at(), format!("`{}` must be a list of rows", name.text))
                        .label("this is a single table")
                        .help(format!("write each row under its own [[on.{}]], with double brackets", name.text)),
                );
                continue;
            };
            total += items.len();
            let mut rows = Vec::new();
            for item in items.iter().take(left) {
                if let Some(row) = self.table(item, "a row").and_then(|table| self.row(table)) {
                    rows.push(row);
                }
            }
            left = left.saturating_sub(items.len());
            events.push(Event { name, rows });
        }
        self.at_most(total, bounds::ROWS, "too-many-rows", on.at, "rows in one file");
        events
    }

    fn row(&mut self, table: Table) -> Option<Row> {
        let mut allowed = ROW_KEYS.to_vec();
        allowed.push("rule");
        self.only(table, &allowed);
        let go = self.required(table, "go", "add `go`: \"A | B -> C\" moves, \"A | B\" stays, \"-> A\" creates")?;
        let go = self.text(go, "`go`").and_then(|text| self.go(&text))?;
        let line = self
            .source
            .get(..table.at.start as usize)
            .map_or(1, |before| before.bytes().filter(|b| *b == b'\n').count() + 1);
        let input = Self::get(table, "input").map(|node| self.span(node));
        Some(Row {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            go,
            by: self.texts_at(table, "by"),
            when: self.expression_at(table, "when"),
            refuse: self.refuse(table),
            take: self.texts_at(table, "take"),
            input: self
                .fields_at(table, "input", "`input`", Kept::PassingBy)
                .zip(input)
                .map(|(value, at)| At { value, at }),
            set: self.given_at(table, "set", "`set`"),
            moves: self.moves(table),
            spawn: self.spawn(table),
            require: self.causes(table, "require"),
            cascade: self.causes(table, "cascade"),
            deliver: self.deliver(table),
            after: Self::get(table, "after").and_then(|node| self.duration_text(node, "after")),
            until: self.text_at(table, "at"),
            forever: self.flag(table, "forever"),
            audit: self.text_at(table, "audit"),
            rules: self.rules(table),
        })
    }

    fn refuse(&mut self, row: Table) -> Vec<Refuse> {
        let mut entries = Vec::new();
        for table in self.tables_at(row, "refuse", "an entry of `refuse`") {
            if self.when_for_if(table) {
                continue;
            }
            self.only(table, &["if", "as", "audit"]);
            let condition =
                self.required(table, "if", "add `if`: the expression that is true when the operation must be refused");
            let answer = self.required(table, "as", "add `as`: the answer, as \"409 already_claimed\"");
            let (Some(condition), Some(answer)) = (condition, answer) else { continue };
            let condition = self.expression(condition, "`if`");
            let answer = self.text(answer, "`as`").and_then(|answer| self.answer(&answer));
            let (Some(condition), Some(answer)) = (condition, answer) else { continue };
            entries.push(Refuse { condition, answer, audit: self.text_at(table, "audit") });
        }
        entries
    }

    fn moves(&mut self, row: Table) -> Vec<Move> {
        let mut entries = Vec::new();
        for table in self.tables_at(row, "move", "an entry of `move`") {
            self.only(table, &["from", "to", "amount", "short"]);
            let from =
                self.required(table, "from", "name the account the money comes from; `hold` is the record's own");
            let to = self.required(table, "to", "name the account the money goes to; `hold` is the record's own");
            let amount =
                self.required(table, "amount", "say how much: an expression, or \"rest\" for all that is in the hold");
            let (Some(from), Some(to), Some(amount)) = (from, to, amount) else { continue };
            let (from, to) = (self.text(from, "`from`"), self.text(to, "`to`"));
            let amount = self.expression(amount, "`amount`");
            let (Some(from), Some(to), Some(amount)) = (from, to, amount) else { continue };
            entries.push(Move { from, to, amount, short: self.answer_at(table, "short"), at: table.at });
        }
        entries
    }

    fn answer_at(&mut self, table: Table, key: &str) -> Option<Answer> {
        let text = self.text_at(table, key)?;
        self.answer(&text)
    }

    fn spawn(&mut self, row: Table) -> Vec<Spawn> {
        let mut entries = Vec::new();
        for table in self.tables_at(row, "spawn", "an entry of `spawn`") {
            if self.when_for_if(table) {
                continue;
            }
            self.only(table, &["lifecycle", "if", "fields", "owner", "payload"]);
            let Some(lifecycle) = self.required(table, "lifecycle", "name the lifecycle of the new record") else {
                continue;
            };
            let Some(lifecycle) = self.text(lifecycle, "`lifecycle`") else { continue };
            let same_payload = self.text_at(table, "payload").is_some_and(|text| {
                let same = &*text.text == "same";
                if !same {
                    self.only_word(text.at(), "`payload`", "same");
                }
                same
            });
            entries.push(Spawn {
                lifecycle,
                condition: self.expression_at(table, "if"),
                fields: self.given_at(table, "fields", "`fields`"),
                owner: self.expression_at(table, "owner"),
                same_payload,
                at: table.at,
            });
        }
        entries
    }

    /// A key that knows one word only.
    pub(crate) fn only_word(&mut self, at: Span, what: &str, word: &str) {
        self.report(
            Diagnostic::error("unknown-word", at, format!("{what} knows only one word: \"{word}\""))
                .label("not known here")
                .help(format!("write \"{word}\" or leave the key out")),
        );
    }

    fn causes(&mut self, row: Table, key: &'static str) -> Vec<Cause> {
        let what = if key == "require" { "an entry of `require`" } else { "an entry of `cascade`" };
        let mut entries = Vec::new();
        for table in self.tables_at(row, key, what) {
            if self.when_for_if(table) {
                continue;
            }
            self.only(table, &["to", "event", "input", "if"]);
            let to = self.required(table, "to", "say which records: a ref, or a link, as \"links.submissions\"");
            let event = self.required(table, "event", "name the event they are sent");
            let (Some(to), Some(event)) = (to, event) else { continue };
            let (Some(to), Some(event)) = (self.expression(to, "`to`"), self.text(event, "`event`")) else { continue };
            entries.push(Cause {
                condition: self.expression_at(table, "if"),
                to,
                event,
                input: self.given_at(table, "input", "`input`"),
                at: table.at,
            });
        }
        entries
    }

    fn deliver(&mut self, row: Table) -> Vec<Deliver> {
        let mut entries = Vec::new();
        for table in self.tables_at(row, "deliver", "an entry of `deliver`") {
            if self.when_for_if(table) {
                continue;
            }
            self.only(table, &["to", "body", "if"]);
            let Some(to) =
                self.required(table, "to", "give the address as an expression, as \"'https://example.org/hook'\"")
            else {
                continue;
            };
            let Some(to) = self.expression(to, "`to`") else { continue };
            let body = self.given_at(table, "body", "`body`");
            entries.push(Deliver { condition: self.expression_at(table, "if"), to, body, at: table.at });
        }
        entries
    }
}
