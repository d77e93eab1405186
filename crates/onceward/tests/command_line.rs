//! Tests commands on lifecycle files with the real binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run_onceward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward"))
        .current_dir(repository_root())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Creates an empty folder for a test.
fn create_test_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

fn write_file(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("file");
    path.to_string_lossy().into_owned()
}

const VALID_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "door.door"
about     = "A door"

[states]
shut = { about = "closed", rest = true }
gone = { about = "broken down", final = true }

[[on.create]]
go = "-> shut"

[[on.break]]
go = "shut -> gone"
"#;

#[test]
fn check_lists_valid_lifecycles_and_exits_0() {
    let done = run_onceward(&["check", "systems/image"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
    let printed = stdout_text(&done);
    assert!(printed.starts_with("3 lifecycles are sound"), "{printed}");
    assert!(printed.trim_end().ends_with(": image.asset, image.grant, image.job"), "{printed}");
}

#[test]
fn control_characters_in_file_names_are_replaced() {
    let folder = create_test_folder("names");
    write_file(&folder, "red\u{1b}[31m.toml", "language = 2\n");
    let done = run_onceward(&["check", &folder.to_string_lossy()]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr_text(&done));
    assert!(stderr_text(&done).contains("red\u{fffd}[31m.toml"), "{}", stderr_text(&done));
    assert!(!stderr_text(&done).contains('\u{1b}'), "{}", stderr_text(&done));
}

#[test]
fn check_accepts_all_shipped_systems_together() {
    let done = run_onceward(&[
        "check",
        "systems/execution",
        "systems/document",
        "systems/image",
        "systems/mesh",
        "systems/relay",
    ]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
}

#[test]
fn check_shows_error_position_and_exits_1() {
    let bad = write_file(
        &create_test_folder("wanting"),
        "door.toml",
        VALID_LIFECYCLE.replace("shut -> gone", "shut -> lost"),
    );
    let done = run_onceward(&["check", &bad]);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(stdout_text(&done), "");
    let printed = stderr_text(&done);
    assert!(printed.contains("error[unknown-state]") && printed.contains("door.toml:14:"), "{printed}");
    assert!(printed.contains("check failed: 1 error\n"), "{printed}");
    assert!(!printed.contains('\u{1b}'), "no colors without a terminal: {printed:?}");
    assert!(stderr_text(&run_onceward(&["check", &bad, "--color", "always"])).contains('\u{1b}'));
}

#[test]
fn check_json_contains_diagnostics() {
    let folder = create_test_folder("json");
    let bad = write_file(&folder, "door.toml", VALID_LIFECYCLE.replace("shut -> gone", "shut -> lost"));
    let done = run_onceward(&["check", &bad, "--json"]);
    assert_eq!(done.status.code(), Some(1));
    let printed: serde_json::Value = serde_json::from_str(&stdout_text(&done)).expect("JSON");
    assert_eq!(printed["sound"], false);
    assert_eq!(printed["diagnostics"][0]["code"], "unknown-state");
    assert_eq!(printed["diagnostics"][0]["at"]["line"], 14);
    let good = write_file(&folder, "door.toml", VALID_LIFECYCLE);
    let printed: serde_json::Value =
        serde_json::from_str(&stdout_text(&run_onceward(&["check", &good, "--json"]))).expect("JSON");
    assert_eq!((&printed["sound"], &printed["lifecycles"][0]), (&true.into(), &"door.door".into()));
}

#[test]
fn unreadable_argument_exits_2() {
    let empty = create_test_folder("empty");
    for (arguments, expected) in [
        (vec!["check", "no/such.toml"], "cannot read no/such.toml"),
        (vec!["check", empty.to_str().expect("UTF-8")], "has no lifecycle files"),
        (vec!["check"], "required"),
        (vec!["draw", "no/such.toml"], "cannot read no/such.toml"),
        (vec!["draw", "image.jobb"], "did you mean image.job?"),
        (vec!["draw", "no.such"], "no shipped lifecycle is called no.such; shipped lifecycles: "),
        (vec!["draw", "image.job", "--svg", "-o", "/no/such/folder/x.svg"], "cannot write /no/such/folder/x.svg"),
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["work", "a.b", "--lease", "0s", "--", "true"], "the duration must be greater than zero"),
        (vec!["work", "a.b", "--concurrency", "0", "--", "true"], "expected a whole number of 1 or more"),
    ] {
        let done = run_onceward(&arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", stderr_text(&done));
        assert!(stderr_text(&done).contains(expected), "{arguments:?}: {}", stderr_text(&done));
        assert_eq!(stdout_text(&done), "", "{arguments:?}");
    }
}

#[test]
fn oversized_or_binary_file_exits_1() {
    let folder = create_test_folder("unfit");
    let binary = write_file(&folder, "binary.toml", b"language = \"\xff\"");
    let large = write_file(&folder, "large.toml", vec![b'#'; 256 * 1024 + 1]);
    for (file, expected) in [
        (binary.as_str(), "is not valid UTF-8: invalid byte at offset 12 (line 1, column 13)"),
        (large.as_str(), "is too large: a lifecycle file has at most 256 KB"),
        // A device has no length, so the limit must hold while reading.
        ("/dev/zero", "is too large: a lifecycle file has"),
    ] {
        for verb in ["check", "draw"] {
            let done = run_onceward(&[verb, file]);
            assert_eq!(done.status.code(), Some(1), "{verb} {file}: {}", stderr_text(&done));
            assert!(stderr_text(&done).contains(expected), "{verb} {file}: {}", stderr_text(&done));
        }
    }
}

#[test]
fn check_skips_cargo_toml_and_duplicate_paths() {
    let folder = create_test_folder("package");
    write_file(&folder, "Cargo.toml", "[package]\n");
    let door = write_file(&folder, "door.toml", VALID_LIFECYCLE);
    let done = run_onceward(&["check", folder.to_str().expect("UTF-8"), &door]);
    assert_eq!(
        (done.status.code(), stdout_text(&done).as_str()),
        (Some(0), "1 lifecycle is sound: door.door\n"),
        "{}",
        stderr_text(&done)
    );
}

/// A file that is named is always checked.
#[test]
fn check_skips_unrelated_toml_files_in_folders() {
    let folder = create_test_folder("others");
    let other = write_file(&folder, "rustfmt.toml", "max_width = 120\n");
    let path = folder.to_string_lossy().into_owned();
    let done = run_onceward(&["check", &path]);
    assert_eq!(done.status.code(), Some(2), "{}", stderr_text(&done));
    assert!(stderr_text(&done).contains("has no lifecycle files"), "{}", stderr_text(&done));
    write_file(&folder, "door.toml", VALID_LIFECYCLE);
    let done = run_onceward(&["check", &path]);
    assert_eq!(
        (stdout_text(&done).as_str(), stderr_text(&done)),
        ("1 lifecycle is sound: door.door\n", format!("note: skipped {other}: not a lifecycle file\n"))
    );
    for paths in [[&path, &other], [&other, &path]] {
        let done = run_onceward(&["check", paths[0], paths[1]]);
        assert_eq!(done.status.code(), Some(1), "{}", stdout_text(&done));
        assert!(
            stderr_text(&done).contains("rustfmt.toml:1:") && !stderr_text(&done).contains("skipped"),
            "{}",
            stderr_text(&done)
        );
    }
    // A file that partly looks like a lifecycle is checked.
    write_file(&folder, "half.toml", "[states]\nopen = { rest = true }\n");
    assert_eq!(run_onceward(&["check", &path]).status.code(), Some(1));
}

#[test]
fn draw_finds_shipped_lifecycles_in_any_folder() {
    let draw = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command.current_dir(create_test_folder("anywhere")).args(arguments).output().expect("the binary runs")
    };
    let mermaid = draw(&["draw", "image.job"]);
    assert_eq!(mermaid.status.code(), Some(0), "{}", stderr_text(&mermaid));
    assert!(
        stdout_text(&mermaid).contains("stateDiagram-v2") && stdout_text(&mermaid).contains("waiting for the backoff"),
        "{}",
        stdout_text(&mermaid)
    );
    let svg = stdout_text(&draw(&["draw", "image.job", "--svg"]));
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("dead_letter"), "{svg}");
}

#[test]
fn binary_contains_every_system_lifecycle() {
    let printed = stderr_text(&run_onceward(&["draw", "no.such"]));
    let shipped: Vec<&str> =
        printed.trim_end().split_once("shipped lifecycles: ").expect("the list").1.split(", ").collect();
    let folders = std::fs::read_dir(repository_root().join("systems"))
        .expect("the systems")
        .map(|entry| entry.expect("one").path());
    let mut declared = Vec::new();
    for folder in folders.filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(&folder).expect("a system").map(|entry| entry.expect("file").path()) {
            let is_toml = file.extension().is_some_and(|extension| extension == "toml");
            if is_toml && !file.ends_with("Cargo.toml") {
                let part = |path: &Path| path.file_stem().expect("name").to_string_lossy().into_owned();
                declared.push(format!("{}.{}", part(&folder), part(&file)));
            }
        }
    }
    declared.sort();
    assert!(declared.len() >= 18, "{declared:?}");
    assert_eq!(shipped, declared);
    for name in shipped {
        assert_eq!(run_onceward(&["draw", name]).status.code(), Some(0), "{name}");
    }
}

#[test]
fn draw_loads_sibling_files_and_requires_name_among_many() {
    let done = run_onceward(&["draw", "systems/image/job.toml"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
    assert!(stdout_text(&done).contains("waiting for the backoff"));
    let done = run_onceward(&["draw", "systems/image"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr_text(&done).contains("3 lifecycles; choose one"), "{}", stderr_text(&done));
    let named = run_onceward(&["draw", "image.grant", "systems/image"]);
    assert_eq!(named.status.code(), Some(0), "{}", stderr_text(&named));
}

#[test]
fn draw_output_format_follows_file_extension() {
    let folder = create_test_folder("output");
    let door = write_file(&folder, "door.toml", VALID_LIFECYCLE);
    let picture = folder.join("door.svg");
    let done = run_onceward(&["draw", &door, "-o", picture.to_str().expect("UTF-8")]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
    assert!(std::fs::read_to_string(picture).expect("the picture").starts_with("<svg"));
    let text = folder.join("door.mmd");
    let done = run_onceward(&["draw", &door, "-o", text.to_str().expect("UTF-8")]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
    assert!(std::fs::read_to_string(text).expect("the text").starts_with("stateDiagram"));
    for (name, option, expected) in [
        ("door.png", None, "unknown extension .png"),
        ("other.svg", Some("--mermaid"), "--mermaid does not fit"),
        ("other.md", Some("--svg"), "--svg does not fit"),
    ] {
        let path = folder.join(name);
        let mut arguments = vec!["draw", &door, "-o", path.to_str().expect("UTF-8")];
        arguments.extend(option);
        let done = run_onceward(&arguments);
        assert_eq!(done.status.code(), Some(2), "{name}: {}", stderr_text(&done));
        assert!(stderr_text(&done).contains(expected), "{name}: {}", stderr_text(&done));
        assert!(!path.exists(), "{name} was written");
    }
}

#[test]
fn closed_stdout_does_not_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["draw", "image.job", "--svg"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("wait for process");
    assert_eq!((done.status.code(), stderr_text(&done).as_str()), (Some(0), ""));
}

#[test]
fn help_contains_example_and_version_is_printed() {
    for arguments in [vec!["--help"], vec!["check", "--help"], vec!["draw", "--help"]] {
        let done = run_onceward(&arguments);
        assert_eq!(done.status.code(), Some(0));
        let help = stdout_text(&done);
        let has_example =
            ["\nExample:\n  onceward ", "\nExamples:\n  onceward "].iter().any(|heading| help.contains(heading));
        assert!(has_example, "{arguments:?}: {help}");
    }
    assert_eq!(stdout_text(&run_onceward(&["--version"])), format!("onceward {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn check_json_reports_unreadable_files() {
    let done = run_onceward(&["check", "no/such.toml", "--json"]);
    assert_eq!(done.status.code(), Some(2), "{}", stderr_text(&done));
    let printed: serde_json::Value = serde_json::from_str(&stdout_text(&done)).expect("JSON");
    assert_eq!((&printed["sound"], &printed["diagnostics"][0]["code"]), (&false.into(), &"unreadable-file".into()));
    let binary = write_file(&create_test_folder("json_unfit"), "binary.toml", b"a = 1\nlanguage = \"\xff\"");
    let done = run_onceward(&["check", &binary, "--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr_text(&done));
    let printed: serde_json::Value = serde_json::from_str(&stdout_text(&done)).expect("JSON");
    let at = &printed["diagnostics"][0]["at"];
    assert_eq!((&at["line"], &at["column"]), (&2.into(), &13.into()), "{printed:#}");
}

#[test]
fn check_searches_folders_except_hidden_and_target() {
    let done = run_onceward(&["check", "systems"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
    assert!(stdout_text(&done).contains("document.job, execution.job, image.asset"), "{}", stdout_text(&done));
    let folder = create_test_folder("nested");
    for part in ["deep/er", ".hidden", "target"] {
        std::fs::create_dir_all(folder.join(part)).expect("folder");
    }
    write_file(&folder.join("deep/er"), "door.toml", VALID_LIFECYCLE);
    write_file(&folder.join(".hidden"), "bad.toml", "?");
    write_file(&folder.join("target"), "bad.toml", "?");
    let done = run_onceward(&["check", &folder.to_string_lossy()]);
    assert_eq!(stdout_text(&done), "1 lifecycle is sound: door.door\n", "{}", stderr_text(&done));
}

/// Returns a lifecycle that refers to another file's lifecycle.
fn door_with_lock(go: &str) -> String {
    let create = "[fields]\nlock = { type = \"ref\", to = \"door.lock\", optional = true }\n\n[[on.create]]";
    VALID_LIFECYCLE.replace("[[on.create]]", create).replace("shut -> gone", go)
}

#[test]
fn draw_reports_errors_of_given_file_only() {
    let folder = create_test_folder("neighbours");
    write_file(&folder, "notes.toml", "this is no lifecycle");
    write_file(&folder, "copy.toml", VALID_LIFECYCLE);
    let lock = VALID_LIFECYCLE.replace("door.door", "door.lock");
    write_file(&folder, "lock.toml", &lock);
    let door = write_file(&folder, "door.toml", door_with_lock("shut -> gone"));
    let done = run_onceward(&["draw", &door]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr_text(&done));
    let door = write_file(&folder, "door.toml", door_with_lock("shut -> gnoe"));
    for lock in [lock.as_str(), "lifecycle = \"door.lock\"\nlanguage = 2\n"] {
        write_file(&folder, "lock.toml", lock);
        let done = run_onceward(&["draw", &door]);
        assert_eq!(done.status.code(), Some(1), "{}", stderr_text(&done));
        let printed = stderr_text(&done);
        assert!(!printed.contains("notes.toml") && !printed.contains("copy.toml"), "{printed}");
    }
    write_file(&folder, "lock.toml", &lock);
    let printed = stderr_text(&run_onceward(&["draw", &door]));
    assert!(printed.contains("unknown-state") && printed.contains("did you mean `gone`?"), "{printed}");
    assert_eq!(printed.matches("error[").count(), 1, "{printed}");
    let printed = stderr_text(&run_onceward(&["check", &door]));
    assert!(printed.contains("or its directory: onceward check DIR"), "{printed}");
}
