//! Compiles whole files: the shipped lifecycles, variants of them, and mutations.

use std::fs;
use std::path::Path;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{Diagnostic, InputFile, InputFiles, render_all};
use onceward_core::model::{Definitions, Lifecycle};

fn shipped_files() -> Vec<InputFiles> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
    let mut systems: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    systems.sort();
    systems
        .iter()
        .map(|system| {
            let mut paths: Vec<_> = fs::read_dir(system).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            let files = paths
                .iter()
                .filter(|path| path.extension().is_some_and(|it| it == "toml") && !path.ends_with("Cargo.toml"))
                .map(|path| InputFile {
                    name: format!("{}/{}", system.file_name().unwrap().display(), path.file_name().unwrap().display()),
                    text: fs::read_to_string(path).unwrap().into(),
                })
                .collect();
            InputFiles { files }
        })
        .collect()
}

fn compile_definitions(files: &InputFiles) -> Definitions {
    let compiled = compile(files);
    let shown = render_all(&compiled.diagnostics, files, false);
    compiled.definitions.unwrap_or_else(|| panic!("{shown}"))
}

fn single_file(text: &str) -> InputFiles {
    InputFiles { files: vec![InputFile { name: "a.toml".into(), text: text.into() }] }
}

fn compile_lifecycle(text: &str, name: &str) -> std::sync::Arc<Lifecycle> {
    compile_definitions(&single_file(text)).get(name).unwrap().clone()
}

#[test]
fn shipped_lifecycles_compile() {
    let mut count = 0;
    for files in shipped_files() {
        let definitions = compile_definitions(&files);
        // Each set also has the built-in delivery lifecycle.
        count += definitions.lifecycles.len() - 1;
        assert!(definitions.get("onceward.delivery").is_some());
    }
    assert_eq!(count, 18);
}

const SMALL_LIFECYCLE: &str = r#"language = 1
lifecycle = "a.b"
about = "x"
[states]
A = { rest = true, about = "y" }
B = { final = true }
[fields]
n = { type = "int", default = 0 }
[[on.create]]
go = "-> A"
rule = "DOC-1"
[[on.go]]
go = "A -> B"
when = "record.n > 0"
by = "owner"
"#;

#[test]
fn lifecycle_hash_changes_only_with_meaning() {
    let hash = |text: &str| compile_lifecycle(text, "a.b").hash.clone();
    let base = hash(SMALL_LIFECYCLE);
    assert_eq!(base.len(), 64);
    assert_eq!(base, hash(SMALL_LIFECYCLE), "stable");
    let same = [
        ("about = \"x\"", "about = \"other\" # comment"),
        ("about = \"y\"", "about = \"z\""),
        ("rule = \"DOC-1\"", ""),
        ("go = \"A -> B\"", "go   =   \"A   ->   B\""),
        ("record.n > 0", "record.n   >   0"),
    ];
    for (old, new) in same {
        assert!(SMALL_LIFECYCLE.contains(old));
        assert_eq!(base, hash(&SMALL_LIFECYCLE.replace(old, new)), "{new}");
    }
    let other = [
        ("record.n > 0", "record.n > 1"),
        ("default = 0", "default = 1"),
        ("default = 0", "default = 0, max = 9"),
        ("by = \"owner\"", "by = \"operator\""),
        ("by = \"owner\"", "audit = \"GONE\""),
        ("rest = true, ", "rest = false, "),
        ("[[on.go]]", "[[on.went]]"),
        ("go = \"A -> B\"", "go = \"A\""),
    ];
    for (old, new) in other {
        assert!(SMALL_LIFECYCLE.contains(old));
        assert_ne!(base, hash(&SMALL_LIFECYCLE.replace(old, new)), "{new}");
    }
}

#[test]
fn transitions_record_source_line_and_span() {
    let lifecycle = compile_lifecycle(SMALL_LIFECYCLE, "a.b");
    let go = lifecycle.event("go").unwrap();
    assert_eq!(go.transitions[0].header_line, 12);
    assert_eq!(&SMALL_LIFECYCLE[go.transitions[0].span.range()], "\"A -> B\"");
    assert_eq!(&*go.transitions[0].when.as_ref().unwrap().text, "record.n > 0");
}

#[test]
fn guard_and_refuse_prove_field_non_null_in_same_transition() {
    let file = |transition: &str| {
        single_file(&format!(
            "language = 1\nlifecycle = \"a.b\"\n[states]\nA = {{ rest = true }}\n[fields]\nn = {{ type = \"int\", default = 0 }}\n\
             m = {{ type = \"int\", optional = true }}\n[[on.create]]\ngo = \"-> A\"\n[[on.x]]\ngo = \"A\"\n{transition}\n"
        ))
    };
    let set = "set = { n = \"record.m\" }";
    assert!(compile(&file(set)).definitions.is_none());
    assert!(compile(&file(&format!("{set}\nwhen = \"record.m == null\""))).definitions.is_none());
    compile_definitions(&file(&format!("{set}\nwhen = \"record.m != null && record.n > 0\"")));
    compile_definitions(&file(&format!("{set}\nrefuse = [{{ if = \"record.m == null\", as = \"409 none\" }}]")));
    let part = "set = { n = \"record.n > 3 ? 3 : record.m\" }";
    assert!(compile(&file(part)).definitions.is_none());
    compile_definitions(&file(&format!("{part}\nwhen = \"record.m != null\"")));
}

/// Time grows with every expression, name and transition; a file at the bounds must not take minutes.
#[test]
fn worst_case_files_give_bounded_diagnostics() {
    let top = "language = 1\nlifecycle = \"a.b\"\n[states]\nA = { rest = true }\n";
    let fill = |start: String, piece: &str, end: &str| {
        let count = (256 * 1024 - start.len() - end.len()) / piece.len();
        single_file(&format!("{start}{}{end}", piece.repeat(count)))
    };
    let transitions: String = (0..200)
        .map(|n| format!("[[on.create]]\ngo = \"-> A\"\ninput = {{ x{n} = \"int\" }}\n"))
        .collect::<Vec<_>>()
        .concat();
    let spawns = "[[on.s]]\ngo = \"A\"\nspawn = [{ lifecycle = \"a.b\", fields = { x9 = \"'s'\" } }]\n";
    let fields: String =
        (0..256).map(|n| format!("field_of_some_length_{n} = \"bool\"\n")).collect::<Vec<_>>().concat();
    let files = [
        fill(format!("{top}{transitions}"), spawns, ""),
        fill(
            format!("{top}[fields]\n{fields}[[on.create]]\ngo = \"-> A\"\ntake = ["),
            "\"field_of_some_lengthh_1\",",
            "]\n",
        ),
        fill(top.into(), "[[on.create]]\ngo = \"-> A\"\n", ""),
        fill(top.into(), "[[on.x]]\nfo=1\n", ""),
        fill("a".into(), ".a", " = 1"),
        fill("a = ".into(), "[", ""),
        fill("a = ".into(), "{a=", ""),
        fill(String::new(), "[[a]]\n", ""),
        fill("language = 1\nlifecycle = \"".into(), "a.", "\"\n"),
        fill(format!("{top}[[on.create]]\ngo = \""), "A|", "\"\n"),
        fill(format!("{top}[[on.create]]\ngo = \"-> A\"\nwhen = \""), "(", "\"\n"),
    ];
    for files in files {
        let compiled = compile(&files);
        let shown = render_all(&compiled.diagnostics, &files, false);
        assert!(compiled.definitions.is_none());
        assert!(shown.len() < 2_000_000, "{} bytes of messages", shown.len());
    }
}

/// A suggestion costs far more than a diagnostic. The limit applies to every stage.
#[test]
fn suggestions_stop_after_hundred_diagnostics() {
    let top = "language = 1\nlifecycle = \"a.b\"\n[states]\nA = { rest = true }\n[fields]\nlength = { type = \"bool\", default = false }\n";
    let create = "[[on.create]]\ngo = \"-> A\"\n";
    let many = |line: &dyn Fn(usize) -> String| {
        single_file(&format!("{top}{create}{}", (0..400).map(line).collect::<String>()))
    };
    let files = [
        many(&|n| format!("[[on.e{}]]\ngo = \"A\"\nwehn = \"true\"\n", n % 100)),
        many(&|n| format!("[[on.e{}]]\ngo = \"A\"\ntake = [\"lenght\"]\n", n % 100)),
        many(&|n| format!("[[on.e{}]]\ngo = \"A\"\nwhen = \"record.lenght || record.lenght\"\n", n % 100)),
        many(&|n| format!("[[on.e{}]]\ngo = \"A\"\nby = \"ower\"\n", n % 100)),
    ];
    for files in files {
        let found = compile(&files).diagnostics;
        let guessed = |found: &&Diagnostic| found.help.as_ref().is_some_and(|help| help.contains("did you mean"));
        assert!(found.len() >= 400, "{}", found.len());
        assert_eq!(found.iter().filter(guessed).count(), 100, "{}", found[0].message);
        assert!(found[..100].iter().all(|found| guessed(&found)), "the first diagnostics have a suggestion");
    }
}

/// An own generator, so that a failing seed gives the same file on every machine.
struct XorshiftRng(u64);

impl XorshiftRng {
    fn next_below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % below.max(1)
    }
}

fn mutate_text(text: &str, rng: &mut XorshiftRng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=rng.next_below(4) {
        let at = rng.next_below(bytes.len());
        match rng.next_below(7) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.next_below(8);
                }
            }
            1 => bytes.truncate(at),
            2 | 3 => {
                let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
                let (from, to) = (rng.next_below(lines.len()), rng.next_below(lines.len()));
                let line = lines[from];
                if rng.next_below(2) == 0 {
                    lines.insert(to, line);
                } else {
                    lines.remove(from);
                }
                bytes = lines.join(&b'\n');
            }
            4 => {
                let pieces: [&[u8]; 12] = [
                    b"\"",
                    b"'",
                    b"{",
                    b"}",
                    b"[",
                    b"->",
                    b"|",
                    b"null",
                    b"\xff\xfe",
                    "é".as_bytes(),
                    b"record.",
                    b"99999999999999999999",
                ];
                let piece = pieces[rng.next_below(pieces.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            5 => {
                let end = (at + rng.next_below(30)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            _ => {
                let end = (at + rng.next_below(30)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                let to = rng.next_below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// INV-6
#[test]
fn mutated_files_compile_without_panic() {
    let seed_count: u64 = std::env::var("ONCEWARD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let first: u64 = std::env::var("ONCEWARD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let systems = shipped_files();
    for seed in first..first + seed_count {
        let mut rng = XorshiftRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut files = systems[rng.next_below(systems.len())].clone();
        let at = rng.next_below(files.files.len());
        files.files[at].text = mutate_text(&files.files[at].text, &mut rng).into();
        let outcome = std::panic::catch_unwind(|| {
            let compiled = compile(&files);
            render_all(&compiled.diagnostics, &files, true);
            assert_eq!(
                compiled.definitions.is_none(),
                compiled.diagnostics.iter().any(|found| found.severity == onceward_core::diagnostic::Severity::Error)
            );
        });
        assert!(
            outcome.is_ok(),
            "ONCEWARD_SEED={seed} ONCEWARD_ROUNDS=1, file {}:\n{}",
            files.files[at].name,
            files.files[at].text
        );
    }
}
