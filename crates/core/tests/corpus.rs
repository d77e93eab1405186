//! The corpus of bad lifecycle files: one for each diagnostic, with the message that was reviewed. With
//! `ONCEWARD_BLESS=1` the messages are written anew; read the difference before you commit it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use onceward_core::diagnostic::{File, Files, render_all};
use onceward_core::load;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad")
}

struct Case {
    code: String,
    files: Files,
    expected: PathBuf,
}

/// `<code>.toml`, or `<code>/*.toml` where a case needs several files. A case `<code>--more` is a second one.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        let mut paths = if path.is_dir() {
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect()
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            vec![path.clone()]
        } else {
            continue;
        };
        paths.sort();
        let files = paths
            .iter()
            .map(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                File { name, text: fs::read_to_string(path).unwrap().into() }
            })
            .collect();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let code = stem.split("--").next().unwrap().to_owned();
        cases.push(Case { code, files: Files { files }, expected: root().join(format!("{stem}.txt")) });
    }
    cases.sort_by(|a, b| a.expected.cmp(&b.expected));
    cases
}

#[test]
fn every_bad_file_gets_its_reviewed_message() {
    let bless = std::env::var_os("ONCEWARD_BLESS").is_some();
    let mut wrong = Vec::new();
    for case in cases() {
        let found = match load(&case.files) {
            Ok(loaded) => loaded.warnings,
            Err(diagnostics) => diagnostics,
        };
        assert!(
            found.iter().any(|diagnostic| diagnostic.code == case.code),
            "{}: gives {:?}",
            case.expected.display(),
            found.iter().map(|diagnostic| diagnostic.code).collect::<Vec<_>>()
        );
        assert!(found.iter().all(|diagnostic| diagnostic.help.is_some()), "{}: no help", case.expected.display());
        let rendered = render_all(&found, &case.files, false);
        if bless {
            fs::write(&case.expected, &rendered).unwrap();
        } else if fs::read_to_string(&case.expected).unwrap_or_default() != rendered {
            wrong.push(format!("{}:\n{rendered}", case.expected.display()));
        }
    }
    assert!(wrong.is_empty(), "changed messages (ONCEWARD_BLESS=1 writes them):\n{}", wrong.join("\n"));
}

/// Every code that the sources give: the first argument of `Diagnostic::error` and `Diagnostic::warning`, and codes
/// handed to helpers (`"too-many-states"`).
fn codes_in_source() -> BTreeSet<String> {
    fn walk(folder: &Path, codes: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, codes);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]").next().unwrap();
                for opening in ["Diagnostic::error(", "Diagnostic::warning("] {
                    for rest in text.split(opening).skip(1) {
                        if let Some(rest) = rest.trim_start().strip_prefix('"') {
                            codes.insert(rest.split('"').next().unwrap().to_owned());
                        }
                    }
                }
                for rest in text.split("\"too-many-").skip(1) {
                    codes.insert(format!("too-many-{}", rest.split('"').next().unwrap()));
                }
            }
        }
    }
    let mut codes = BTreeSet::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut codes);
    assert!(codes.len() > 40, "the search for codes is broken: {codes:?}");
    codes
}

#[test]
fn every_code_has_a_bad_file() {
    let covered: BTreeSet<String> = cases().into_iter().map(|case| case.code).collect();
    let missing: Vec<_> = codes_in_source().into_iter().filter(|code| !covered.contains(code)).collect();
    assert!(missing.is_empty(), "no file in tests/bad for: {missing:?}");
}

#[test]
fn every_code_is_in_the_docs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language/diagnostics.md");
    let docs = fs::read_to_string(docs).unwrap();
    let missing: Vec<_> = codes_in_source().into_iter().filter(|code| !docs.contains(&format!("| `{code}` |"))).collect();
    assert!(missing.is_empty(), "not in docs/language/diagnostics.md: {missing:?}");
}
