//! `onceward check`: static analysis of lifecycle files.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use onceward_core::compile::declared_lifecycles;
use onceward_core::count_noun;
use onceward_core::diagnostic::{Diagnostic, InputFiles, Severity, Span};
use serde_json::{Value, json};

use crate::files::{self, LoadedFiles, UnreadableFile};
use crate::output::{ColorChoice, CommandStatus, print_stderr, print_stdout};
use crate::shipped;

/// Analyze lifecycle files and report errors and warnings
///
/// Files given together may refer to each other and to shipped lifecycles. A folder stands for all *.toml files in it and its subfolders,
/// except Cargo.toml, hidden files and folders, and folders named target. In a folder, TOML files without lifecycle keys (`language`,
/// `lifecycle`, states or transitions) are skipped. A file named on the command line is always checked.
///
/// Exit codes: 0 all lifecycles are sound; 1 there are errors, or a file is too large or not UTF-8; 2 a file or folder cannot be read.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward check systems/image\n  onceward check systems\n  onceward check job.toml asset.toml --json"
)]
pub(crate) struct CheckArgs {
    /// Lifecycle files or folders
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Print the diagnostics as JSON; see docs/language/json.md
    #[arg(long)]
    json: bool,
    /// Use colors in diagnostics
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    color: ColorChoice,
}

/// The code for a file that is not readable as text. All other codes come from the core.
const UNREADABLE_FILE_CODE: &str = "unreadable-file";

/// The result of the analysis, before it is printed.
struct CheckFindings {
    lifecycles: Vec<String>,
    diagnostics: Vec<Diagnostic>,
    /// The files that the diagnostics refer to.
    files: InputFiles,
    unreadable: Vec<UnreadableFile>,
}

impl CheckFindings {
    fn analyze(loaded: &LoadedFiles) -> Self {
        let unreadable = loaded.unreadable.clone();
        if !unreadable.is_empty() {
            // The other files may refer to the unreadable ones, so their diagnostics would mislead.
            let files = loaded.files.clone();
            return Self { lifecycles: Vec::new(), diagnostics: Vec::new(), files, unreadable };
        }
        let (result, files) = shipped::load_with_shipped(&loaded.files);
        let (lifecycles, diagnostics) = match result {
            Ok(result) => {
                let names = declared_lifecycles(&loaded.files);
                (names.iter().map(ToString::to_string).collect(), result.warnings)
            }
            Err(diagnostics) => (Vec::new(), diagnostics),
        };
        Self { lifecycles, diagnostics, files, unreadable }
    }

    fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count()
    }

    fn is_sound(&self) -> bool {
        self.unreadable.is_empty() && self.count(Severity::Error) == 0
    }
}

impl CheckArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let loaded = match files::read_lifecycle_files(&self.paths) {
            Err(error) if self.json => {
                // With `--json`, a caller reads standard output only, so it reports this error too.
                let unread =
                    json!({ "severity": "error", "code": UNREADABLE_FILE_CODE, "message": format!("{error:#}") });
                print_stdout(&format!("{:#}\n", result_json(false, &[], &[with_all_fields(unread)])))?;
                return Ok(CommandStatus::UsageError);
            }
            read => read?,
        };
        if let Some(note) = skipped_note(&loaded.skipped) {
            print_stderr(&note);
        }
        let findings = CheckFindings::analyze(&loaded);
        if self.json {
            print_stdout(&format!("{:#}\n", as_json(&findings)))?;
        } else {
            self.print_findings(&findings)?;
        }
        Ok(if findings.is_sound() { CommandStatus::Success } else { CommandStatus::Failure })
    }

    fn print_findings(&self, findings: &CheckFindings) -> Result<()> {
        for file in &findings.unreadable {
            print_stderr(&format!("error[{UNREADABLE_FILE_CODE}]: {}\n\n", file.message));
        }
        for diagnostic in &findings.diagnostics {
            print_stderr(&format!("{}\n", diagnostic.render(&findings.files, self.color.is_enabled())));
        }
        let warnings = match findings.count(Severity::Warning) {
            0 => String::new(),
            count => format!(", with {}", count_noun(count, "warning", "warnings")),
        };
        if findings.is_sound() {
            let sound = count_noun(findings.lifecycles.len(), "lifecycle is sound", "lifecycles are sound");
            return print_stdout(&format!("{sound}{warnings}: {}\n", findings.lifecycles.join(", ")));
        }
        let errors = count_noun(findings.count(Severity::Error) + findings.unreadable.len(), "error", "errors");
        print_stderr(&format!("check failed: {errors}{warnings}\n"));
        Ok(())
    }
}

/// Returns a note about the files of a folder that were not checked, and names the first few.
fn skipped_note(skipped: &[String]) -> Option<String> {
    const MAX_LISTED_NAMES: usize = 3;
    let names = skipped.get(..MAX_LISTED_NAMES).unwrap_or(skipped).join(", ");
    let more = match skipped.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let reason = if skipped.len() == 1 { "not a lifecycle file" } else { "not lifecycle files" };
    (!skipped.is_empty()).then(|| format!("note: skipped {names}{more}: {reason}\n"))
}

fn as_json(findings: &CheckFindings) -> Value {
    let files = &findings.files;
    let mut diagnostics: Vec<Value> = findings
        .unreadable
        .iter()
        .map(|file| {
            let (line, column) = file.position.unwrap_or((1, 1));
            let at = json!({
                "file": file.name, "line": line, "column": column, "end_line": line, "end_column": column
            });
            with_all_fields(
                json!({ "severity": "error", "code": UNREADABLE_FILE_CODE, "message": file.message, "at": at }),
            )
        })
        .collect();
    diagnostics.extend(findings.diagnostics.iter().map(|diagnostic| {
        let also: Vec<Value> = diagnostic
            .related
            .iter()
            .map(|(at, label)| json!({ "at": span_json(*at, files), "label": label }))
            .collect();
        json!({
            "severity": match diagnostic.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "code": diagnostic.code,
            "message": diagnostic.message,
            "at": span_json(diagnostic.span, files),
            "label": diagnostic.label,
            "also": also,
            "help": diagnostic.help,
        })
    }));
    result_json(findings.is_sound(), &findings.lifecycles, &diagnostics)
}

fn result_json(sound: bool, lifecycles: &[String], diagnostics: &[Value]) -> Value {
    json!({ "sound": sound, "lifecycles": lifecycles, "diagnostics": diagnostics })
}

/// Adds the missing keys, so that every diagnostic has the same ones.
fn with_all_fields(mut diagnostic: Value) -> Value {
    for (key, nothing) in [("at", Value::Null), ("label", json!("")), ("also", json!([])), ("help", Value::Null)] {
        if diagnostic.get(key).is_none() {
            diagnostic[key] = nothing;
        }
    }
    diagnostic
}

/// Returns a span as JSON. Lines and columns start at one; a column counts characters, as editors do.
fn span_json(at: Span, files: &InputFiles) -> Value {
    let Some(file) = files.files.get(at.file as usize) else { return Value::Null };
    let position = |offset: usize| {
        let before = file.text.get(..offset).unwrap_or(&file.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    };
    let ((line, column), (end_line, end_column)) = (position(at.range().start), position(at.range().end));
    json!({ "file": file.name, "line": line, "column": column, "end_line": end_line, "end_column": end_column })
}
