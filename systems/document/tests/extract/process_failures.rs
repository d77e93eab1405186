//! Failures of the machine, not of the document: signals, programs that hang, are missing or are killed, and leftovers
//! of killed runs.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use onceward_testkit::TempDir;

use crate::script_run::{ScriptRun, sample};

#[test]
fn hung_program_is_retryable_timeout() {
    for (program, document) in
        [("pdfinfo", "letter.pdf"), ("pdftotext", "letter.pdf"), ("pdftoppm", "scan.pdf"), ("tesseract", "page.png")]
    {
        let run = ScriptRun::new().with_fake_program(program, "exec sleep 600").with_env("DOCUMENT_SECONDS", "1");
        run.extract(&sample(document)).assert_failure(75, "TIMEOUT");
    }
}

/// A SIGKILL by another process or the kernel's out-of-memory killer counts as neither timeout nor bad document.
#[test]
fn killed_program_is_retryable_and_crashed_program_is_terminal() {
    for (program, document) in
        [("pdfinfo", "letter.pdf"), ("pdftotext", "letter.pdf"), ("pdftoppm", "scan.pdf"), ("tesseract", "page.png")]
    {
        for signal in ["KILL", "TERM"] {
            let run = ScriptRun::new().with_fake_program(program, &format!("kill -{signal} $$"));
            run.extract(&sample(document)).assert_failure(75, "SYSTEM_TRANSIENT");
        }
    }
    // If the program crashes by itself, the document is the cause.
    ScriptRun::new()
        .with_fake_program("pdfinfo", "kill -SEGV $$")
        .extract(&sample("letter.pdf"))
        .assert_failure(1, "CORRUPT_DATA");
    ScriptRun::new()
        .with_fake_program("tesseract", "kill -ABRT $$")
        .extract(&sample("page.png"))
        .assert_failure(1, "OCR_FAILURE");
}

#[test]
fn program_ignoring_sigterm_is_killed_and_reported_as_timeout() {
    let run =
        ScriptRun::new().with_fake_program("pdfinfo", "trap '' TERM; exec sleep 600").with_env("DOCUMENT_SECONDS", "1");
    run.extract(&sample("letter.pdf")).assert_failure(75, "TIMEOUT");
}

#[test]
fn missing_program_exits_127_and_is_named() {
    for program in ["pdfinfo", "pdftotext", "pdftoppm", "tesseract"] {
        let folder = TempDir::new();
        // All programs except this one.
        let path = folder.database_path().with_file_name("programs");
        std::fs::create_dir(&path).expect("a folder");
        for name in ["pdfinfo", "pdftotext", "pdftoppm", "tesseract", "timeout"].iter().filter(|name| **name != program)
        {
            std::os::unix::fs::symlink("/bin/true", path.join(name)).expect("a link");
        }
        let output = ScriptRun::new().with_env("PATH", &path.display().to_string()).extract(&sample("letter.pdf"));
        assert_eq!(output.exit_code, Some(127), "{output:?}");
        assert!(output.stderr.contains(&format!("{program} is not installed")), "{output:?}");
    }
}

/// Starts a run that hangs in `program`. The receiver reports when the program's process has ended.
fn start_hanging_in(program: &str) -> (ScriptRun, Child, mpsc::Receiver<()>) {
    hang_run_in(ScriptRun::new(), program)
}

fn hang_run_in(run: ScriptRun, program: &str) -> (ScriptRun, Child, mpsc::Receiver<()>) {
    let pipe = run.sibling_path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let run = run.with_fake_program(program, &format!("exec 3>'{}'\necho up >&3\nexec sleep 600", pipe.display()));
    let run = run.with_env("DOCUMENT_SECONDS", "600");
    let mut child = run.start(&sample("letter.pdf"));
    // The program has started once it writes to the pipe; the pipe closes when its last holder ends.
    let mut pipe_reader = BufReader::new(File::open(&pipe).expect("a pipe"));
    assert!(pipe_reader.read_line(&mut String::new()).expect("a word") > 0);
    let (gone_sender, gone) = mpsc::channel();
    std::thread::spawn(move || pipe_reader.read_to_string(&mut String::new()).map(|_| gone_sender.send(())));
    assert!(child.try_wait().expect("a child").is_none());
    (run, child, gone)
}

#[test]
fn sigterm_to_group_removes_temp_files() {
    let (run, child, _) = start_hanging_in("pdfinfo");
    assert!(std::fs::read_dir(run.temp_folder()).expect("a folder").count() == 1, "a temporary folder");
    // Like the worker's supervisor, signal the whole process group.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-TERM", "--", &group]).status().expect("kill").success());
    let output = run.finish(child);
    assert_eq!(output.stdout_text, "");
}

/// It neither waits for its children nor leaves them behind.
#[test]
fn sigterm_to_script_alone_ends_its_children() {
    // `head` reads the document.
    for program in ["head", "pdfinfo", "pdftotext"] {
        let (run, child, gone) = start_hanging_in(program);
        let signaled_at = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill").success());
        let output = run.finish(child);
        assert!(signaled_at.elapsed() < Duration::from_mins(1), "{:?}", signaled_at.elapsed());
        assert_eq!((output.exit_code, &*output.stderr), (Some(143), ""), "{program}: {output:?}");
        assert!(gone.recv_timeout(Duration::from_mins(1)).is_ok(), "{program} still runs");
    }
}

/// `timeout` of older coreutils ends without its child if it gets SIGTERM just after starting the child.
#[test]
fn child_orphaned_by_timeout_is_ended() {
    let dies_alone = "trap 'exit 143' TERM\nshift 3\n\"$@\" &\nwait";
    let (run, child, gone) = hang_run_in(ScriptRun::new().with_fake_program("timeout", dies_alone), "pdfinfo");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill").success());
    let output = run.finish(child);
    assert_eq!((output.exit_code, &*output.stderr), (Some(143), ""), "{output:?}");
    assert!(gone.recv_timeout(Duration::from_mins(1)).is_ok(), "pdfinfo still runs");
}

/// SIGKILL leaves the temporary folder. A run that starts a day later removes it and nothing else.
#[test]
fn stale_temp_folder_of_killed_run_is_removed() {
    let run = ScriptRun::new();
    let create_folder_aged = |name: &str, days: u32| {
        let path = run.temp_folder().join(name);
        std::fs::create_dir(&path).expect("a folder");
        std::fs::write(path.join("document"), "MARK").expect("a file");
        let then = SystemTime::now() - Duration::from_hours(24) * days;
        File::open(&path).and_then(|folder| folder.set_modified(then)).expect("a time");
        path
    };
    let old = create_folder_aged("onceward-document.aaaaaa", 2);
    let kept = [create_folder_aged("onceward-document.bbbbbb", 0), create_folder_aged("onceward-other.cccccc", 9)];
    let output = run.start(&sample("letter.pdf")).wait_with_output().expect("the process ends");
    assert!(output.status.success(), "{output:?}");
    assert!(!old.exists());
    let left = std::fs::read_dir(run.temp_folder()).expect("a folder").count();
    assert!(kept.iter().all(|path| path.join("document").exists()) && left == 2, "{left} left");
}
