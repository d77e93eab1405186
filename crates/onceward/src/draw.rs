//! `onceward draw`: a lifecycle as a picture.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{Diagnostic, File, Files, Severity};
use onceward_core::draw;
use onceward_core::model::{Definitions, Lifecycle};

use crate::answer::{Color, Outcome, complain, say};
use crate::files::{self, Reading};
use crate::shipped;

/// Print a lifecycle as a picture
///
/// By name for the lifecycles that ship with Onceward, or from files. The file must be readable as a lifecycle, but need not be
/// proved sound: a picture helps to find out why it is not.
///
/// A file that refers to lifecycles in other files needs no more than its own name: those that it refers to are looked for
/// among the *.toml files beside it. Other files there are left alone, whatever is wrong with them.
#[derive(Args)]
#[command(after_help = "Example:\n  onceward draw image.job\n  onceward draw image.job --svg -o job.svg\n  \
                        onceward draw systems/image/job.toml\n  onceward draw image.job systems/image")]
pub(crate) struct Draw {
    /// Name of a lifecycle, or a file
    #[arg(value_name = "NAME|FILE")]
    what: String,
    /// Files or folders to find it in, instead of the shipped systems
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// As Mermaid text (the default)
    #[arg(long, conflicts_with = "svg")]
    mermaid: bool,
    /// As an SVG picture (the default where -o names a .svg file)
    #[arg(long)]
    svg: bool,
    /// Write it to this file: .svg for SVG; .mmd, .md or .txt for Mermaid
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Draw {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let form = self.form()?;
        let is_file = Path::new(&self.what).exists();
        let looks_like_file = self.what.contains(['/', '\\'])
            || Path::new(&self.what).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let found = if is_file || looks_like_file {
            let mut paths = vec![PathBuf::from(&self.what)];
            paths.extend(self.paths.iter().cloned());
            from_files(&paths, None)?
        } else if self.paths.is_empty() {
            from_shipped(&self.what)?
        } else {
            from_files(&self.paths, Some(&self.what))?
        };
        let Some(lifecycle) = found else { return Ok(Outcome::Wanting) };
        let picture = match form {
            Form::Svg => draw::svg(&lifecycle),
            Form::Mermaid => draw::mermaid(&lifecycle),
        };
        match &self.output {
            None => say(&picture)?,
            Some(path) => std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?,
        }
        Ok(Outcome::Done)
    }

    /// Which picture it is. A file whose ending promises another one would be opened by the wrong program.
    fn form(&self) -> Result<Form> {
        let asked = match (self.svg, self.mermaid) {
            (true, _) => Some(Form::Svg),
            (_, true) => Some(Form::Mermaid),
            _ => None,
        };
        let path = self.output.as_deref().unwrap_or(Path::new(""));
        let Some(ending) = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()) else {
            return Ok(asked.unwrap_or(Form::Mermaid));
        };
        let file = path.display();
        match (ending.as_str(), asked) {
            ("svg", None | Some(Form::Svg)) => Ok(Form::Svg),
            ("mmd" | "mermaid" | "md" | "txt", None | Some(Form::Mermaid)) => Ok(Form::Mermaid),
            ("svg", _) => bail!("{file} would hold Mermaid text, not SVG; leave --mermaid out, or end it in .mmd"),
            ("mmd" | "mermaid" | "md" | "txt", _) => bail!("{file} would hold SVG; leave --svg out, or end it in .svg"),
            _ => bail!("cannot draw .{ending} ({file}); end it in .svg for SVG, or in .mmd, .md or .txt for Mermaid"),
        }
    }
}

#[derive(Clone, Copy)]
enum Form {
    Mermaid,
    Svg,
}

fn from_shipped(name: &str) -> Result<Option<Arc<Lifecycle>>> {
    let files = shipped::files();
    let Some(definitions) = compiled(&files) else { return Ok(None) };
    if let Some(lifecycle) = definitions.get(name) {
        return Ok(Some(Arc::clone(lifecycle)));
    }
    let known = names(definitions.lifecycles.keys());
    let near = onceward_core::nearest(name, known.split(", "));
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    bail!("there is no file and no shipped lifecycle called {name}; shipped are {known}{near}")
}

/// From files; `None` once their errors have been shown.
fn from_files(paths: &[PathBuf], name: Option<&str>) -> Result<Option<Arc<Lifecycle>>> {
    let reading = files::read(paths)?;
    if !reading.unfit.is_empty() {
        reading.unfit.iter().for_each(|unfit| complain(&format!("error: {}\n", unfit.message)));
        return Ok(None);
    }
    let given = reading.files.files.len();
    let Some(definitions) = with_neighbours(reading.files, paths) else { return Ok(None) };
    let candidates: Vec<&Arc<Lifecycle>> = definitions
        .lifecycles
        .values()
        .filter(|lifecycle| match name {
            Some(name) => *lifecycle.name == *name,
            None => !shipped::is_built_in(&lifecycle.name) && file_of(lifecycle).is_some_and(|file| file < given),
        })
        .collect();
    match (candidates.as_slice(), name) {
        ([one], _) => Ok(Some((*one).clone())),
        ([], Some(name)) => {
            bail!("these files declare no lifecycle called {name}, only {}", names(definitions.lifecycles.keys()))
        }
        (many, _) => bail!(
            "these files declare {} lifecycles, say which one: onceward draw NAME FILE…, where NAME is one of {}",
            many.len(),
            names(many.iter().map(|lifecycle| &lifecycle.name))
        ),
    }
}

/// Which of the files declares it.
fn file_of(lifecycle: &Lifecycle) -> Option<usize> {
    lifecycle.states.first().map(|state| state.at.file as usize)
}

const UNKNOWN: &str = "unknown-lifecycle";

/// The files, and those beside them that declare what they refer to, and what these refer to in turn. Where it comes to
/// nothing, only what is wrong with the files themselves is shown, if anything is.
fn with_neighbours(given: Files, paths: &[PathBuf]) -> Option<Definitions> {
    let count = given.files.len();
    let mut files = given;
    let alone = compile(&files);
    let mut latest = alone.diagnostics.clone();
    if alone.definitions.is_some() {
        return alone.definitions;
    }
    let mut neighbours = neighbours(paths);
    loop {
        let wanted: Vec<&str> = latest.iter().filter_map(|diagnostic| wanted(diagnostic, &files)).collect();
        let Some(found) = neighbours.iter().position(|file| wanted.iter().any(|name| declares(file, name))) else {
            break;
        };
        files.files.push(neighbours.remove(found));
        let compiled = compile(&files);
        if compiled.definitions.is_some() {
            return compiled.definitions;
        }
        latest = compiled.diagnostics;
    }
    let of_given = |diagnostic: &&Diagnostic| (diagnostic.at.file as usize) < count;
    let own: Vec<Diagnostic> = latest.iter().filter(of_given).cloned().collect();
    let first: Vec<Diagnostic> =
        alone.diagnostics.into_iter().filter(|diagnostic| diagnostic.code != UNKNOWN).collect();
    let shown = [own, first, latest].into_iter().find(|diagnostics| has_errors(diagnostics)).unwrap_or_default();
    show(&shown, &files);
    None
}

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

/// The lifecycle that a message misses.
fn wanted<'f>(diagnostic: &Diagnostic, files: &'f Files) -> Option<&'f str> {
    let file = files.files.get(diagnostic.at.file as usize).filter(|_| diagnostic.code == UNKNOWN)?;
    file.text.get(diagnostic.at.range()).map(|text| text.trim_matches(['"', '\'']))
}

/// Whether a file says, before its first table, that it is this lifecycle's.
fn declares(file: &File, lifecycle: &str) -> bool {
    file.text.lines().map(str::trim).take_while(|line| !line.starts_with('[')).any(|line| {
        let value = line.strip_prefix("lifecycle").and_then(|rest| rest.trim_start().strip_prefix('='));
        value.and_then(|value| value.split(['"', '\'']).nth(1)) == Some(lifecycle)
    })
}

/// The other files of the folders in which files were named. One that cannot be read is none.
fn neighbours(paths: &[PathBuf]) -> Vec<File> {
    let own: Vec<PathBuf> = paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut reading = Reading::default();
    for path in paths.iter().filter(|path| !path.is_dir()) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        for file in files::beside(folder) {
            if !file.canonicalize().is_ok_and(|file| own.contains(&file)) {
                let _ = files::read_one(&file, &mut reading);
            }
        }
    }
    reading.files.files
}

fn compiled(files: &Files) -> Option<Definitions> {
    let compiled = compile(files);
    if compiled.definitions.is_none() {
        show(&compiled.diagnostics, files);
    }
    compiled.definitions
}

fn show(diagnostics: &[Diagnostic], files: &Files) {
    for diagnostic in diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error) {
        complain(&format!("{}\n", diagnostic.render(files, Color::Auto.wanted())));
    }
}

fn names<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> String {
    let names: Vec<&str> = names.map(AsRef::as_ref).filter(|name| !shipped::is_built_in(name)).collect();
    names.join(", ")
}
