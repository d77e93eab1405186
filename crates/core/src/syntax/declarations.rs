//! Everything that a file declares besides its rows.

use toml::de::DeValue;

use super::ast::{
    At, Check, Clash, Errors, Field, Limit, Link, Literal, Lookup, Payload, Ready, State, Text, Unique, Who, Work,
    WorkKey,
};
use super::read::{Node, Reader, Table};
use crate::bounds;
use crate::diagnostic::Diagnostic;

/// Where a field declaration stands decides which keys it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// `[fields]`: kept with the record.
    InRecord,
    /// An input, a result, an answer: passes by.
    PassingBy,
}

impl Reader<'_> {
    /// The entries of a top-level table, names checked and counted.
    fn named<'t>(
        &mut self,
        top: Table<'t>,
        key: &str,
        what: &'static str,
        bound: (usize, &'static str),
    ) -> Vec<(Text, &'t Node<'t>)> {
        let Some(table) = self.table_at(top, key, what) else { return Vec::new() };
        self.entries(table, what, bound)
    }

    fn entries<'t>(
        &mut self,
        table: Table<'t>,
        what: &str,
        (bound, code): (usize, &'static str),
    ) -> Vec<(Text, &'t Node<'t>)> {
        self.at_most(table.entries.len(), bound, code, table.at, &format!("entries in {what}"));
        let mut entries = Vec::new();
        for (name, node) in table.entries.iter().take(bound) {
            let name = self.key(name);
            if self.name(&name, &format!("a name in {what}")) {
                entries.push((name, node));
            }
        }
        entries
    }

    pub(crate) fn states_of(&mut self, top: Table) -> Vec<State> {
        let mut states = Vec::new();
        for (name, node) in self.named(top, "states", "[states]", (bounds::STATES, "too-many-states")) {
            let Some(table) = self.table(node, "a state") else { continue };
            self.only(table, &["about", "ready", "final", "rest", "reserved", "rule"]);
            let ready = Self::get(table, "ready").and_then(|node| match node.get_ref() {
                DeValue::Boolean(false) => None,
                DeValue::Boolean(true) => Some(Ready::Yes(self.span(node))),
                _ => self.text(node, "`ready`").map(Ready::From),
            });
            states.push(State {
                name,
                about: self.text_at(table, "about"),
                ready,
                is_final: self.flag(table, "final"),
                rest: self.flag(table, "rest"),
                reserved: self.flag(table, "reserved"),
                rules: self.rules(table),
            });
        }
        states
    }

    pub(crate) fn fields_at(&mut self, top: Table, key: &str, what: &'static str, kept: Kept) -> Option<Vec<Field>> {
        let table = self.table_at(top, key, what)?;
        let entries = self.entries(table, what, (bounds::FIELDS, "too-many-fields"));
        Some(entries.into_iter().filter_map(|(name, node)| self.field(name, node, kept)).collect())
    }

    fn field(&mut self, name: Text, node: &Node, kept: Kept) -> Option<Field> {
        if matches!(node.get_ref(), DeValue::String(_)) {
            let ty = self.text(node, "a type")?;
            return Some(Field {
                name,
                about: None,
                ty,
                short: true,
                values: None,
                of: None,
                to: None,
                optional: false,
                default: None,
                constant: None,
                min: None,
                max: None,
                pattern: None,
            });
        }
        let table = self.table(node, "a field")?;
        match kept {
            Kept::InRecord => self.only(
                table,
                &["type", "about", "enum", "of", "to", "optional", "default", "const", "min", "max", "pattern"],
            ),
            Kept::PassingBy => self.only_passing(&name, table),
        }
        let ty = self
            .required(
                table,
                "type",
                "add `type`, one of string, int, double, bool, time, duration, list, json, ref, refs",
            )
            .and_then(|node| self.text(node, "`type`"))?;
        let (min, max) = (self.bound_at(table, "min", &ty.text), self.bound_at(table, "max", &ty.text));
        Some(Field {
            name,
            about: self.text_at(table, "about"),
            ty,
            short: false,
            values: self.texts_at(table, "enum"),
            of: self.text_at(table, "of"),
            to: self.texts_at(table, "to"),
            optional: self.flag(table, "optional").is_some(),
            default: self.literal_at(table, "default"),
            constant: self.literal_at(table, "const"),
            min,
            max,
            pattern: self.pattern_at(table),
        })
    }

    /// What passes by is not kept, so it starts with nothing.
    fn only_passing(&mut self, name: &Text, table: Table) {
        const KEYS: [&str; 9] = ["type", "about", "enum", "of", "to", "optional", "min", "max", "pattern"];
        const KEPT: [&str; 2] = ["default", "const"];
        let kept = table.entries.iter().filter(|(key, _)| KEPT.contains(&&**key.get_ref()));
        for (key, _) in kept {
            let (at, key) = (self.span(key), key.get_ref());
            let name = &name.text;
            self.report(
                Diagnostic::error("unknown-key", at, format!("`{name}` only passes by: it has no `{key}`"))
                    .label("only what a record keeps has one")
                    .help(if key == "default" {
                        "write optional = true, and say where it is read what stands in: x == null ? … : x\n\
                         or declare a field with that `default` in [fields] and let the row `take` it"
                    } else {
                        "leave it out, and write the value where it is read"
                    }),
            );
        }
        self.only_besides(table, &KEYS, |key| KEPT.contains(&key));
    }

    /// `min` and `max`: a number, a size, which becomes one, or a duration where the field is one.
    fn bound_at(&mut self, table: Table, key: &str, ty: &str) -> Option<At<Literal>> {
        if ty == "duration" {
            let text = Self::get(table, key).and_then(|node| self.duration_text(node, key))?;
            return Some(At { value: Literal::Duration(self.length(&text)?), at: text.at() });
        }
        let At { value, at } = self.literal_at(table, key)?;
        match value {
            Literal::Text(text) => {
                let size = self.size(&text)?;
                Some(At { value: Literal::Int(i64::try_from(size).unwrap_or(i64::MAX)), at })
            }
            value => Some(At { value, at }),
        }
    }

    pub(crate) fn links_of(&mut self, top: Table) -> Vec<Link> {
        let mut links = Vec::new();
        for (name, node) in self.named(top, "links", "[links]", (bounds::ENTRIES, "too-many-entries")) {
            let Some(table) = self.table(node, "a link") else { continue };
            self.only(table, &["from", "max"]);
            let from = self.required(table, "from", "name the field that points here, as \"relay.submission.job\"");
            let Some(from) = from else { continue };
            links.push(Link { name, from: self.texts(from, "`from`"), max: self.count_at(table, "max") });
        }
        links
    }

    pub(crate) fn uniques_of(&mut self, top: Table) -> Vec<Unique> {
        let mut uniques = Vec::new();
        for (name, node) in self.named(top, "unique", "[unique]", (bounds::ENTRIES, "too-many-entries")) {
            let Some(table) = self.table(node, "a unique") else { continue };
            self.only(table, &["on", "in", "clash", "rule"]);
            let on = self.required(
                table,
                "on",
                "list the fields that must be unique together, as on = [\"owner\", \"requestId\"]",
            );
            let clash = self.required(
                table,
                "clash",
                "say what a clash answers: \"return\" the holder, or a code, as \"409 taken\"",
            );
            let (Some(on), Some(clash)) = (on, clash) else { continue };
            let on = self.texts(on, "`on`");
            let Some(clash) = self.text(clash, "`clash`") else { continue };
            let clash = match &*clash.text {
                "return" => Clash::Return,
                _ => match self.answer(&clash) {
                    Some(answer) => Clash::Refuse(answer),
                    None => continue,
                },
            };
            let within = self.texts_at(table, "in").map(|states| states.value);
            uniques.push(Unique { name, on, within, clash, rules: self.rules(table) });
        }
        uniques
    }

    pub(crate) fn limits_of(&mut self, top: Table) -> Vec<Limit> {
        let mut limits = Vec::new();
        for (name, node) in self.named(top, "limit", "[limit]", (bounds::ENTRIES, "too-many-entries")) {
            let Some(table) = self.table(node, "a limit") else { continue };
            self.only(table, &["on", "in", "per", "max", "clash", "rule"]);
            let max = self.required(table, "max", "say how many: a number or an expression");
            let clash = self.required(table, "clash", "say what a full limit answers, as \"429 quota\"");
            let (Some(max), Some(clash)) = (max, clash) else { continue };
            let on = self.texts_at(table, "on").map_or_else(Vec::new, |on| on.value);
            let Some(max) = self.expression(max, "`max`") else { continue };
            let Some(clash) = self.text(clash, "`clash`").and_then(|clash| self.answer(&clash)) else { continue };
            let within = self.texts_at(table, "in");
            let per = self.duration_at(table, "per");
            limits.push(Limit { name, on, within, per, max, clash, rules: self.rules(table) });
        }
        limits
    }

    pub(crate) fn work_of(&mut self, top: Table) -> Option<Work> {
        let table = self.table_at(top, "work", "[work]")?;
        self.only(table, &["lease", "result", "stop", "priority", "key", "rule"]);
        let lease = self.required(
            table,
            "lease",
            "say how long a worker holds the job without a heartbeat, as lease = \"30s\"",
        )?;
        let lease = self.duration_text(lease, "lease").and_then(|lease| self.duration(&lease))?;
        Some(Work {
            at: table.at,
            lease,
            result: self.fields_at(table, "result", "`result`", Kept::PassingBy),
            stop: self.expression_at(table, "stop"),
            priority: self.expression_at(table, "priority"),
            key: self.work_key(table),
            rules: self.rules(table),
        })
    }

    fn work_key(&mut self, work: Table) -> Option<WorkKey> {
        let table = self.table_at(work, "key", "`key` of [work]")?;
        self.only(table, &["on", "limit", "ordered"]);
        let on = self.required(table, "on", "list the fields that make the key, as on = [\"customer\"]")?;
        let on = self.texts(on, "`on`");
        let limit = self.count_at(table, "limit");
        let ordered = self.flag(table, "ordered").is_some();
        if limit.is_none() && !ordered {
            self.report(
                Diagnostic::error("missing-key", table.at, "`key` of [work] says nothing")
                    .label("neither `limit` nor `ordered`")
                    .help("add `limit = 3` (at most so many running per key) or `ordered = true` (one after another)"),
            );
            return None;
        }
        Some(WorkKey { on, limit, ordered })
    }

    pub(crate) fn errors_of(&mut self, top: Table) -> Option<Errors> {
        let table = self.table_at(top, "errors", "[errors]")?;
        self.only(table, &["retryable", "terminal", "rule"]);
        let mut codes = |key| self.texts_at(table, key).map_or_else(Vec::new, |codes| codes.value);
        let (retryable, terminal) = (codes("retryable"), codes("terminal"));
        for code in &terminal {
            if let Some(first) = retryable.iter().find(|other| other.text == code.text) {
                self.report(
                    Diagnostic::error(
                        "error-classed-twice",
                        code.at(),
                        format!("`{}` is both retryable and terminal", code.text),
                    )
                    .label("terminal here")
                    .also(first.at(), "retryable here")
                    .help("keep it in one of the two lists"),
                );
            }
        }
        Some(Errors { retryable, terminal, rules: self.rules(table) })
    }

    pub(crate) fn checks_of(&mut self, top: Table) -> Vec<Check> {
        let mut checks = Vec::new();
        for (name, node) in self.named(top, "checks", "[checks]", (bounds::ENTRIES, "too-many-entries")) {
            let Some(table) = self.table(node, "a check") else { continue };
            self.only(table, &["ask", "answer", "payload", "rule"]);
            let ask = self.given_at(table, "ask", "`ask`");
            self.required(table, "answer", "say what is answered, as answer = { ok = \"bool\" }");
            let Some(answer) = self.fields_at(table, "answer", "`answer`", Kept::PassingBy) else { continue };
            let payload = self.flag(table, "payload").is_some();
            checks.push(Check { name, payload, ask, answer, rules: self.rules(table) });
        }
        checks
    }

    pub(crate) fn lookups_of(&mut self, top: Table) -> Vec<Lookup> {
        let mut lookups = Vec::new();
        for (name, node) in self.named(top, "refs", "[refs]", (bounds::ENTRIES, "too-many-entries")) {
            let Some(table) = self.table(node, "a lookup in [refs]") else { continue };
            self.only(table, &["to", "key"]);
            let to = self.required(table, "to", "name the lifecycle whose record is looked up");
            let key = self.required(table, "key", "give the expression whose value is the record's natural key");
            let (Some(to), Some(key)) = (to, key) else { continue };
            let (Some(to), Some(key)) = (self.text(to, "`to`"), self.expression(key, "`key`")) else { continue };
            lookups.push(Lookup { name, to, key });
        }
        lookups
    }

    pub(crate) fn who_of(&mut self, top: Table) -> Vec<Who> {
        let mut callers = Vec::new();
        for (name, node) in self.named(top, "who", "[who]", (bounds::ENTRIES, "too-many-entries")) {
            if matches!(node.get_ref(), DeValue::String(_)) {
                let Some(is) = self.text(node, "a caller") else { continue };
                callers.push(Who { name, is, rules: Vec::new() });
                continue;
            }
            let Some(table) = self.table(node, "a caller in [who]") else { continue };
            self.only(table, &["is", "rule"]);
            let Some(is) = self.required(table, "is", "give the expression that is true for this caller") else {
                continue;
            };
            let Some(is) = self.expression(is, "`is`") else { continue };
            callers.push(Who { name, is, rules: self.rules(table) });
        }
        callers
    }

    pub(crate) fn access_of(&mut self, top: Table) -> Option<Vec<Text>> {
        let table = self.table_at(top, "access", "[access]")?;
        self.only(table, &["read"]);
        self.texts_at(table, "read").map(|read| read.value)
    }

    pub(crate) fn payload_of(&mut self, top: Table) -> Option<Payload> {
        let table = self.table_at(top, "payload", "[payload]")?;
        self.only(table, &["min", "max"]);
        let mut size = |key| {
            let text = self.text_at(table, key)?;
            Some(At { value: self.size(&text)?, at: text.at() })
        };
        Some(Payload { min: size("min"), max: size("max") })
    }
}
