//! `onceward draw`: a lifecycle as a picture.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{Diagnostic, Files, Severity};
use onceward_core::draw;
use onceward_core::model::{Definitions, Lifecycle};

use crate::answer::{Color, Outcome, complain, say};
use crate::{files, shipped};

/// Print a lifecycle as a picture
///
/// By name for the lifecycles that ship with Onceward, or from files. The file must be readable as a lifecycle, but need not be
/// proved sound: a picture helps to find out why it is not.
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
    /// Write it to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Draw {
    pub(crate) fn run(&self) -> Result<Outcome> {
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
        let is_svg = |path: &PathBuf| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
        let svg = self.svg || (!self.mermaid && self.output.as_ref().is_some_and(is_svg));
        let picture = if svg { draw::svg(&lifecycle) } else { draw::mermaid(&lifecycle) };
        match &self.output {
            None => say(&picture)?,
            Some(path) => std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?,
        }
        Ok(Outcome::Done)
    }
}

fn from_shipped(name: &str) -> Result<Option<Arc<Lifecycle>>> {
    let files = shipped::files();
    let Some(definitions) = compiled(&files) else { return Ok(None) };
    match definitions.get(name) {
        Some(lifecycle) => Ok(Some(lifecycle.clone())),
        None => bail!(
            "there is no file and no shipped lifecycle called {name}; shipped are {}",
            names(definitions.lifecycles.keys())
        ),
    }
}

/// From files; `None` once their errors have been shown. A lone file that refers to its neighbours is read with them.
fn from_files(paths: &[PathBuf], name: Option<&str>) -> Result<Option<Arc<Lifecycle>>> {
    let reading = files::read(paths)?;
    if !reading.unfit.is_empty() {
        reading.unfit.iter().for_each(|line| complain(&format!("error: {line}\n")));
        return Ok(None);
    }
    let given = reading.files.files.len();
    let definitions = match compile(&reading.files).definitions {
        Some(definitions) => definitions,
        None => match compiled(&with_neighbours(&reading.files, paths)) {
            Some(definitions) => definitions,
            None => return Ok(None),
        },
    };
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

/// The given files first, then the others of their folders. A neighbour that cannot be read is none.
fn with_neighbours(files: &Files, paths: &[PathBuf]) -> Files {
    let mut all = paths.to_vec();
    for path in paths.iter().filter(|path| !path.is_dir()) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        all.extend(files::inside(folder).unwrap_or_default());
    }
    files::read(&all).map_or_else(|_| files.clone(), |reading| reading.files)
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
