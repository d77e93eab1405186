//! Parses transitions, the entries of `[[on.…]]`.

use toml::de::DeValue;

use super::ast::{
    DeliverDecl, EventActionDecl, EventDecl, RefusalDecl, RefusalResponse, SpawnDecl, TransferDecl, TransitionDecl,
    WithSpan,
};
use super::declarations::FieldStorage;
use super::toml_reader::{TomlReader, TomlTable};
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};

const TRANSITION_KEYS: [&str; 16] = [
    "go", "by", "when", "refuse", "take", "input", "set", "move", "spawn", "require", "cascade", "deliver", "after",
    "at", "forever", "audit",
];

impl TomlReader<'_> {
    pub(crate) fn read_events(&mut self, top: TomlTable) -> Vec<EventDecl> {
        let Some(on) = self.read_table_at(top, "on", "[on]") else { return Vec::new() };
        self.limit_count(on.entries.len(), bounds::MAX_EVENTS, "too-many-events", on.span, "events in one file");
        let mut remaining_transitions = bounds::MAX_TRANSITIONS;
        let mut total = 0;
        let mut events = Vec::new();
        for (name, node) in on.entries.iter().take(bounds::MAX_EVENTS) {
            let name = self.key(name);
            if !self.validate_name(&name, "an event's name") {
                continue;
            }
            let DeValue::Array(items) = node.get_ref() else {
                self.report(
                    Diagnostic::error(
                        "wrong-kind",
                        name.span(),
                        format!("`{}` must be a list of transitions", name.text),
                    )
                    .label("a single table")
                    .help(format!("write each transition under its own [[on.{}]], with double brackets", name.text)),
                );
                continue;
            };
            total += items.len();
            let mut transitions = Vec::new();
            for item in items.iter().take(remaining_transitions) {
                if let Some(transition) =
                    self.read_table(item, "a transition").and_then(|table| self.read_transition(table))
                {
                    transitions.push(transition);
                }
            }
            remaining_transitions = remaining_transitions.saturating_sub(items.len());
            events.push(EventDecl { name, transitions });
        }
        self.limit_count(total, bounds::MAX_TRANSITIONS, "too-many-transitions", on.span, "transitions in one file");
        events
    }

    fn read_transition(&mut self, table: TomlTable) -> Option<TransitionDecl> {
        let mut allowed = TRANSITION_KEYS.to_vec();
        allowed.push("rule");
        self.allow_only_keys(table, &allowed);
        let go = self.require_key(
            table,
            "go",
            "add `go`: \"A | B -> C\" changes the state, \"A | B\" stays, \"-> A\" creates",
        )?;
        let go = self.read_text(go, "`go`").and_then(|text| self.parse_state_path(&text))?;
        let line = self
            .source
            .get(..table.span.start as usize)
            .map_or(1, |before| before.bytes().filter(|b| *b == b'\n').count() + 1);
        let input = Self::get(table, "input").map(|node| self.span(node));
        Some(TransitionDecl {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            path: go,
            by: self.read_texts_at(table, "by"),
            when: self.read_expression_at(table, "when"),
            refuse: self.read_refusals(table),
            take: self.read_texts_at(table, "take"),
            input: self
                .read_fields_at(table, "input", "`input`", FieldStorage::Transient)
                .zip(input)
                .map(|(value, at)| WithSpan { value, span: at }),
            set: self.read_named_exprs_at(table, "set", "`set`"),
            transfers: self.read_transfers(table),
            spawn: self.read_spawns(table),
            require: self.read_event_actions(table, "require"),
            cascade: self.read_event_actions(table, "cascade"),
            deliver: self.read_deliveries(table),
            after: Self::get(table, "after").and_then(|node| self.read_duration_text(node, "after")),
            at_field: self.read_text_at(table, "at"),
            forever_span: self.read_flag_at(table, "forever"),
            audit: self.read_text_at(table, "audit"),
            rules: self.read_rule_ids(table),
        })
    }

    fn read_refusals(&mut self, transition: TomlTable) -> Vec<RefusalDecl> {
        let mut entries = Vec::new();
        for table in self.read_tables_at(transition, "refuse", "an entry of `refuse`") {
            if self.reject_when_key(table) {
                continue;
            }
            self.allow_only_keys(table, &["if", "as", "audit"]);
            let condition = self.require_key(
                table,
                "if",
                "add `if`: the expression that is true when the operation must be refused",
            );
            let answer =
                self.require_key(table, "as", "add `as`: the status and code, such as \"409 already_claimed\"");
            let (Some(condition), Some(answer)) = (condition, answer) else { continue };
            let condition = self.read_expression(condition, "`if`");
            let answer = self.read_text(answer, "`as`").and_then(|answer| self.parse_response(&answer));
            let (Some(condition), Some(answer)) = (condition, answer) else { continue };
            entries.push(RefusalDecl { condition, response: answer, audit: self.read_text_at(table, "audit") });
        }
        entries
    }

    fn read_transfers(&mut self, transition: TomlTable) -> Vec<TransferDecl> {
        let mut entries = Vec::new();
        for table in self.read_tables_at(transition, "move", "an entry of `move`") {
            self.allow_only_keys(table, &["from", "to", "amount", "short"]);
            let from = self.require_key(
                table,
                "from",
                "name the account that the money comes from; `hold` is the record's own account",
            );
            let to = self.require_key(
                table,
                "to",
                "name the account that the money goes to; `hold` is the record's own account",
            );
            let amount = self.require_key(
                table,
                "amount",
                "add the amount: an expression, or \"rest\" for everything in the hold",
            );
            let (Some(from), Some(to), Some(amount)) = (from, to, amount) else { continue };
            let (from, to) = (self.read_text(from, "`from`"), self.read_text(to, "`to`"));
            let amount = self.read_expression(amount, "`amount`");
            let (Some(from), Some(to), Some(amount)) = (from, to, amount) else { continue };
            entries.push(TransferDecl {
                from,
                to,
                amount,
                shortage_refusal: self.read_response_at(table, "short"),
                span: table.span,
            });
        }
        entries
    }

    fn read_response_at(&mut self, table: TomlTable, key: &str) -> Option<RefusalResponse> {
        let text = self.read_text_at(table, key)?;
        self.parse_response(&text)
    }

    fn read_spawns(&mut self, transition: TomlTable) -> Vec<SpawnDecl> {
        let mut entries = Vec::new();
        for table in self.read_tables_at(transition, "spawn", "an entry of `spawn`") {
            if self.reject_when_key(table) {
                continue;
            }
            self.allow_only_keys(table, &["lifecycle", "if", "fields", "owner", "payload"]);
            let Some(lifecycle) = self.require_key(table, "lifecycle", "name the lifecycle of the new record") else {
                continue;
            };
            let Some(lifecycle) = self.read_text(lifecycle, "`lifecycle`") else { continue };
            let same_payload = self.read_text_at(table, "payload").is_some_and(|text| {
                let same = &*text.text == "same";
                if !same {
                    self.report_only_word(text.span(), "`payload`", "same");
                }
                same
            });
            entries.push(SpawnDecl {
                lifecycle,
                condition: self.read_expression_at(table, "if"),
                fields: self.read_named_exprs_at(table, "fields", "`fields`"),
                owner: self.read_expression_at(table, "owner"),
                same_payload,
                span: table.span,
            });
        }
        entries
    }

    /// Reports an unknown word for a key that accepts only one.
    pub(crate) fn report_only_word(&mut self, span: Span, what: &str, word: &str) {
        self.report(
            Diagnostic::error("unknown-option", span, format!("{what} allows only \"{word}\""))
                .label("unknown")
                .help(format!("write \"{word}\" or remove the key")),
        );
    }

    fn read_event_actions(&mut self, transition: TomlTable, key: &'static str) -> Vec<EventActionDecl> {
        let what = if key == "require" { "an entry of `require`" } else { "an entry of `cascade`" };
        let mut entries = Vec::new();
        for table in self.read_tables_at(transition, key, what) {
            if self.reject_when_key(table) {
                continue;
            }
            self.allow_only_keys(table, &["to", "event", "input", "if"]);
            let to = self.require_key(
                table,
                "to",
                "name the target records: a ref, or a link such as \"links.submissions\"",
            );
            let event = self.require_key(table, "event", "name the event to send");
            let (Some(to), Some(event)) = (to, event) else { continue };
            let (Some(to), Some(event)) = (self.read_expression(to, "`to`"), self.read_text(event, "`event`")) else {
                continue;
            };
            entries.push(EventActionDecl {
                condition: self.read_expression_at(table, "if"),
                to,
                event,
                input: self.read_named_exprs_at(table, "input", "`input`"),
                span: table.span,
            });
        }
        entries
    }

    fn read_deliveries(&mut self, transition: TomlTable) -> Vec<DeliverDecl> {
        let mut entries = Vec::new();
        for table in self.read_tables_at(transition, "deliver", "an entry of `deliver`") {
            if self.reject_when_key(table) {
                continue;
            }
            self.allow_only_keys(table, &["to", "body", "if"]);
            let Some(to) = self.require_key(
                table,
                "to",
                "add the address as an expression, such as \"'https://example.org/hook'\"",
            ) else {
                continue;
            };
            let Some(to) = self.read_expression(to, "`to`") else { continue };
            let body = self.read_named_exprs_at(table, "body", "`body`");
            entries.push(DeliverDecl { condition: self.read_expression_at(table, "if"), to, body, span: table.span });
        }
        entries
    }
}
