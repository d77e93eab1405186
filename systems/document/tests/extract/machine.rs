//! What happens to the machine, and not to the document: signals, programs that hang, are missing or killed, what others have left behind.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use onceward_testkit::Folder;

use crate::run::{Run, sample};

#[test]
fn a_program_that_hangs_may_be_tried_again() {
    for (program, document) in
        [("pdfinfo", "letter.pdf"), ("pdftotext", "letter.pdf"), ("pdftoppm", "scan.pdf"), ("tesseract", "page.png")]
    {
        let run = Run::new().instead(program, "exec sleep 600").with("DOCUMENT_SECONDS", "1");
        run.of(&sample(document)).is(75, "TIMEOUT");
    }
}

/// Somebody else's kill, or the kernel's that has no memory left: neither the time nor the document.
#[test]
fn a_program_that_is_killed_may_be_tried_again() {
    for (program, document) in
        [("pdfinfo", "letter.pdf"), ("pdftotext", "letter.pdf"), ("pdftoppm", "scan.pdf"), ("tesseract", "page.png")]
    {
        for signal in ["KILL", "TERM"] {
            let run = Run::new().instead(program, &format!("kill -{signal} $$"));
            run.of(&sample(document)).is(75, "SYSTEM_TRANSIENT");
        }
    }
    // Where it falls of itself, the document is why.
    Run::new().instead("pdfinfo", "kill -SEGV $$").of(&sample("letter.pdf")).is(1, "CORRUPT_DATA");
    Run::new().instead("tesseract", "kill -ABRT $$").of(&sample("page.png")).is(1, "OCR_FAILURE");
}

/// One that minds no SIGTERM is killed when its time is over, and that is still a time-out.
#[test]
fn a_program_that_cannot_be_told_is_killed() {
    let run = Run::new().instead("pdfinfo", "trap '' TERM; exec sleep 600").with("DOCUMENT_SECONDS", "1");
    run.of(&sample("letter.pdf")).is(75, "TIMEOUT");
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

/// A run that is at this program now, which will not end; and word of when the program's process is gone.
fn caught_in(program: &str) -> (Run, Child, mpsc::Receiver<()>) {
    caught_at(Run::new(), program)
}

fn caught_at(run: Run, program: &str) -> (Run, Child, mpsc::Receiver<()>) {
    let pipe = run.place("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let run = run.instead(program, &format!("exec 3>'{}'\necho up >&3\nexec sleep 600", pipe.display()));
    let run = run.with("DOCUMENT_SECONDS", "600");
    let mut child = run.start(&sample("letter.pdf"));
    // It has begun once it writes to the pipe, which ends with whoever holds it.
    let mut held = BufReader::new(File::open(&pipe).expect("a pipe"));
    assert!(held.read_line(&mut String::new()).expect("a word") > 0);
    let (tell, gone) = mpsc::channel();
    std::thread::spawn(move || held.read_to_string(&mut String::new()).map(|_| tell.send(())));
    assert!(child.try_wait().expect("a child").is_none());
    (run, child, gone)
}

/// Told to end while a program works for it, it takes its files with it.
#[test]
fn told_to_end_it_leaves_nothing() {
    let (run, child, _) = caught_in("pdfinfo");
    assert!(std::fs::read_dir(run.temp()).expect("a folder").count() == 1, "its own folder");
    // As the worker's supervisor does: to the whole group.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-TERM", "--", &group]).status().expect("kill").success());
    let ended = run.end(child);
    assert_eq!(ended.text, "");
}

/// Told alone, without its group, it does not wait for what it runs, and does not leave it behind.
#[test]
fn told_alone_it_ends_at_once_with_all_it_has_started() {
    // `head` takes the document in.
    for program in ["head", "pdfinfo", "pdftotext"] {
        let (run, child, gone) = caught_in(program);
        let since = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill").success());
        let ended = run.end(child);
        assert!(since.elapsed() < Duration::from_mins(1), "{:?}", since.elapsed());
        assert_eq!((ended.exit, &*ended.said), (Some(143), ""), "{program}: {ended:?}");
        assert!(gone.recv_timeout(Duration::from_mins(1)).is_ok(), "{program} goes on");
    }
}

/// `timeout` of older coreutils dies alone if it is told to end in the moment in which it has begun a program.
#[test]
fn what_timeout_leaves_behind_is_ended() {
    let dies_alone = "trap 'exit 143' TERM\nshift 3\n\"$@\" &\nwait";
    let (run, child, gone) = caught_at(Run::new().instead("timeout", dies_alone), "pdfinfo");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill").success());
    let ended = run.end(child);
    assert_eq!((ended.exit, &*ended.said), (Some(143), ""), "{ended:?}");
    assert!(gone.recv_timeout(Duration::from_mins(1)).is_ok(), "pdfinfo goes on");
}

/// SIGKILL leaves the folder; a run that begins a day later takes it away, and nothing else.
#[test]
fn what_a_killed_run_left_is_swept() {
    let run = Run::new();
    let days_ago = |name: &str, days: u32| {
        let path = run.temp().join(name);
        std::fs::create_dir(&path).expect("a folder");
        std::fs::write(path.join("document"), "MARK").expect("a file");
        let then = SystemTime::now() - Duration::from_hours(24) * days;
        File::open(&path).and_then(|folder| folder.set_modified(then)).expect("a time");
        path
    };
    let old = days_ago("onceward-document.aaaaaa", 2);
    let kept = [days_ago("onceward-document.bbbbbb", 0), days_ago("onceward-other.cccccc", 9)];
    let ended = run.start(&sample("letter.pdf")).wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{ended:?}");
    assert!(!old.exists());
    let left = std::fs::read_dir(run.temp()).expect("a folder").count();
    assert!(kept.iter().all(|path| path.join("document").exists()) && left == 2, "{left} left");
}
