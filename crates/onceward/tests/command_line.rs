//! The real binary, run as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn onceward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward"))
        .current_dir(root())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A folder of its own for each test, under cargo's.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file");
    path.to_string_lossy().into_owned()
}

const SOUND: &str = r#"
language  = 1
lifecycle = "door.door"
about     = "A door"

[states]
shut = { about = "nobody passes", rest = true }
gone = { about = "broken down", final = true }

[[on.create]]
go = "-> shut"

[[on.break]]
go = "shut -> gone"
"#;

#[test]
fn a_sound_folder_is_named_and_exits_with_0() {
    let done = onceward(&["check", "systems/image"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let said = out(&done);
    assert!(said.starts_with("3 lifecycles are sound"), "{said}");
    assert!(said.trim_end().ends_with(": image.asset, image.grant, image.job"), "{said}");
}

#[test]
fn a_name_cannot_command_the_terminal() {
    let folder = folder("names");
    write(&folder, "red\u{1b}[31m.toml", "language = 2\n");
    let done = onceward(&["check", &folder.to_string_lossy()]);
    assert_eq!(done.status.code(), Some(1), "{}", err(&done));
    assert!(err(&done).contains("red\u{fffd}[31m.toml"), "{}", err(&done));
    assert!(!err(&done).contains('\u{1b}'), "{}", err(&done));
}

#[test]
fn all_shipped_systems_are_sound_together() {
    let done =
        onceward(&["check", "systems/execution", "systems/document", "systems/image", "systems/mesh", "systems/relay"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
}

#[test]
fn a_file_found_wanting_is_shown_with_its_place_and_exits_with_1() {
    let bad = write(&folder("wanting"), "door.toml", SOUND.replace("shut -> gone", "shut -> lost"));
    let done = onceward(&["check", &bad]);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(out(&done), "");
    let said = err(&done);
    assert!(said.contains("error[unknown-state]") && said.contains("door.toml:14:"), "{said}");
    assert!(said.contains("found wanting: 1 error\n"), "{said}");
    assert!(!said.contains('\u{1b}'), "no colours where no terminal is: {said:?}");
    assert!(err(&onceward(&["check", &bad, "--color", "always"])).contains('\u{1b}'));
}

#[test]
fn findings_come_as_json() {
    let folder = folder("json");
    let bad = write(&folder, "door.toml", SOUND.replace("shut -> gone", "shut -> lost"));
    let done = onceward(&["check", &bad, "--json"]);
    assert_eq!(done.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_str(&out(&done)).expect("JSON");
    assert_eq!(said["sound"], false);
    assert_eq!(said["diagnostics"][0]["code"], "unknown-state");
    assert_eq!(said["diagnostics"][0]["at"]["line"], 14);
    let good = write(&folder, "door.toml", SOUND);
    let said: serde_json::Value = serde_json::from_str(&out(&onceward(&["check", &good, "--json"]))).expect("JSON");
    assert_eq!((&said["sound"], &said["lifecycles"][0]), (&true.into(), &"door.door".into()));
}

#[test]
fn what_cannot_be_read_is_misuse() {
    let empty = folder("empty");
    for (arguments, expected) in [
        (vec!["check", "no/such.toml"], "cannot read no/such.toml"),
        (vec!["check", empty.to_str().expect("UTF-8")], "holds no lifecycle files"),
        (vec!["check"], "required"),
        (vec!["draw", "no/such.toml"], "cannot read no/such.toml"),
        (vec!["draw", "image.jobb"], "did you mean image.job?"),
        (vec!["draw", "no.such"], "no shipped lifecycle called no.such; shipped are "),
        (vec!["draw", "image.job", "--svg", "-o", "/no/such/folder/x.svg"], "cannot write /no/such/folder/x.svg"),
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["work", "a.b", "--lease", "0s", "--", "true"], "it must be longer than nothing"),
        (vec!["work", "a.b", "--concurrency", "0", "--", "true"], "it is a whole number from 1 on"),
    ] {
        let done = onceward(&arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", err(&done));
        assert!(err(&done).contains(expected), "{arguments:?}: {}", err(&done));
        assert_eq!(out(&done), "", "{arguments:?}");
    }
}

#[test]
fn files_that_are_not_lifecycle_files_are_found_wanting() {
    let folder = folder("unfit");
    let binary = write(&folder, "binary.toml", b"language = \"\xff\"");
    let large = write(&folder, "large.toml", vec![b'#'; 256 * 1024 + 1]);
    for (file, expected) in [
        (binary.as_str(), "is not UTF-8 text: the byte at 12 (line 1, column 13)"),
        (large.as_str(), "too large for a lifecycle file: at most 256 KB"),
        // A device has no end: the bound holds while reading, too.
        ("/dev/zero", "too large for a lifecycle file"),
    ] {
        for verb in ["check", "draw"] {
            let done = onceward(&[verb, file]);
            assert_eq!(done.status.code(), Some(1), "{verb} {file}: {}", err(&done));
            assert!(err(&done).contains(expected), "{verb} {file}: {}", err(&done));
        }
    }
}

#[test]
fn a_folder_with_a_cargo_toml_is_read_without_it_and_a_file_given_twice_once() {
    let folder = folder("package");
    write(&folder, "Cargo.toml", "[package]\n");
    let door = write(&folder, "door.toml", SOUND);
    let done = onceward(&["check", folder.to_str().expect("UTF-8"), &door]);
    assert_eq!(
        (done.status.code(), out(&done).as_str()),
        (Some(0), "1 lifecycle is sound: door.door\n"),
        "{}",
        err(&done)
    );
}

/// Of a folder's TOML files only those that are lifecycle files are checked; one that is named always is.
#[test]
fn toml_files_of_another_kind_are_left_out_of_a_folder() {
    let folder = folder("others");
    let other = write(&folder, "rustfmt.toml", "max_width = 120\n");
    let path = folder.to_string_lossy().into_owned();
    let done = onceward(&["check", &path]);
    assert_eq!(done.status.code(), Some(2), "{}", err(&done));
    assert!(err(&done).contains("holds no lifecycle files"), "{}", err(&done));
    write(&folder, "door.toml", SOUND);
    let done = onceward(&["check", &path]);
    assert_eq!(
        (out(&done).as_str(), err(&done)),
        ("1 lifecycle is sound: door.door\n", format!("note: not checked: {other} is no lifecycle file\n"))
    );
    for paths in [[&path, &other], [&other, &path]] {
        let done = onceward(&["check", paths[0], paths[1]]);
        assert_eq!(done.status.code(), Some(1), "{}", out(&done));
        assert!(err(&done).contains("rustfmt.toml:1:") && !err(&done).contains("not checked"), "{}", err(&done));
    }
    // What only half looks like one is still told what it lacks.
    write(&folder, "half.toml", "[states]\nopen = { rest = true }\n");
    assert_eq!(onceward(&["check", &path]).status.code(), Some(1));
}

#[test]
fn shipped_lifecycles_are_drawn_from_anywhere() {
    let draw = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command.current_dir(folder("anywhere")).args(arguments).output().expect("the binary runs")
    };
    let mermaid = draw(&["draw", "image.job"]);
    assert_eq!(mermaid.status.code(), Some(0), "{}", err(&mermaid));
    assert!(
        out(&mermaid).contains("stateDiagram-v2") && out(&mermaid).contains("waiting out the backoff"),
        "{}",
        out(&mermaid)
    );
    let svg = out(&draw(&["draw", "image.job", "--svg"]));
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("dead_letter"), "{svg}");
}

/// The binary carries every lifecycle file that stands under systems/, whichever are added.
#[test]
fn every_lifecycle_of_every_system_is_shipped() {
    let said = err(&onceward(&["draw", "no.such"]));
    let shipped: Vec<&str> = said.trim_end().split_once("shipped are ").expect("the list").1.split(", ").collect();
    let folders =
        std::fs::read_dir(root().join("systems")).expect("the systems").map(|entry| entry.expect("one").path());
    let mut declared = Vec::new();
    for folder in folders.filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(&folder).expect("a system").map(|entry| entry.expect("a file").path()) {
            let is_toml = file.extension().is_some_and(|extension| extension == "toml");
            if is_toml && !file.ends_with("Cargo.toml") {
                let part = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
                declared.push(format!("{}.{}", part(&folder), part(&file)));
            }
        }
    }
    declared.sort();
    assert!(declared.len() >= 18, "{declared:?}");
    assert_eq!(shipped, declared);
    for name in shipped {
        assert_eq!(onceward(&["draw", name]).status.code(), Some(0), "{name}");
    }
}

#[test]
fn a_file_is_drawn_with_its_neighbours_and_among_many_a_name_is_wanted() {
    let done = onceward(&["draw", "systems/image/job.toml"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(out(&done).contains("waiting out the backoff"));
    let done = onceward(&["draw", "systems/image"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(err(&done).contains("3 lifecycles, say which one"), "{}", err(&done));
    let named = onceward(&["draw", "image.grant", "systems/image"]);
    assert_eq!(named.status.code(), Some(0), "{}", err(&named));
}

#[test]
fn a_picture_goes_to_the_file_that_is_named() {
    let folder = folder("output");
    let door = write(&folder, "door.toml", SOUND);
    let picture = folder.join("door.svg");
    let done = onceward(&["draw", &door, "-o", picture.to_str().expect("UTF-8")]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(std::fs::read_to_string(picture).expect("the picture").starts_with("<svg"));
    let text = folder.join("door.mmd");
    let done = onceward(&["draw", &door, "-o", text.to_str().expect("UTF-8")]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(std::fs::read_to_string(text).expect("the text").starts_with("stateDiagram"));
    for (name, option, expected) in [
        ("door.png", None, "cannot draw .png"),
        ("other.svg", Some("--mermaid"), "would hold Mermaid text, not SVG"),
        ("other.md", Some("--svg"), "would hold SVG"),
    ] {
        let path = folder.join(name);
        let mut arguments = vec!["draw", &door, "-o", path.to_str().expect("UTF-8")];
        arguments.extend(option);
        let done = onceward(&arguments);
        assert_eq!(done.status.code(), Some(2), "{name}: {}", err(&done));
        assert!(err(&done).contains(expected), "{name}: {}", err(&done));
        assert!(!path.exists(), "{name} was written all the same");
    }
}

#[test]
fn a_reader_that_goes_away_causes_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["draw", "image.job", "--svg"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("it ends");
    assert_eq!((done.status.code(), err(&done).as_str()), (Some(0), ""));
}

#[test]
fn every_verb_has_help_with_an_example_and_the_binary_a_version() {
    for arguments in [vec!["--help"], vec!["check", "--help"], vec!["draw", "--help"]] {
        let done = onceward(&arguments);
        assert_eq!(done.status.code(), Some(0));
        assert!(out(&done).contains("Example:\n  onceward "), "{arguments:?}: {}", out(&done));
    }
    assert_eq!(out(&onceward(&["--version"])), format!("onceward {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_file_that_is_not_there_is_told_in_json_too() {
    let done = onceward(&["check", "no/such.toml", "--json"]);
    assert_eq!(done.status.code(), Some(2), "{}", err(&done));
    let said: serde_json::Value = serde_json::from_str(&out(&done)).expect("JSON");
    assert_eq!((&said["sound"], &said["diagnostics"][0]["code"]), (&false.into(), &"unreadable-file".into()));
    let binary = write(&folder("json_unfit"), "binary.toml", b"a = 1\nlanguage = \"\xff\"");
    let done = onceward(&["check", &binary, "--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", err(&done));
    let said: serde_json::Value = serde_json::from_str(&out(&done)).expect("JSON");
    let at = &said["diagnostics"][0]["at"];
    assert_eq!((&at["line"], &at["column"]), (&2.into(), &13.into()), "{said:#}");
}

#[test]
fn folders_are_searched_but_not_what_is_hidden_or_built() {
    let done = onceward(&["check", "systems"]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(out(&done).contains("document.job, execution.job, image.asset"), "{}", out(&done));
    let folder = folder("nested");
    for part in ["deep/er", ".hidden", "target"] {
        std::fs::create_dir_all(folder.join(part)).expect("a folder");
    }
    write(&folder.join("deep/er"), "door.toml", SOUND);
    write(&folder.join(".hidden"), "bad.toml", "?");
    write(&folder.join("target"), "bad.toml", "?");
    let done = onceward(&["check", &folder.to_string_lossy()]);
    assert_eq!(out(&done), "1 lifecycle is sound: door.door\n", "{}", err(&done));
}

/// A door that refers to a lock, which stands in another file.
fn door_with_lock(go: &str) -> String {
    let create = "[fields]\nlock = { type = \"ref\", to = \"door.lock\", optional = true }\n\n[[on.create]]";
    SOUND.replace("[[on.create]]", create).replace("shut -> gone", go)
}

#[test]
fn a_drawn_file_hears_of_its_own_errors_and_not_of_its_neighbours() {
    let folder = folder("neighbours");
    write(&folder, "notes.toml", "this is no lifecycle");
    write(&folder, "copy.toml", SOUND);
    let lock = SOUND.replace("door.door", "door.lock");
    write(&folder, "lock.toml", &lock);
    let door = write(&folder, "door.toml", door_with_lock("shut -> gone"));
    let done = onceward(&["draw", &door]);
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let door = write(&folder, "door.toml", door_with_lock("shut -> gnoe"));
    for lock in [lock.as_str(), "lifecycle = \"door.lock\"\nlanguage = 2\n"] {
        write(&folder, "lock.toml", lock);
        let done = onceward(&["draw", &door]);
        assert_eq!(done.status.code(), Some(1), "{}", err(&done));
        let said = err(&done);
        assert!(!said.contains("notes.toml") && !said.contains("copy.toml"), "{said}");
    }
    write(&folder, "lock.toml", &lock);
    let said = err(&onceward(&["draw", &door]));
    assert!(said.contains("unknown-state") && said.contains("did you mean `gone`?"), "{said}");
    assert_eq!(said.matches("error[").count(), 1, "{said}");
    let said = err(&onceward(&["check", &door]));
    assert!(said.contains("or the folder: onceward check DIR"), "{said}");
}
