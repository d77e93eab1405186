//! `onceward draw`: draws a lifecycle as a diagram.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{Diagnostic, InputFile, InputFiles, Severity};
use onceward_core::model::{Definitions, Lifecycle};

use crate::files::{self, LoadedFiles};
use crate::output::{ColorChoice, CommandStatus, print_stderr, print_stdout};
use crate::shipped;

/// Draw a lifecycle as a state diagram
///
/// Draws a shipped lifecycle by its name, or a lifecycle from files. The file must compile, but need not pass `onceward check`: a diagram
/// can help to find out why it does not.
///
/// If the file refers to lifecycles in other files, they are found among the *.toml files in its folder. Errors in unrelated files of that
/// folder are ignored.
///
/// Exit codes: 0 the diagram was drawn; 1 a file has errors; 2 a file cannot be read or written, or the lifecycle does not exist.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward draw image.job\n  onceward draw image.job --svg -o job.svg\n  \
                        onceward draw systems/image/job.toml\n  onceward draw image.job systems/image")]
pub(crate) struct DrawArgs {
    /// Name of a lifecycle, or a lifecycle file
    #[arg(value_name = "NAME|FILE")]
    what: String,
    /// Files or folders to search instead of the shipped lifecycles
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// Print Mermaid text (default)
    #[arg(long, conflicts_with = "svg")]
    mermaid: bool,
    /// Print SVG (default if -o names a .svg file)
    #[arg(long)]
    svg: bool,
    /// Write to this file: .svg for SVG; .mmd, .md or .txt for Mermaid
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl DrawArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let form = self.diagram_format()?;
        let is_file = Path::new(&self.what).exists();
        let looks_like_file = self.what.contains(['/', '\\'])
            || Path::new(&self.what).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let found = if is_file || looks_like_file {
            let mut paths = vec![PathBuf::from(&self.what)];
            paths.extend(self.paths.iter().cloned());
            find_in_files(&paths, None)?
        } else if self.paths.is_empty() {
            find_shipped(&self.what)?
        } else {
            find_in_files(&self.paths, Some(&self.what))?
        };
        let Some(lifecycle) = found else { return Ok(CommandStatus::Failure) };
        let diagram = match form {
            DiagramFormat::Svg => onceward_draw::render_svg(&lifecycle),
            DiagramFormat::Mermaid => onceward_draw::render_mermaid(&lifecycle),
        };
        match &self.output {
            None => print_stdout(&diagram)?,
            Some(path) => std::fs::write(path, diagram).with_context(|| format!("cannot write {}", path.display()))?,
        }
        Ok(CommandStatus::Success)
    }

    /// Returns the requested format. Fails if the file name's extension belongs to another format.
    fn diagram_format(&self) -> Result<DiagramFormat> {
        let requested = match (self.svg, self.mermaid) {
            (true, _) => Some(DiagramFormat::Svg),
            (_, true) => Some(DiagramFormat::Mermaid),
            _ => None,
        };
        let path = self.output.as_deref().unwrap_or(Path::new(""));
        let Some(ending) = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()) else {
            return Ok(requested.unwrap_or(DiagramFormat::Mermaid));
        };
        let file = path.display();
        match (ending.as_str(), requested) {
            ("svg", None | Some(DiagramFormat::Svg)) => Ok(DiagramFormat::Svg),
            ("mmd" | "mermaid" | "md" | "txt", None | Some(DiagramFormat::Mermaid)) => Ok(DiagramFormat::Mermaid),
            ("svg", _) => bail!("--mermaid does not fit {file}: omit it, or use the extension .mmd"),
            ("mmd" | "mermaid" | "md" | "txt", _) => {
                bail!("--svg does not fit {file}: omit it, or use the extension .svg")
            }
            _ => bail!("unknown extension .{ending} ({file}): use .svg for SVG, or .mmd, .md or .txt for Mermaid"),
        }
    }
}

#[derive(Clone, Copy)]
enum DiagramFormat {
    Mermaid,
    Svg,
}

fn find_shipped(name: &str) -> Result<Option<Arc<Lifecycle>>> {
    let files = shipped::files();
    let Some(definitions) = compile_or_print(&files) else { return Ok(None) };
    if let Some(lifecycle) = definitions.get(name) {
        return Ok(Some(Arc::clone(lifecycle)));
    }
    let known = join_names(definitions.lifecycles.keys());
    let near = onceward_core::closest_name(name, known.split(", "));
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    bail!("no file and no shipped lifecycle is called {name}; shipped lifecycles: {known}{near}")
}

/// Loads a lifecycle from files. Returns `None` after printing their errors.
fn find_in_files(paths: &[PathBuf], name: Option<&str>) -> Result<Option<Arc<Lifecycle>>> {
    let loaded = files::read_lifecycle_files(paths)?;
    if !loaded.unreadable.is_empty() {
        loaded.unreadable.iter().for_each(|file| print_stderr(&format!("error: {}\n", file.message)));
        return Ok(None);
    }
    let given_count = loaded.files.files.len();
    let Some(definitions) = compile_with_siblings(loaded.files, paths) else { return Ok(None) };
    let candidates: Vec<&Arc<Lifecycle>> = definitions
        .lifecycles
        .values()
        .filter(|lifecycle| match name {
            Some(name) => *lifecycle.name == *name,
            None => {
                !shipped::is_built_in(&lifecycle.name)
                    && declaring_file(lifecycle).is_some_and(|file| file < given_count)
            }
        })
        .collect();
    match (candidates.as_slice(), name) {
        ([one], _) => Ok(Some((*one).clone())),
        ([], Some(name)) => {
            bail!("the files declare no lifecycle {name}; they declare {}", join_names(definitions.lifecycles.keys()))
        }
        (many, _) => bail!(
            "the files declare {} lifecycles; choose one with `onceward draw NAME FILE…`: {}",
            many.len(),
            join_names(many.iter().map(|lifecycle| &lifecycle.name))
        ),
    }
}

/// Returns the index of the file that declares the lifecycle.
fn declaring_file(lifecycle: &Lifecycle) -> Option<usize> {
    lifecycle.states.first().map(|state| state.span.file as usize)
}

const UNKNOWN_LIFECYCLE_CODE: &str = "unknown-lifecycle";

/// Compiles the given files together with the sibling files that declare the lifecycles they refer to, directly or
/// indirectly. If that fails, prints only the errors of the given files.
fn compile_with_siblings(given_files: InputFiles, paths: &[PathBuf]) -> Option<Definitions> {
    let given_count = given_files.files.len();
    let mut files = given_files;
    let first_result = compile(&files);
    let mut latest_diagnostics = first_result.diagnostics.clone();
    if first_result.definitions.is_some() {
        return first_result.definitions;
    }
    let mut siblings = read_siblings(paths);
    loop {
        let missing_names: Vec<&str> =
            latest_diagnostics.iter().filter_map(|diagnostic| missing_lifecycle(diagnostic, &files)).collect();
        let Some(found) =
            siblings.iter().position(|file| missing_names.iter().any(|name| declares_lifecycle(file, name)))
        else {
            break;
        };
        files.files.push(siblings.remove(found));
        let compiled = compile(&files);
        if compiled.definitions.is_some() {
            return compiled.definitions;
        }
        latest_diagnostics = compiled.diagnostics;
    }
    let is_in_given = |diagnostic: &&Diagnostic| (diagnostic.span.file as usize) < given_count;
    let own: Vec<Diagnostic> = latest_diagnostics.iter().filter(is_in_given).cloned().collect();
    let first: Vec<Diagnostic> =
        first_result.diagnostics.into_iter().filter(|diagnostic| diagnostic.code != UNKNOWN_LIFECYCLE_CODE).collect();
    let to_print =
        [own, first, latest_diagnostics].into_iter().find(|diagnostics| has_errors(diagnostics)).unwrap_or_default();
    print_errors(&to_print, &files);
    None
}

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

/// Returns the lifecycle that a diagnostic reports as unknown.
fn missing_lifecycle<'f>(diagnostic: &Diagnostic, files: &'f InputFiles) -> Option<&'f str> {
    let file = files.files.get(diagnostic.span.file as usize).filter(|_| diagnostic.code == UNKNOWN_LIFECYCLE_CODE)?;
    file.text.get(diagnostic.span.range()).map(|text| text.trim_matches(['"', '\'']))
}

/// Returns whether the keys before the file's first table declare this lifecycle.
fn declares_lifecycle(file: &InputFile, lifecycle: &str) -> bool {
    file.text.lines().map(str::trim).take_while(|line| !line.starts_with('[')).any(|line| {
        let value = line.strip_prefix("lifecycle").and_then(|rest| rest.trim_start().strip_prefix('='));
        value.and_then(|value| value.split(['"', '\'']).nth(1)) == Some(lifecycle)
    })
}

/// Reads the other files in the folders of the given files. Skips unreadable ones.
fn read_siblings(paths: &[PathBuf]) -> Vec<InputFile> {
    let own: Vec<PathBuf> = paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut loaded = LoadedFiles::default();
    for path in paths.iter().filter(|path| !path.is_dir()) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        for file in files::sibling_files(folder) {
            if !file.canonicalize().is_ok_and(|file| own.contains(&file)) {
                let _ = files::read_lifecycle_file(&file, &mut loaded);
            }
        }
    }
    loaded.files.files
}

fn compile_or_print(files: &InputFiles) -> Option<Definitions> {
    let compiled = compile(files);
    if compiled.definitions.is_none() {
        print_errors(&compiled.diagnostics, files);
    }
    compiled.definitions
}

fn print_errors(diagnostics: &[Diagnostic], files: &InputFiles) {
    for diagnostic in diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error) {
        print_stderr(&format!("{}\n", diagnostic.render(files, ColorChoice::Auto.is_enabled())));
    }
}

fn join_names<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> String {
    let names: Vec<&str> = names.map(AsRef::as_ref).filter(|name| !shipped::is_built_in(name)).collect();
    names.join(", ")
}
