//! Builds the text of one transition.

use std::fmt::Write as _;

#[derive(Clone, Debug, Default)]
pub(super) struct TransitionText {
    pub(super) event: String,
    pub(super) go: String,
    pub(super) by: Vec<&'static str>,
    pub(super) when: Option<String>,
    pub(super) refuse: Vec<String>,
    pub(super) take: Vec<&'static str>,
    pub(super) input: Vec<String>,
    pub(super) set: Vec<(&'static str, String)>,
    pub(super) transfers: Vec<String>,
    pub(super) spawn: Vec<String>,
    pub(super) require: Vec<String>,
    pub(super) cascade: Vec<String>,
    pub(super) deliver: Vec<String>,
    pub(super) after: Option<String>,
    pub(super) at: Option<&'static str>,
    pub(super) audit: Option<&'static str>,
}

impl TransitionText {
    pub(super) fn new(event: &str, go: String) -> Self {
        Self { event: event.to_owned(), go, ..Self::default() }
    }

    pub(super) fn set_field(&mut self, field: &'static str, value: String) {
        let taken = self.take.contains(&field) || self.set.iter().any(|(name, _)| *name == field);
        if !taken {
            self.set.push((field, value));
        }
    }

    pub(super) fn to_toml(&self) -> String {
        let mut out = format!("\n[[on.{}]]\ngo = \"{}\"\n", self.event, self.go);
        let names = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let mut line = |key: &str, value: String| {
            let _ = writeln!(out, "{key} = {value}");
        };
        if !self.by.is_empty() {
            line("by", format!("[{}]", names(&self.by)));
        }
        if let Some(when) = &self.when {
            line("when", format!("\"{when}\""));
        }
        if !self.take.is_empty() {
            line("take", format!("[{}]", names(&self.take)));
        }
        if !self.input.is_empty() {
            line("input", format!("{{ {} }}", self.input.join(", ")));
        }
        if !self.set.is_empty() {
            let set: Vec<_> = self.set.iter().map(|(name, value)| format!("{name} = \"{value}\"")).collect();
            line("set", format!("{{ {} }}", set.join(", ")));
        }
        let lists = [
            ("refuse", &self.refuse),
            ("move", &self.transfers),
            ("spawn", &self.spawn),
            ("require", &self.require),
            ("cascade", &self.cascade),
            ("deliver", &self.deliver),
        ];
        for (key, entries) in lists {
            if !entries.is_empty() {
                line(key, format!("[{}]", entries.join(", ")));
            }
        }
        if let Some(after) = &self.after {
            line("after", format!("\"{after}\""));
        }
        if let Some(at) = self.at {
            line("at", format!("\"{at}\""));
        }
        if let Some(audit) = self.audit {
            line("audit", format!("\"{audit}\""));
        }
        out
    }
}
