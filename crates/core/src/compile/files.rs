//! All files that are given together. Three stages; a stage is entered only where the one before found no error, so
//! that one slip does not drag a tail of others behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::declared::Declarer;
use super::hash;
use super::lifecycle::{Builder, World, payload_bounds};
use super::shape;
use crate::bounds;
use crate::diagnostic::{Diagnostic, File, Files, Severity, Span};
use crate::expr::Signatures;
use crate::model::Definitions;
use crate::syntax::ast::Source;
use crate::syntax::parse;

/// The built-in files are not among those given: no message ever points into them.
const BUILTIN_FILE: u32 = u32::MAX;

/// What came of the files: definitions where nothing was wrong, and what was found.
#[derive(Debug)]
pub struct Compiled {
    pub definitions: Option<Definitions>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Files to definitions: names resolved, expressions typed. Proves nothing about where the rows lead.
pub fn compile(files: &Files) -> Compiled {
    let mut out = Vec::new();
    let definitions = stages(files, &mut out);
    let good = !has_errors(&out);
    out.truncate(bounds::DIAGNOSTICS);
    Compiled { definitions: definitions.filter(|_| good), diagnostics: out }
}

/// The lifecycles that files declare, right or wrong in all else.
pub fn declared(files: &Files) -> BTreeSet<Arc<str>> {
    let mut patterns = bounds::PATTERNS_TOGETHER;
    let sources = files.files.iter().filter_map(|file| parse(0, file, &mut patterns, &mut Vec::new()));
    sources.map(|source| source.lifecycle.text).collect()
}

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

fn stages(files: &Files, out: &mut Vec<Diagnostic>) -> Option<Definitions> {
    let sources = read(files, out);
    if has_errors(out) {
        return None;
    }
    let world = declare(&sources, out);
    if has_errors(out) {
        return None;
    }
    let mut definitions = Definitions::default();
    for source in &sources {
        let own = world.signatures.get(&source.lifecycle.text)?;
        let (mut lifecycle, diagnostics) = Builder::new(source, own, &world, out.len()).build();
        out.extend(diagnostics);
        // The model holds no map with keys other than text and no number that JSON cannot write.
        lifecycle.hash = hash::of(&lifecycle).ok()?;
        definitions.lifecycles.insert(lifecycle.name.clone(), Arc::new(lifecycle));
    }
    Some(definitions)
}

fn read(files: &Files, out: &mut Vec<Diagnostic>) -> Vec<Source> {
    if files.files.len() > bounds::FILES {
        out.push(
            Diagnostic::error(
                "too-many-files",
                Span::default(),
                format!("{} files are too many at once", files.files.len()),
            )
            .label("the first of them")
            .help(format!("give at most {} files together", bounds::FILES)),
        );
        return Vec::new();
    }
    // Messages to the outside; part of every set of definitions (EXE-16).
    let delivery = include_str!("../builtin/delivery.toml");
    let builtin = File { name: "onceward.delivery".into(), text: delivery.into() };
    let mut patterns = bounds::PATTERNS_TOGETHER + 2;
    let mut sources: Vec<Source> = parse(BUILTIN_FILE, &builtin, &mut patterns, out).into_iter().collect();
    for (index, file) in files.files.iter().enumerate() {
        let Ok(index) = u32::try_from(index) else { continue };
        let Some(source) = parse(index, file, &mut patterns, out) else { continue };
        if source.lifecycle.text.starts_with("onceward.") {
            out.push(
                Diagnostic::error(
                    "reserved-lifecycle",
                    source.lifecycle.at(),
                    "names in `onceward.` belong to the built-in lifecycles",
                )
                .label("reserved")
                .help("name it after your own system, as \"document.job\""),
            );
            continue;
        }
        if let Some(first) = sources.iter().find(|other| other.lifecycle.text == source.lifecycle.text) {
            out.push(
                Diagnostic::error(
                    "duplicate-lifecycle",
                    source.lifecycle.at(),
                    format!("`{}` is declared twice", source.lifecycle.text),
                )
                .label("a second time")
                .also(first.lifecycle.at(), "the first time")
                .help("give one of the two another name, or leave one file out"),
            );
            continue;
        }
        sources.push(source);
    }
    sources
}

fn declare(sources: &[Source], out: &mut Vec<Diagnostic>) -> World {
    let lifecycles: BTreeSet<Arc<str>> = sources.iter().map(|source| source.lifecycle.text.clone()).collect();
    let mut signatures = Signatures::new();
    let mut payloads = BTreeMap::new();
    for source in sources {
        payloads.insert(source.lifecycle.text.clone(), payload_bounds(source, out));
        if let Some(signature) = shape::signature(source, &mut Declarer { lifecycles: &lifecycles, out }) {
            signatures.insert(signature.name.clone(), signature);
        }
    }
    for source in sources {
        let mut declarer = Declarer { lifecycles: &lifecycles, out };
        source.links.iter().flat_map(|link| &link.from).for_each(|from| declarer.link_lifecycle(from));
        source.lookups.iter().for_each(|lookup| _ = declarer.lifecycle(&lookup.to));
    }
    let mut shapes = BTreeMap::new();
    for source in sources {
        let Some(signature) = signatures.get(&source.lifecycle.text) else { continue };
        let found = shape::shapes(source, signature, &mut Declarer { lifecycles: &lifecycles, out });
        shapes.insert(source.lifecycle.text.clone(), found);
    }
    World { lifecycles, signatures, shapes, payloads }
}
