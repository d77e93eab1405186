//! `onceward check`: are these lifecycle files sound?

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use onceward_core::counted;
use onceward_core::diagnostic::{Diagnostic, Files, Severity, Span};
use serde_json::{Value, json};

use crate::answer::{Color, Outcome, complain, say};
use crate::files::{self, Reading, Unfit};
use crate::shipped;

/// Prove lifecycle files sound, or say where they are not
///
/// Files given together may refer to each other. A folder means every *.toml file in it and in the folders below it, but
/// for Cargo.toml, hidden files and folders, and folders called target. TOML files of another kind are left out there: those
/// with neither `language` nor `lifecycle`, nor states, nor rows. A file that is named is checked, whatever it is.
///
/// Exits with 0 if all are sound, with 1 if one is found wanting (a file that is too large or not UTF-8 text is), with 2 if a
/// file or folder cannot be read at all.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward check systems/image\n  onceward check systems\n  onceward check job.toml asset.toml --json"
)]
pub(crate) struct Check {
    /// Lifecycle files, or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Print the findings as JSON on standard output; docs/language/json.md describes it
    #[arg(long)]
    json: bool,
    /// Colour the messages
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

/// The code of what is no text that could be read, beside those of the core.
const UNREADABLE: &str = "unreadable-file";

/// What was found, before it is shown.
struct Findings {
    lifecycles: Vec<String>,
    diagnostics: Vec<Diagnostic>,
    unfit: Vec<Unfit>,
}

impl Findings {
    fn of(reading: &Reading) -> Self {
        let unfit = reading.unfit.clone();
        if !unfit.is_empty() {
            // The others may refer to these; what could be said about them now would mislead.
            return Self { lifecycles: Vec::new(), diagnostics: Vec::new(), unfit };
        }
        match onceward_core::load(&reading.files) {
            Ok(loaded) => {
                let names = loaded.definitions.lifecycles.keys().filter(|name| !shipped::is_built_in(name));
                let lifecycles = names.map(ToString::to_string).collect();
                Self { lifecycles, diagnostics: loaded.warnings, unfit }
            }
            Err(diagnostics) => Self { lifecycles: Vec::new(), diagnostics, unfit },
        }
    }

    fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    fn is_sound(&self) -> bool {
        self.unfit.is_empty() && self.count(Severity::Error) == 0
    }
}

impl Check {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let reading = match files::read(&self.paths) {
            Err(error) if self.json => {
                // Whoever reads JSON reads no other answer.
                let unread = json!({ "severity": "error", "code": UNREADABLE, "message": format!("{error:#}") });
                say(&format!("{:#}\n", answer(false, &[], &[whole(unread)])))?;
                return Ok(Outcome::Misuse);
            }
            read => read?,
        };
        if let Some(note) = note(&reading.left_out) {
            complain(&note);
        }
        let findings = Findings::of(&reading);
        if self.json {
            say(&format!("{:#}\n", as_json(&findings, &reading.files)))?;
        } else {
            self.show(&findings, &reading.files)?;
        }
        Ok(if findings.is_sound() { Outcome::Done } else { Outcome::Wanting })
    }

    fn show(&self, findings: &Findings, files: &Files) -> Result<()> {
        for unfit in &findings.unfit {
            complain(&format!("error[{UNREADABLE}]: {}\n\n", unfit.message));
        }
        for diagnostic in &findings.diagnostics {
            complain(&format!("{}\n", diagnostic.render(files, self.color.wanted())));
        }
        let warnings = match findings.count(Severity::Warning) {
            0 => String::new(),
            count => format!(", with {}", counted(count, "warning", "warnings")),
        };
        if findings.is_sound() {
            let sound = counted(findings.lifecycles.len(), "lifecycle is sound", "lifecycles are sound");
            return say(&format!("{sound}{warnings}: {}\n", findings.lifecycles.join(", ")));
        }
        let errors = counted(findings.count(Severity::Error) + findings.unfit.len(), "error", "errors");
        complain(&format!("found wanting: {errors}{warnings}\n"));
        Ok(())
    }
}

/// Of files that stood in a folder and were not checked; a few by their names.
fn note(left_out: &[String]) -> Option<String> {
    const NAMED: usize = 3;
    let names = left_out.get(..NAMED).unwrap_or(left_out).join(", ");
    let more = match left_out.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let are = if left_out.len() == 1 { "is no lifecycle file" } else { "are no lifecycle files" };
    (!left_out.is_empty()).then(|| format!("note: not checked: {names}{more} {are}\n"))
}

fn as_json(findings: &Findings, files: &Files) -> Value {
    let mut diagnostics: Vec<Value> = findings
        .unfit
        .iter()
        .map(|unfit| {
            let (line, column) = unfit.at.unwrap_or((1, 1));
            let at = json!({
                "file": unfit.name, "line": line, "column": column, "end_line": line, "end_column": column
            });
            whole(json!({ "severity": "error", "code": UNREADABLE, "message": unfit.message, "at": at }))
        })
        .collect();
    diagnostics.extend(findings.diagnostics.iter().map(|diagnostic| {
        let also: Vec<Value> =
            diagnostic.also.iter().map(|(at, label)| json!({ "at": place(*at, files), "label": label })).collect();
        json!({
            "severity": match diagnostic.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "code": diagnostic.code,
            "message": diagnostic.message,
            "at": place(diagnostic.at, files),
            "label": diagnostic.label,
            "also": also,
            "help": diagnostic.help,
        })
    }));
    answer(findings.is_sound(), &findings.lifecycles, &diagnostics)
}

fn answer(sound: bool, lifecycles: &[String], diagnostics: &[Value]) -> Value {
    json!({ "sound": sound, "lifecycles": lifecycles, "diagnostics": diagnostics })
}

/// Every diagnostic has the same keys; those that this one lacks say nothing.
fn whole(mut diagnostic: Value) -> Value {
    for (key, nothing) in [("at", Value::Null), ("label", json!("")), ("also", json!([])), ("help", Value::Null)] {
        if diagnostic.get(key).is_none() {
            diagnostic[key] = nothing;
        }
    }
    diagnostic
}

/// Lines and columns count from one; a column is a character, as editors count.
fn place(at: Span, files: &Files) -> Value {
    let Some(file) = files.files.get(at.file as usize) else { return Value::Null };
    let position = |offset: usize| {
        let before = file.text.get(..offset).unwrap_or(&file.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    };
    let ((line, column), (end_line, end_column)) = (position(at.range().start), position(at.range().end));
    json!({ "file": file.name, "line": line, "column": column, "end_line": end_line, "end_column": end_column })
}
