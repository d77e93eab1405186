//! Loads the shipped systems from the repository.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use onceward_core::diagnostic::{InputFile, InputFiles, render_all};
use onceward_core::model::Definitions;

use crate::Simulator;

/// `FILE:LINE`, relative to the repository: loads the system without the transition or entry at that line, and without
/// static analysis. A test that still passes does not test it (`cargo xtask rules --prove`).
pub const REMOVAL_ENV_VAR: &str = "ONCEWARD_REMOVED_ENTRY";

/// A folder with changed files of shipped systems, such as `image/job.toml`. They replace the files of the repository
/// and skip static analysis. A test that still passes does not notice the change (`cargo xtask mutants`).
pub const MUTANT_DIR_ENV_VAR: &str = "ONCEWARD_MUTANT_DIR";

pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Loads all lifecycles of a shipped system. Static analysis must pass.
pub fn load_system(system: &str) -> Definitions {
    load_with_files(system, &[])
}

/// Returns a simulator with a shipped system.
pub fn new_simulator(system: &str) -> Simulator {
    Simulator::new(load_system(system))
}

/// Returns the diagnostics of a shipped system as text. A clean system has none.
pub fn warnings(system: &str) -> String {
    let files = InputFiles { files: read_system_files(system).0 };
    match onceward_core::load_definitions(&files) {
        Ok(loaded) => render_all(&loaded.warnings, &files, false),
        Err(diagnostics) => render_all(&diagnostics, &files, false),
    }
}

/// Loads a shipped system together with files of the test (name and text), which need not pass static analysis.
pub fn load_with_files(system: &str, extra_files: &[(&str, &str)]) -> Definitions {
    type DefinitionsCache = HashMap<(String, String), Definitions>;
    // Hundreds of tests of one process load the same few files, so each set is analyzed once.
    static DEFINITIONS_CACHE: OnceLock<Mutex<DefinitionsCache>> = OnceLock::new();
    let key = (system.to_owned(), format!("{extra_files:?}"));
    let cache = DEFINITIONS_CACHE.get_or_init(Mutex::default);
    let found = cache.lock().ok().and_then(|loaded| loaded.get(&key).cloned());
    found.unwrap_or_else(|| {
        let definitions = read_and_compile(system, extra_files);
        if let Ok(mut loaded) = cache.lock() {
            loaded.insert(key, definitions.clone());
        }
        definitions
    })
}

fn read_and_compile(system: &str, extra_files: &[(&str, &str)]) -> Definitions {
    let (mut files, is_unmodified) = read_system_files(system);
    files.extend(extra_files.iter().map(|(name, text)| InputFile { name: (*name).to_owned(), text: (*text).into() }));
    compile(&InputFiles { files }, is_unmodified && extra_files.is_empty())
}

/// Returns the lifecycle files of a shipped system.
pub fn source_files(system: &str) -> Vec<InputFile> {
    read_system_files(system).0
}

/// Returns the lifecycle files of a system, and whether they are unchanged.
fn read_system_files(system: &str) -> (Vec<InputFile>, bool) {
    let folder = repository_root().join("systems").join(system);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter(|path| path.file_name().is_some_and(|name| name != "Cargo.toml"))
        .collect();
    paths.sort();
    let mut files = Vec::new();
    let mut is_unmodified = true;
    for path in paths {
        let file = path.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name");
        let name = format!("systems/{system}/{file}");
        let changed = mutant_dir().map(|folder| folder.join(system).join(file)).filter(|changed| changed.is_file());
        is_unmodified &= changed.is_none();
        let path = changed.unwrap_or(path);
        let mut text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Some(line) = removed_line(&name) {
            text = remove_entry_at(&text, line);
            is_unmodified = false;
        }
        files.push(InputFile { name, text: text.into() });
    }
    (files, is_unmodified)
}

/// Loads only files of the test.
pub fn load_texts(files: &[(&str, &str)]) -> Definitions {
    let files = files.iter().map(|(name, text)| InputFile { name: (*name).to_owned(), text: (*text).into() }).collect();
    compile(&InputFiles { files }, true)
}

fn compile(files: &InputFiles, analyze: bool) -> Definitions {
    if analyze {
        match onceward_core::load_definitions(files) {
            Ok(loaded) => loaded.definitions,
            Err(diagnostics) => panic!("the files fail static analysis:\n{}", render_all(&diagnostics, files, false)),
        }
    } else {
        let compiled = onceward_core::compile::compile(files);
        compiled
            .definitions
            .unwrap_or_else(|| panic!("the files do not compile:\n{}", render_all(&compiled.diagnostics, files, false)))
    }
}

/// Returns the folder with mutated files, if there is one.
pub(crate) fn mutant_dir() -> Option<PathBuf> {
    std::env::var_os(MUTANT_DIR_ENV_VAR).map(PathBuf::from)
}

fn removed_line(file: &str) -> Option<usize> {
    let location = std::env::var(REMOVAL_ENV_VAR).ok()?;
    let (name, line) =
        location.rsplit_once(':').unwrap_or_else(|| panic!("{REMOVAL_ENV_VAR}={location} is not FILE:LINE"));
    let line = line.parse().unwrap_or_else(|_| panic!("{REMOVAL_ENV_VAR}={location} names no line"));
    (name == file).then_some(line)
}

/// Returns whether a table can only be removed as a whole. Lines of `[states]` and similar tables can be removed one by
/// one.
fn is_removed_as_block(header: &str) -> bool {
    header.starts_with("[[")
        || ["[work]", "[errors]", "[payload]", "[access]"].iter().any(|own| header.starts_with(own))
}

/// Removes the transition whose block contains this line (from 1), or the entry on this line. Line numbers stay.
///
/// If other lines need the name, the name stays without its content. Otherwise the file would not compile, every test
/// would fail, and that would prove nothing.
pub fn remove_entry_at(text: &str, line: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    assert!((1..=lines.len()).contains(&line), "there is no line {line}");
    let line_index = line - 1;
    let is_header = |index: &usize| lines[*index].starts_with('[');
    let header = (0..=line_index).rev().find(is_header);
    let cut = match header {
        Some(header) if header == line_index || is_removed_as_block(lines[header]) => {
            header..(header + 1..lines.len()).find(is_header).unwrap_or(lines.len())
        }
        _ => line_index..line_index + 1,
    };
    let table = header.map_or("", |header| lines[header].split(']').next().unwrap_or_default());
    let remaining = lines
        .iter()
        .enumerate()
        .map(|(index, line)| if cut.contains(&index) { neutralize_line(table, line) } else { (*line).to_owned() });
    remaining.collect::<Vec<_>>().join("\n") + "\n"
}

/// Returns the replacement for a removed line.
fn neutralize_line(table: &str, line: &str) -> String {
    let name = line.split('=').next().unwrap_or_default().trim();
    match (table, name) {
        ("[states" | "[who", "") => String::new(),
        ("[states", name) => format!("{name} = {{ rest = true }}"),
        ("[who", name) => format!("{name} = \"false\""),
        ("[work", "lease") => "lease = \"1d\"".to_owned(),
        ("[work", "result") => strip_patterns(line),
        ("[work", _) if line.starts_with("[work]") => line.to_owned(),
        _ => String::new(),
    }
}

/// Removes the patterns of a result. Its fields stay, because transitions read them.
fn strip_patterns(line: &str) -> String {
    let mut parts = line.split(", pattern = \"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('"').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::{remove_entry_at, warnings};

    #[test]
    fn shipped_systems_have_no_warnings() {
        for system in ["execution", "document", "image", "mesh", "relay"] {
            assert_eq!(warnings(system), "", "{system}");
        }
    }

    const SAMPLE_FILE: &str =
        "a = 1\n[limit]\nA = 1\nB = 2\n\n[errors]\nterminal = 3\nrule = 4\n[[on.x]]\ngo = [\n  5,\n]\n[[on.y]]\n";

    #[test]
    fn entry_line_is_removed_alone() {
        assert_eq!(remove_entry_at(SAMPLE_FILE, 3), SAMPLE_FILE.replace("A = 1", ""));
    }

    #[test]
    fn transition_and_errors_table_are_removed_as_block() {
        let no_row = SAMPLE_FILE.replace("[[on.x]]\ngo = [\n  5,\n]\n", "\n\n\n\n");
        assert_eq!(remove_entry_at(SAMPLE_FILE, 9), no_row);
        assert_eq!(remove_entry_at(SAMPLE_FILE, 11), no_row);
        assert_eq!(
            remove_entry_at(SAMPLE_FILE, 8),
            SAMPLE_FILE.replace("[errors]\nterminal = 3\nrule = 4\n", "\n\n\n")
        );
    }

    #[test]
    fn referenced_names_stay_without_effect() {
        let text = "[states]\nA = { final = true }\n[who]\nme = \"true\"\n[work]\nlease = \"1s\"\nstop = \"true\"\n\
            result = { a = { type = \"string\", pattern = \"^x$\" }, b = \"int\" }\nrule = \"X-1\"\n";
        assert_eq!(remove_entry_at(text, 2), text.replace("{ final = true }", "{ rest = true }"));
        assert_eq!(remove_entry_at(text, 4), text.replace("\"true\"\n[work]", "\"false\"\n[work]"));
        let idle = "[work]\nlease = \"1d\"\n\nresult = { a = { type = \"string\" }, b = \"int\" }\n\n";
        assert_eq!(remove_entry_at(text, 9), format!("{}{idle}", &text[..text.find("[work]").expect("work")]));
    }
}
