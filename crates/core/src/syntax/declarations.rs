//! Parses all declarations of a file except its transitions.

use toml::de::DeValue;

use super::ast::{
    CallerDecl, CheckDecl, ConcurrencyDecl, DuplicatePolicyDecl, ErrorsDecl, FieldDecl, FieldLiteral, LimitDecl,
    LinkDecl, LookupDecl, PayloadDecl, ReadyDecl, SourceText, StateDecl, UniqueDecl, WithSpan, WorkDecl,
};
use super::toml_reader::{TomlNode, TomlReader, TomlTable};
use crate::bounds;
use crate::diagnostic::Diagnostic;

/// Where a field is declared. This determines its allowed keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldStorage {
    /// `[fields]`: stored in the record.
    Stored,
    /// An input, a result or a check answer: not stored.
    Transient,
}

impl TomlReader<'_> {
    /// Returns the entries of a top-level table, with valid names and within the limit.
    fn named_entries<'t>(
        &mut self,
        top: TomlTable<'t>,
        key: &str,
        what: &'static str,
        limit: (usize, &'static str),
    ) -> Vec<(SourceText, &'t TomlNode<'t>)> {
        let Some(table) = self.read_table_at(top, key, what) else { return Vec::new() };
        self.validated_entries(table, what, limit)
    }

    fn validated_entries<'t>(
        &mut self,
        table: TomlTable<'t>,
        what: &str,
        (max, code): (usize, &'static str),
    ) -> Vec<(SourceText, &'t TomlNode<'t>)> {
        self.limit_count(table.entries.len(), max, code, table.span, &format!("entries in {what}"));
        let mut entries = Vec::new();
        for (name, node) in table.entries.iter().take(max) {
            let name = self.key(name);
            if self.validate_name(&name, &format!("a name in {what}")) {
                entries.push((name, node));
            }
        }
        entries
    }

    pub(crate) fn read_states(&mut self, top: TomlTable) -> Vec<StateDecl> {
        let mut states = Vec::new();
        for (name, node) in self.named_entries(top, "states", "[states]", (bounds::MAX_STATES, "too-many-states")) {
            let Some(table) = self.read_table(node, "a state") else { continue };
            self.allow_only_keys(table, &["about", "ready", "final", "rest", "reserved", "keep", "rule"]);
            let ready = Self::get(table, "ready").and_then(|node| match node.get_ref() {
                DeValue::Boolean(false) => None,
                DeValue::Boolean(true) => Some(ReadyDecl::Immediate(self.span(node))),
                _ => self.read_text(node, "`ready`").map(ReadyDecl::FromField),
            });
            states.push(StateDecl {
                name,
                about: self.read_text_at(table, "about"),
                ready,
                final_span: self.read_flag_at(table, "final"),
                rest_span: self.read_flag_at(table, "rest"),
                reserved_span: self.read_flag_at(table, "reserved"),
                keep_span: self.read_flag_at(table, "keep"),
                rules: self.read_rule_ids(table),
            });
        }
        states
    }

    pub(crate) fn read_fields_at(
        &mut self,
        top: TomlTable,
        key: &str,
        what: &'static str,
        storage: FieldStorage,
    ) -> Option<Vec<FieldDecl>> {
        let table = self.read_table_at(top, key, what)?;
        let entries = self.validated_entries(table, what, (bounds::MAX_FIELDS, "too-many-fields"));
        Some(entries.into_iter().filter_map(|(name, node)| self.read_field(name, node, storage)).collect())
    }

    fn read_field(&mut self, name: SourceText, node: &TomlNode, storage: FieldStorage) -> Option<FieldDecl> {
        if matches!(node.get_ref(), DeValue::String(_)) {
            let ty = self.read_text(node, "a type")?;
            return Some(FieldDecl {
                name,
                about: None,
                ty,
                is_shorthand: true,
                enum_values: None,
                element_type: None,
                ref_targets: None,
                optional: false,
                default: None,
                constant: None,
                min: None,
                max: None,
                pattern: None,
            });
        }
        let table = self.read_table(node, "a field")?;
        match storage {
            FieldStorage::Stored => self.allow_only_keys(
                table,
                &["type", "about", "enum", "of", "to", "optional", "default", "const", "min", "max", "pattern"],
            ),
            FieldStorage::Transient => self.allow_only_transient_keys(&name, table),
        }
        let ty = self
            .require_key(
                table,
                "type",
                "add `type`: string, int, double, bool, time, duration, list, json, ref or refs",
            )
            .and_then(|node| self.read_text(node, "`type`"))?;
        let (min, max) = (self.read_bound_at(table, "min", &ty.text), self.read_bound_at(table, "max", &ty.text));
        Some(FieldDecl {
            name,
            about: self.read_text_at(table, "about"),
            ty,
            is_shorthand: false,
            enum_values: self.read_texts_at(table, "enum"),
            element_type: self.read_text_at(table, "of"),
            ref_targets: self.read_texts_at(table, "to"),
            optional: self.read_flag_at(table, "optional").is_some(),
            default: self.read_literal_at(table, "default"),
            constant: self.read_literal_at(table, "const"),
            min,
            max,
            pattern: self.read_pattern_at(table),
        })
    }

    /// Rejects `default` and `const` on transient fields: they have no initial value.
    fn allow_only_transient_keys(&mut self, name: &SourceText, table: TomlTable) {
        const TRANSIENT_FIELD_KEYS: [&str; 9] =
            ["type", "about", "enum", "of", "to", "optional", "min", "max", "pattern"];
        const STORED_ONLY_KEYS: [&str; 2] = ["default", "const"];
        let stored_only = table.entries.iter().filter(|(key, _)| STORED_ONLY_KEYS.contains(&&**key.get_ref()));
        for (key, _) in stored_only {
            let (at, key) = (self.span(key), key.get_ref());
            let name = &name.text;
            self.report(
                Diagnostic::error("unknown-key", at, format!("the input `{name}` cannot have `{key}`"))
                    .label("only fields have it")
                    .help(if key == "default" {
                        "write optional = true, and replace null where it is read: x == null ? … : x\nor declare a \
                         field with that `default` in [fields] and let the transition `take` it"
                    } else {
                        "remove it, and write the value where it is read"
                    }),
            );
        }
        self.allow_only_keys_besides(table, &TRANSIENT_FIELD_KEYS, |key| STORED_ONLY_KEYS.contains(&key));
    }

    /// Reads `min` or `max`: a number, a size, or a duration if the field is one.
    fn read_bound_at(&mut self, table: TomlTable, key: &str, ty: &str) -> Option<WithSpan<FieldLiteral>> {
        if ty == "duration" {
            let text = Self::get(table, key).and_then(|node| self.read_duration_text(node, key))?;
            return Some(WithSpan { value: FieldLiteral::Duration(self.parse_duration(&text)?), span: text.span() });
        }
        let WithSpan { value, span: at } = self.read_literal_at(table, key)?;
        match value {
            FieldLiteral::Text(text) => {
                let size = self.parse_size(&text)?;
                Some(WithSpan { value: FieldLiteral::Int(i64::try_from(size).unwrap_or(i64::MAX)), span: at })
            }
            value => Some(WithSpan { value, span: at }),
        }
    }

    pub(crate) fn read_links(&mut self, top: TomlTable) -> Vec<LinkDecl> {
        let mut links = Vec::new();
        for (name, node) in
            self.named_entries(top, "links", "[links]", (bounds::MAX_TRANSITION_ENTRIES, "too-many-entries"))
        {
            let Some(table) = self.read_table(node, "a link") else { continue };
            self.allow_only_keys(table, &["from", "max"]);
            let from = self.require_key(
                table,
                "from",
                "name the field that refers to this lifecycle, such as \"relay.submission.job\"",
            );
            let Some(from) = from else { continue };
            links.push(LinkDecl { name, from: self.read_texts(from, "`from`"), max: self.read_count_at(table, "max") });
        }
        links
    }

    pub(crate) fn read_uniques(&mut self, top: TomlTable) -> Vec<UniqueDecl> {
        let mut uniques = Vec::new();
        for (name, node) in
            self.named_entries(top, "unique", "[unique]", (bounds::MAX_TRANSITION_ENTRIES, "too-many-entries"))
        {
            let Some(table) = self.read_table(node, "a unique key") else { continue };
            self.allow_only_keys(table, &["on", "in", "clash", "rule"]);
            let on = self.require_key(
                table,
                "on",
                "list the fields that must be unique together, such as on = [\"owner\", \"requestId\"]",
            );
            let clash = self.require_key(
                table,
                "clash",
                "add the answer to a duplicate: \"return\" for the existing record, or a status and a code, such as \
                 \"409 taken\"",
            );
            let (Some(on), Some(clash)) = (on, clash) else { continue };
            let on = self.read_texts(on, "`on`");
            let Some(clash) = self.read_text(clash, "`clash`") else { continue };
            let clash = match &*clash.text {
                "return" => DuplicatePolicyDecl::Return,
                _ => match self.parse_response(&clash) {
                    Some(answer) => DuplicatePolicyDecl::Refuse(answer),
                    None => continue,
                },
            };
            let within = self.read_texts_at(table, "in").map(|states| states.value);
            uniques.push(UniqueDecl {
                name,
                on,
                in_states: within,
                on_duplicate: clash,
                rules: self.read_rule_ids(table),
            });
        }
        uniques
    }

    pub(crate) fn read_limits(&mut self, top: TomlTable) -> Vec<LimitDecl> {
        let mut limits = Vec::new();
        for (name, node) in
            self.named_entries(top, "limit", "[limit]", (bounds::MAX_TRANSITION_ENTRIES, "too-many-entries"))
        {
            let Some(table) = self.read_table(node, "a limit") else { continue };
            self.allow_only_keys(table, &["on", "in", "per", "max", "clash", "rule"]);
            let max = self.require_key(table, "max", "add the maximum: a number or an expression");
            let clash = self.require_key(table, "clash", "add the answer of a full limit, such as \"429 quota\"");
            let (Some(max), Some(clash)) = (max, clash) else { continue };
            let on = self.read_texts_at(table, "on").map_or_else(Vec::new, |on| on.value);
            let Some(max) = self.read_expression(max, "`max`") else { continue };
            let Some(clash) = self.read_text(clash, "`clash`").and_then(|clash| self.parse_response(&clash)) else {
                continue;
            };
            let within = self.read_texts_at(table, "in");
            let per = self.read_duration_at(table, "per");
            limits.push(LimitDecl {
                name,
                on,
                in_states: within,
                window: per,
                max,
                on_exceeded: clash,
                rules: self.read_rule_ids(table),
            });
        }
        limits
    }

    pub(crate) fn read_work(&mut self, top: TomlTable) -> Option<WorkDecl> {
        let table = self.read_table_at(top, "work", "[work]")?;
        self.allow_only_keys(table, &["lease", "result", "stop", "priority", "key", "rule"]);
        let lease = self.require_key(
            table,
            "lease",
            "add how long a worker may hold the job without a heartbeat, such as lease = \"30s\"",
        )?;
        let lease = self.read_duration_text(lease, "lease").and_then(|lease| self.parse_positive_duration(&lease))?;
        Some(WorkDecl {
            span: table.span,
            lease_duration: lease,
            result: self.read_fields_at(table, "result", "`result`", FieldStorage::Transient),
            stop_condition: self.read_expression_at(table, "stop"),
            priority: self.read_expression_at(table, "priority"),
            concurrency: self.read_concurrency(table),
            rules: self.read_rule_ids(table),
        })
    }

    fn read_concurrency(&mut self, work: TomlTable) -> Option<ConcurrencyDecl> {
        let table = self.read_table_at(work, "key", "`key` of [work]")?;
        self.allow_only_keys(table, &["on", "limit", "ordered"]);
        let on = self.require_key(table, "on", "list the fields of the key, such as on = [\"customer\"]")?;
        let on = self.read_texts(on, "`on`");
        let limit = self.read_count_at(table, "limit");
        let ordered = self.read_flag_at(table, "ordered").is_some();
        if limit.is_none() && !ordered {
            self.report(
                Diagnostic::error("missing-key", table.span, "`key` of [work] has no effect")
                    .label("neither `limit` nor `ordered`")
                    .help("add `limit = 3` (at most 3 running jobs per key) or `ordered = true` (one after another)"),
            );
            return None;
        }
        Some(ConcurrencyDecl { on, limit, ordered })
    }

    pub(crate) fn read_errors(&mut self, top: TomlTable) -> Option<ErrorsDecl> {
        let table = self.read_table_at(top, "errors", "[errors]")?;
        self.allow_only_keys(table, &["retryable", "terminal", "rule"]);
        let mut codes = |key| self.read_texts_at(table, key).map_or_else(Vec::new, |codes| codes.value);
        let (retryable, terminal) = (codes("retryable"), codes("terminal"));
        for code in &terminal {
            if let Some(first) = retryable.iter().find(|other| other.text == code.text) {
                self.report(
                    Diagnostic::error(
                        "conflicting-error-class",
                        code.span(),
                        format!("`{}` is both retryable and terminal", code.text),
                    )
                    .label("listed as terminal")
                    .related(first.span(), "listed as retryable")
                    .help("remove it from one of the two lists"),
                );
            }
        }
        Some(ErrorsDecl { retryable, terminal, rules: self.read_rule_ids(table) })
    }

    pub(crate) fn read_checks(&mut self, top: TomlTable) -> Vec<CheckDecl> {
        let mut checks = Vec::new();
        for (name, node) in
            self.named_entries(top, "checks", "[checks]", (bounds::MAX_TRANSITION_ENTRIES, "too-many-entries"))
        {
            let Some(table) = self.read_table(node, "a check") else { continue };
            self.allow_only_keys(table, &["ask", "answer", "payload", "rule"]);
            let ask = self.read_named_exprs_at(table, "ask", "`ask`");
            self.require_key(table, "answer", "declare the answer, such as answer = { ok = \"bool\" }");
            let Some(answer) = self.read_fields_at(table, "answer", "`answer`", FieldStorage::Transient) else {
                continue;
            };
            let payload = self.read_flag_at(table, "payload").is_some();
            checks.push(CheckDecl {
                name,
                sends_payload: payload,
                arguments: ask,
                answer_fields: answer,
                rules: self.read_rule_ids(table),
            });
        }
        checks
    }

    pub(crate) fn read_lookups(&mut self, top: TomlTable) -> Vec<LookupDecl> {
        let mut lookups = Vec::new();
        for (name, node) in
            self.named_entries(top, "refs", "[refs]", (bounds::MAX_TRANSITION_ENTRIES, "too-many-entries"))
        {
            let Some(table) = self.read_table(node, "a lookup in [refs]") else { continue };
            self.allow_only_keys(table, &["to", "key"]);
            let to = self.require_key(table, "to", "name the lifecycle of the record");
            let key = self.require_key(table, "key", "add the expression for the record's natural key");
            let (Some(to), Some(key)) = (to, key) else { continue };
            let (Some(to), Some(key)) = (self.read_text(to, "`to`"), self.read_expression(key, "`key`")) else {
                continue;
            };
            lookups.push(LookupDecl { name, target_lifecycle: to, natural_key: key });
        }
        lookups
    }

    pub(crate) fn read_callers(&mut self, top: TomlTable) -> Vec<CallerDecl> {
        let mut callers = Vec::new();
        for (name, node) in
            self.named_entries(top, "who", "[who]", (bounds::MAX_TRANSITION_ENTRIES, "too-many-entries"))
        {
            if matches!(node.get_ref(), DeValue::String(_)) {
                let Some(is) = self.read_text(node, "a caller") else { continue };
                callers.push(CallerDecl { name, predicate: is, rules: Vec::new() });
                continue;
            }
            let Some(table) = self.read_table(node, "a caller in [who]") else { continue };
            self.allow_only_keys(table, &["is", "rule"]);
            let Some(is) = self.require_key(table, "is", "add the expression that is true for the caller") else {
                continue;
            };
            let Some(is) = self.read_expression(is, "`is`") else { continue };
            callers.push(CallerDecl { name, predicate: is, rules: self.read_rule_ids(table) });
        }
        callers
    }

    pub(crate) fn read_access(&mut self, top: TomlTable) -> Option<Vec<SourceText>> {
        let table = self.read_table_at(top, "access", "[access]")?;
        self.allow_only_keys(table, &["read"]);
        self.read_texts_at(table, "read").map(|read| read.value)
    }

    pub(crate) fn read_payload_bounds(&mut self, top: TomlTable) -> Option<PayloadDecl> {
        let table = self.read_table_at(top, "payload", "[payload]")?;
        self.allow_only_keys(table, &["min", "max"]);
        let mut size = |key| {
            let text = self.read_text_at(table, key)?;
            Some(WithSpan { value: self.parse_size(&text)?, span: text.span() })
        };
        Some(PayloadDecl { min: size("min"), max: size("max") })
    }
}
