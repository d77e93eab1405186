//! The script that reads documents, with the programs that it is for. Each ending has its code, says nothing of the document, and leaves
//! no file behind.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use onceward_testkit::{Folder, systems};

fn system() -> PathBuf {
    systems::repository().join("systems/document")
}

fn sample(name: &str) -> Vec<u8> {
    let path = system().join("samples").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A run of the script in a place of its own.
struct Run {
    folder: Folder,
    environment: Vec<(&'static str, String)>,
}

impl Run {
    fn new() -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.file().with_file_name("temp")).expect("a folder");
        Self { folder, environment: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn temp(&self) -> PathBuf {
        self.folder.file().with_file_name("temp")
    }

    fn start(&self, document: &[u8]) -> Child {
        let file = self.folder.file().with_extension("document");
        File::create(&file).and_then(|mut file| file.write_all(document)).expect("a file");
        let mut command = Command::new(system().join("worker/extract.sh"));
        command.env("TMPDIR", self.temp()).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(File::open(file).expect("a file")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).spawn().expect("the script runs")
    }

    fn end(&self, child: Child) -> Ended {
        let output = child.wait_with_output().expect("it ends");
        let left: Vec<_> = std::fs::read_dir(self.temp()).expect("a folder").flatten().collect();
        assert!(left.is_empty(), "it left {left:?}");
        Ended::of(&output)
    }

    fn of(&self, document: &[u8]) -> Ended {
        self.end(self.start(document))
    }

    /// A program in place of a real one: for one that never ends.
    fn instead(self, program: &str, script: &str) -> Self {
        let folder = self.folder.file().with_file_name("programs");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
        assert!(Command::new("chmod").arg("+x").arg(&path).status().expect("chmod").success());
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
        self.with("PATH", &path)
    }
}

#[derive(Debug)]
struct Ended {
    exit: Option<i32>,
    text: String,
    said: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { exit: output.status.code(), text: text(&output.stdout), said: text(&output.stderr) }
    }

    /// One line, which begins with the code; nothing on standard output.
    #[track_caller]
    fn is(&self, exit: i32, code: &str) {
        assert_eq!((self.exit, self.said.lines().count(), &*self.text), (Some(exit), 1, ""), "{self:?}");
        assert!(self.said.starts_with(&format!("{code}: ")), "{self:?}");
    }
}

#[track_caller]
fn reads(document: &[u8], words: &[&str]) {
    let ended = Run::new().of(document);
    assert_eq!((ended.exit, &*ended.said), (Some(0), ""), "{ended:?}");
    for word in words {
        assert!(ended.text.contains(word), "{word} is missing in {ended:?}");
    }
}

#[test]
fn a_pdf_with_text_is_read() {
    reads(&sample("letter.pdf"), &["The parcel weighs 42 kilograms.", "The second page"]);
    // Some have a line of something else before them.
    reads(&[b"\n\n", &sample("letter.pdf")[..]].concat(), &["The parcel weighs 42 kilograms."]);
}

#[test]
fn a_scanned_page_is_read() {
    reads(&sample("scan.pdf"), &["20261116", "brass telescope", "keeper of the lighthouse"]);
}

/// Some pages have text, others were scanned: all are read, in their order.
#[test]
fn a_document_may_have_pages_of_both_kinds() {
    let folder = Folder::new();
    let (samples, both) = (system().join("samples"), folder.file().with_extension("pdf"));
    let mut unite = Command::new("pdfunite");
    unite.args([samples.join("letter.pdf"), samples.join("scan.pdf"), samples.join("letter.pdf"), both.clone()]);
    assert!(unite.status().expect("pdfunite").success());
    let ended = Run::new().of(&std::fs::read(both).expect("a file"));
    let words = ["weighs 42 kilograms", "The second page", "keeper of the lighthouse", "weighs 42 kilograms"];
    let mut rest = &*ended.text;
    for word in words {
        let at = rest.find(word).unwrap_or_else(|| panic!("{word} is missing, or not in its place: {ended:?}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn an_image_is_read() {
    reads(&sample("page.png"), &["brass telescope"]);
    reads(&sample("page.jpg"), &["brass telescope"]);
    reads(&sample("page.tif"), &["brass telescope"]);
}

#[test]
fn what_is_truncated_is_corrupt() {
    for name in ["letter.pdf", "scan.pdf"] {
        let whole = sample(name);
        for part in [20, 100, whole.len() / 2, whole.len() * 9 / 10] {
            Run::new().of(&whole[..part]).is(1, "CORRUPT_DATA");
        }
    }
    for name in ["page.png", "page.jpg", "page.tif"] {
        let whole = sample(name);
        Run::new().of(&whole[..100]).is(1, "CORRUPT_DATA");
    }
}

#[test]
fn what_is_damaged_is_corrupt() {
    Run::new().of(b"%PDF-1.7\nand then nothing of the kind\n%%EOF\n").is(1, "CORRUPT_DATA");
    let mut damaged = sample("page.png");
    damaged[16..].fill(0);
    Run::new().of(&damaged).is(1, "CORRUPT_DATA");
}

#[test]
fn an_encrypted_pdf_is_not_supported() {
    Run::new().of(&sample("sealed.pdf")).is(1, "UNSUPPORTED_FORMAT");
}

#[test]
fn other_kinds_are_not_supported() {
    for other in [&b"I am no PDF"[..], b"", b"\x7fELF", b"PK\x03\x04 a zip, perhaps", b"{\"a\": 1}", &[0; 5_000]] {
        Run::new().of(other).is(1, "UNSUPPORTED_FORMAT");
    }
}

#[test]
fn what_is_too_large_is_not_read() {
    let mut large = sample("letter.pdf");
    large.resize(50 * 1024 * 1024 + 1, b'\n');
    Run::new().of(&large).is(1, "SIZE_EXCEEDED");
}

#[test]
fn many_scanned_pages_are_too_many() {
    Run::new().with("DOCUMENT_PAGES", "0").of(&sample("scan.pdf")).is(1, "LIMIT_EXCEEDED");
}

#[test]
fn an_empty_page_has_no_words() {
    Run::new().of(&sample("blank.pdf")).is(1, "OCR_FAILURE");
}

#[test]
fn a_program_that_hangs_may_be_tried_again() {
    for (program, document) in
        [("pdfinfo", "letter.pdf"), ("pdftotext", "letter.pdf"), ("pdftoppm", "scan.pdf"), ("tesseract", "page.png")]
    {
        let run = Run::new().instead(program, "exec sleep 600").with("DOCUMENT_SECONDS", "1");
        run.of(&sample(document)).is(75, "TIMEOUT");
    }
}

#[test]
fn without_its_programs_it_says_so() {
    for program in ["pdfinfo", "pdftotext", "pdftoppm", "tesseract"] {
        let folder = Folder::new();
        // All of the usual ones but this.
        let path = folder.file().with_file_name("programs");
        std::fs::create_dir(&path).expect("a folder");
        for name in ["pdfinfo", "pdftotext", "pdftoppm", "tesseract", "timeout"].iter().filter(|name| **name != program)
        {
            std::os::unix::fs::symlink("/bin/true", path.join(name)).expect("a link");
        }
        let ended = Run::new().with("PATH", &path.display().to_string()).of(&sample("letter.pdf"));
        assert_eq!(ended.exit, Some(127), "{ended:?}");
        assert!(ended.said.contains(&format!("{program} is not installed")), "{ended:?}");
    }
}

/// Told to end while a program works for it, it takes its files with it.
#[test]
fn told_to_end_it_leaves_nothing() {
    let run = Run::new();
    let pipe = run.folder.file().with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let run = run.instead("pdfinfo", &format!("echo here >'{}'\nexec sleep 600", pipe.display()));
    let child = {
        let mut child = run.start(&sample("letter.pdf"));
        // It has begun once somebody writes to the pipe.
        assert_eq!(std::fs::read_to_string(&pipe).expect("a pipe"), "here\n");
        assert!(child.try_wait().expect("a child").is_none());
        child
    };
    assert!(std::fs::read_dir(run.temp()).expect("a folder").count() == 1, "its own folder");
    // As the worker's supervisor does: to the whole group.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-TERM", "--", &group]).status().expect("kill").success());
    let ended = run.end(child);
    assert_eq!(ended.text, "");
}
