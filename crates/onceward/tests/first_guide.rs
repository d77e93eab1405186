//! Follows the first guide: builds its files, runs its commands and compares their output. `ONCEWARD_BLESS=1` writes
//! output, file and picture into the guide.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A step of the guide.
enum GuideStep {
    /// Append these lines to the file.
    AppendToFile(String),
    /// Replace the section that starts with this header.
    ReplaceSection(String, String),
    /// Run this in a shell.
    RunCommand(String),
    /// The expected output, and the page's lines that contain it.
    ExpectOutput { text: String, first: usize, last: usize },
}

fn guide_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide")
}

fn parse_steps(page: &str) -> Vec<GuideStep> {
    let mut steps = Vec::new();
    let mut replaced_header = None;
    let mut fence: Option<(&str, usize)> = None;
    let mut body = String::new();
    for (at, line) in page.lines().enumerate() {
        match (&fence, line.strip_prefix("```")) {
            (None, Some(kind)) => fence = Some((kind, at + 1)),
            (Some((kind, first)), Some("")) => {
                let text = std::mem::take(&mut body);
                match (*kind, replaced_header.take()) {
                    ("toml", None) => steps.push(GuideStep::AppendToFile(text)),
                    ("toml", Some(header)) => steps.push(GuideStep::ReplaceSection(header, text)),
                    ("sh", _) => steps.push(GuideStep::RunCommand(text.trim().to_owned())),
                    ("text", _) => steps.push(GuideStep::ExpectOutput { text, first: *first, last: at }),
                    (other, _) => panic!("line {at}: unknown kind of block {other:?}"),
                }
                fence = None;
            }
            (Some(_), _) => {
                body.push_str(line);
                body.push('\n');
            }
            (None, None) => {
                let header = line.strip_prefix("<!-- instead of ").and_then(|rest| rest.strip_suffix(" -->"));
                replaced_header = header.map(str::to_owned).or(replaced_header);
            }
        }
    }
    assert!(fence.is_none(), "the last block is not closed");
    steps
}

/// Replaces the section from its header up to the next one.
fn replace_section(file: &str, header: &str, text: &str) -> String {
    let from = if file.starts_with(header) { 0 } else { 1 + file.find(&format!("\n{header}\n")).expect(header) };
    let rest = &file[from + 1..];
    let to = rest.find("\n[").map_or(file.len(), |at| from + 1 + at + 1);
    let more = if to == file.len() { "" } else { "\n" };
    format!("{}{text}{more}{}", &file[..from], &file[to..])
}

/// Captures both streams in one file, as a terminal shows them.
fn run_command(folder: &Path, command: &str) -> String {
    let mut words = command.split_whitespace();
    assert_eq!(words.next(), Some("onceward"), "the guide runs only `onceward`");
    let printed = folder.join("printed.txt");
    let file = std::fs::File::create(&printed).expect("file");
    Command::new(env!("CARGO_BIN_EXE_onceward"))
        .current_dir(folder)
        .args(words)
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("the same file"))
        .stderr(file)
        .status()
        .expect("the binary runs");
    std::fs::read_to_string(&printed).expect("UTF-8")
}

#[test]
fn first_lifecycle_guide_matches_real_output() {
    let bless = std::env::var_os("ONCEWARD_BLESS").is_some();
    let path = guide_dir().join("first-lifecycle.md");
    let page = std::fs::read_to_string(&path).expect("the guide");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guide");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("folder");

    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let mut line_shift = 0;
    let mut file = String::new();
    let mut printed = String::new();
    let mut shown_outputs = 0;
    for step in parse_steps(&page) {
        match step {
            GuideStep::AppendToFile(text) if file.is_empty() => file = text,
            GuideStep::AppendToFile(text) => file = format!("{file}\n{text}"),
            GuideStep::ReplaceSection(header, text) => file = replace_section(&file, &header, &text),
            GuideStep::RunCommand(command) => {
                std::fs::write(folder.join("refund.toml"), &file).expect("file");
                printed = run_command(&folder, &command);
            }
            GuideStep::ExpectOutput { text, first, last } => {
                shown_outputs += 1;
                if bless {
                    let new: Vec<String> = printed.lines().map(str::to_owned).collect();
                    let (from, to) = (first.strict_add_signed(line_shift), last.strict_add_signed(line_shift));
                    line_shift += new.len().cast_signed() - (last - first).cast_signed();
                    lines.splice(from..to, new);
                } else {
                    assert_eq!(text, printed, "{}:{first}", path.display());
                }
            }
        }
    }
    assert!(shown_outputs >= 5, "the guide shows the output of check: {shown_outputs}");
    assert!(printed.is_empty(), "drawing into a file prints nothing: {printed}");

    let picture = std::fs::read_to_string(folder.join("refund.svg")).expect("the guide draws");
    if bless {
        std::fs::write(&path, lines.join("\n") + "\n").expect("the guide");
        std::fs::write(guide_dir().join("refund.toml"), &file).expect("the file");
        std::fs::write(guide_dir().join("refund.svg"), picture).expect("the picture");
    } else {
        let checked_in = |name| std::fs::read_to_string(guide_dir().join(name)).expect(name);
        assert_eq!(checked_in("refund.toml"), file, "the file of the guide");
        assert_eq!(checked_in("refund.svg"), picture, "the diagram of the guide");
    }
}
