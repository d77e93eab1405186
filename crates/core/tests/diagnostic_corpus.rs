//! Compares the diagnostics of bad lifecycle files with reviewed texts, one case per code. `ONCEWARD_BLESS=1` rewrites
//! the texts; review the difference before you commit it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use onceward_core::diagnostic::{InputFile, InputFiles, render_all};
use onceward_core::load_definitions;

fn corpus_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad")
}

struct CorpusCase {
    code: String,
    files: InputFiles,
    expected: PathBuf,
}

/// Loads `<code>.toml`, or `<code>/*.toml` for a case with several files. `<code>--more` is a further case.
fn load_cases() -> Vec<CorpusCase> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(corpus_dir()).unwrap() {
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
                InputFile { name, text: fs::read_to_string(path).unwrap().into() }
            })
            .collect();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let code = stem.split("--").next().unwrap().to_owned();
        cases.push(CorpusCase {
            code,
            files: InputFiles { files },
            expected: corpus_dir().join(format!("{stem}.txt")),
        });
    }
    for (code, files) in oversized_cases() {
        cases.push(CorpusCase { code: code.to_owned(), files, expected: corpus_dir().join(format!("{code}.txt")) });
    }
    cases.sort_by(|a, b| a.expected.cmp(&b.expected));
    cases
}

/// Returns files beyond a bound. They are generated because they are too large to review.
fn oversized_cases() -> Vec<(&'static str, InputFiles)> {
    let one = |text: String| InputFiles { files: vec![InputFile { name: "large.toml".into(), text: text.into() }] };
    let top = "language = 1\nlifecycle = \"shop.order\"\n";
    let states = "[states]\nOPEN = { rest = true }\n";
    let create = "[[on.create]]\ngo = \"-> OPEN\"\n";
    let many = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    vec![
        ("file-too-large", one(format!("{top}{}", "#".repeat(256 * 1024)))),
        ("too-many-files", InputFiles { files: vec![InputFile { name: "a.toml".into(), text: top.into() }; 257] }),
        ("too-many-states", one(format!("{top}[states]\n{}", many(65, &|n| format!("S{n} = {{ rest = true }}\n"))))),
        ("too-many-fields", one(format!("{top}{states}[fields]\n{}", many(257, &|n| format!("f{n} = \"bool\"\n"))))),
        ("too-many-events", one(format!("{top}{states}{}", many(257, &|n| format!("[[on.e{n}]]\ngo = \"OPEN\"\n"))))),
        ("too-many-transitions", one(format!("{top}{states}{}", create.repeat(1_001)))),
        (
            "too-many-patterns",
            InputFiles {
                files: (0..9)
                    .map(|file| {
                        let name = format!("many{file}.toml");
                        let fields = many(32, &|n| {
                            format!("f{n} = {{ type = \"string\", pattern = '^{n}$', optional = true }}\n")
                        });
                        let text =
                            format!("language = 1\nlifecycle = \"shop.o{file}\"\n{states}[fields]\n{fields}{create}");
                        InputFile { name, text: text.into() }
                    })
                    .collect(),
            },
        ),
        ("expression-too-long", one(format!("{top}{states}{create}when = \"true{}\"\n", " || false".repeat(500)))),
        (
            "expression-too-deep",
            one(format!("{top}{states}{create}when = \"{}true{}\"\n", "(".repeat(40), ")".repeat(40))),
        ),
        (
            "too-many-entries",
            one(format!(
                "{top}{states}{create}refuse = [{}]\n",
                many(65, &|_| "{ if = \"true\", as = \"409 no\" }, ".into())
            )),
        ),
    ]
}

#[test]
fn bad_files_produce_reviewed_diagnostics() {
    let bless = std::env::var_os("ONCEWARD_BLESS").is_some();
    let mut wrong = Vec::new();
    for case in load_cases() {
        let found = match load_definitions(&case.files) {
            Ok(loaded) => loaded.warnings,
            Err(diagnostics) => diagnostics,
        };
        if !found.iter().any(|diagnostic| diagnostic.code == case.code) {
            let codes: Vec<_> = found.iter().map(|diagnostic| diagnostic.code).collect();
            wrong.push(format!("{}: gives {codes:?}", case.expected.display()));
        }
        if found.iter().any(|diagnostic| diagnostic.help.is_none()) {
            wrong.push(format!("{}: a message without help", case.expected.display()));
        }
        let rendered = render_all(&found, &case.files, false);
        if bless {
            fs::write(&case.expected, &rendered).unwrap();
        } else if fs::read_to_string(&case.expected).unwrap_or_default() != rendered {
            wrong.push(format!("{}:\n{rendered}", case.expected.display()));
        }
    }
    assert!(wrong.is_empty(), "changed messages (ONCEWARD_BLESS=1 writes them):\n{}", wrong.join("\n"));
}

/// Returns every code that the sources of a crate emit: arguments of diagnostic constructors and of `report` functions,
/// codes of bounds (`"too-many-states"`) and faults (`"may-overflow"`), and constants.
fn diagnostic_codes_in_source(folder: &str) -> BTreeSet<String> {
    fn walk(folder: &Path, calls: &regex::Regex, codes: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, calls, codes);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]").next().unwrap();
                codes.extend(calls.captures_iter(text).map(|found| {
                    let code = found.iter().skip(1).flatten().next().unwrap();
                    code.as_str().to_owned()
                }));
            }
        }
    }
    let calls = regex::Regex::new(
        r#"(?x)
        (?: Diagnostic::(?:error|warning) | ExprSyntaxError::new ) \( \s* "([a-z-]+)"
        | (?: report | error | warning ) \( \s* "([a-z]+(?:-[a-z]+)+)"
        | "(too-many-[a-z]+|may-[a-z-]+)"
        | const \s [A-Z_]+ : \s &str \s = \s "([a-z]+(?:-[a-z]+)+)"
        "#,
    )
    .unwrap();
    let mut codes = BTreeSet::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &calls, &mut codes);
    codes
}

/// Returns the codes that the documentation lists.
fn documented_diagnostic_codes() -> BTreeSet<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language/diagnostics.md");
    let docs = fs::read_to_string(docs).unwrap();
    docs.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn every_diagnostic_code_has_bad_file() {
    let covered: BTreeSet<String> = load_cases().into_iter().map(|case| case.code).collect();
    let missing: Vec<_> =
        diagnostic_codes_in_source("src").into_iter().filter(|code| !covered.contains(code)).collect();
    assert!(missing.is_empty(), "no file in tests/bad for: {missing:?}");
}

/// Compares in both directions: a code that the search misses is found because it is documented.
#[test]
fn docs_list_exactly_the_emitted_diagnostic_codes() {
    let mut given = diagnostic_codes_in_source("src");
    given.extend(diagnostic_codes_in_source("../onceward/src"));
    assert_eq!(documented_diagnostic_codes(), given);
}
