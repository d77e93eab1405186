//! Compiles a set of lifecycle files.
//!
//! Runs three stages: parse, signatures, lifecycles. A stage runs only if the stage before reported no error, so that
//! one mistake does not cause a series of follow-up errors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fields::DeclarationCompiler;
use super::hash;
use super::lifecycle::{CompileContext, LifecycleBuilder, compile_payload_bounds};
use super::signature;
use crate::bounds;
use crate::diagnostic::{Diagnostic, InputFile, InputFiles, Severity, Span};
use crate::expr::LifecycleSignatures;
use crate::model::Definitions;
use crate::syntax::ast::LifecycleSource;
use crate::syntax::parse;

/// File index of built-in files. They are not in [`InputFiles`], so no diagnostic points to them.
const BUILTIN_FILE_INDEX: u32 = u32::MAX;

/// The diagnostics of a set of files, and its definitions if none of them is an error.
#[derive(Debug)]
pub struct CompileResult {
    pub definitions: Option<Definitions>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Compiles files to definitions: resolves names and types expressions. Does not run static analysis; that is
/// [`analyze`](crate::analysis::analyze).
pub fn compile(files: &InputFiles) -> CompileResult {
    let mut out = Vec::new();
    let definitions = run_stages(files, &mut out);
    let good = !has_errors(&out);
    out.truncate(bounds::MAX_DIAGNOSTICS);
    CompileResult { definitions: definitions.filter(|_| good), diagnostics: out }
}

/// Returns the names of the lifecycles that the files declare, even if the files have other errors.
pub fn declared_lifecycles(files: &InputFiles) -> BTreeSet<Arc<str>> {
    let mut patterns = bounds::MAX_PATTERNS_TOTAL;
    let sources = files.files.iter().filter_map(|file| parse(0, file, &mut patterns, &mut Vec::new()));
    sources.map(|source| source.lifecycle.text).collect()
}

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

fn run_stages(files: &InputFiles, out: &mut Vec<Diagnostic>) -> Option<Definitions> {
    let sources = parse_files(files, out);
    if has_errors(out) {
        return None;
    }
    let context = build_context(&sources, out);
    if has_errors(out) {
        return None;
    }
    let mut definitions = Definitions::default();
    for source in &sources {
        let own = context.signatures.get(&source.lifecycle.text)?;
        let (mut lifecycle, diagnostics) = LifecycleBuilder::new(source, own, &context, out.len()).build();
        out.extend(diagnostics);
        // Serialization cannot fail: the model has only string keys and only numbers that JSON can represent.
        lifecycle.hash = hash::lifecycle_hash(&lifecycle).ok()?;
        definitions.lifecycles.insert(lifecycle.name.clone(), Arc::new(lifecycle));
    }
    Some(definitions)
}

fn parse_files(files: &InputFiles, diagnostics: &mut Vec<Diagnostic>) -> Vec<LifecycleSource> {
    if files.files.len() > bounds::MAX_FILES {
        diagnostics.push(
            Diagnostic::error("too-many-files", Span::default(), format!("{} files are too many", files.files.len()))
                .label("the first file")
                .help(format!("give at most {} files at once", bounds::MAX_FILES)),
        );
        return Vec::new();
    }
    // EXE-16: every set of definitions includes the delivery lifecycle.
    let delivery = include_str!("../builtin/delivery.toml");
    let builtin = InputFile { name: "onceward.delivery".into(), text: delivery.into() };
    let mut patterns = bounds::MAX_PATTERNS_TOTAL + 2;
    let mut sources: Vec<LifecycleSource> =
        parse(BUILTIN_FILE_INDEX, &builtin, &mut patterns, diagnostics).into_iter().collect();
    for (index, file) in files.files.iter().enumerate() {
        let Ok(index) = u32::try_from(index) else { continue };
        let Some(source) = parse(index, file, &mut patterns, diagnostics) else { continue };
        if source.lifecycle.text.starts_with("onceward.") {
            diagnostics.push(
                Diagnostic::error(
                    "reserved-lifecycle",
                    source.lifecycle.span(),
                    "names that start with `onceward.` are reserved for built-in lifecycles",
                )
                .label("reserved")
                .help("name it after your system, such as \"document.job\""),
            );
            continue;
        }
        if let Some(first) = sources.iter().find(|other| other.lifecycle.text == source.lifecycle.text) {
            diagnostics.push(
                Diagnostic::error(
                    "duplicate-lifecycle",
                    source.lifecycle.span(),
                    format!("`{}` is declared twice", source.lifecycle.text),
                )
                .label("the second time")
                .related(first.lifecycle.span(), "the first time")
                .help("rename one of the two, or leave out one file"),
            );
            continue;
        }
        sources.push(source);
    }
    sources
}

fn build_context(sources: &[LifecycleSource], diagnostics: &mut Vec<Diagnostic>) -> CompileContext {
    let lifecycle_names: BTreeSet<Arc<str>> = sources.iter().map(|source| source.lifecycle.text.clone()).collect();
    let mut signatures = LifecycleSignatures::new();
    let mut payloads = BTreeMap::new();
    for source in sources {
        payloads.insert(source.lifecycle.text.clone(), compile_payload_bounds(source, diagnostics));
        if let Some(signature) = signature::compile_signature(
            source,
            &mut DeclarationCompiler { lifecycle_names: &lifecycle_names, diagnostics },
        ) {
            signatures.insert(signature.name.clone(), signature);
        }
    }
    for source in sources {
        let mut declarer = DeclarationCompiler { lifecycle_names: &lifecycle_names, diagnostics };
        source.links.iter().flat_map(|link| &link.from).for_each(|from| declarer.require_link_lifecycle(from));
        source.lookups.iter().for_each(|lookup| _ = declarer.require_lifecycle(&lookup.target_lifecycle));
    }
    let mut transition_signatures = BTreeMap::new();
    for source in sources {
        let Some(signature) = signatures.get(&source.lifecycle.text) else { continue };
        let found = signature::compile_transition_signatures(
            source,
            signature,
            &mut DeclarationCompiler { lifecycle_names: &lifecycle_names, diagnostics },
        );
        transition_signatures.insert(source.lifecycle.text.clone(), found);
    }
    CompileContext { lifecycle_names, signatures, transition_signatures, payload_bounds: payloads }
}
