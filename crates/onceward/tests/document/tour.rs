//! The tour of the system's README, pasted as it stands: a server, a PDF that ships with it, a worker, and the text.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use onceward_testkit::Folder;

use crate::house::{BINARY, PATIENCE};

fn block<'a>(page: &'a str, begins: &str) -> &'a str {
    let from = page.find(&format!("```sh\n{begins}")).unwrap_or_else(|| panic!("no block begins with {begins}"));
    let text = &page[from + "```sh\n".len()..];
    &text[..text.find("```").expect("the block ends")]
}

/// What a stranger pastes works: a PDF goes in, its text comes out.
#[test]
fn the_tour_works_as_pasted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("systems/document/README.md")).expect("a README");
    let folder = Folder::new();
    let database = folder.file();
    // In the reader's place but for two things: a port that is free here, and a database of its own.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let here = |text: &str| {
        text.replace("/tmp/onceward-documents.db", &database.to_string_lossy())
            .replace("127.0.0.1:7171", &format!("127.0.0.1:{port}"))
            .replace("onceward serve ", &format!("onceward serve --listen 127.0.0.1:{port} "))
    };
    let (serve, tour) = (here(block(&page, "onceward serve")), here(block(&page, "url=")));
    assert!(
        serve.contains(&*database.to_string_lossy()) && tour.contains(&format!("127.0.0.1:{port}")),
        "{serve}{tour}"
    );
    // Two terminals: the first is left open, and is closed in the end. The second is typed when the first says that it listens.
    let script = format!(
        "mkfifo \"$1\"\n( exec {} ) >\"$1\" &\nserver=$!\nexec 3<\"$1\"\nwhile read -r line <&3; do case $line in listening*) break ;; esac; done\n{tour}kill $server\nwait\n",
        serve.trim()
    );
    let bin = Path::new(BINARY).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    let pipe = folder.file().with_extension("said");
    let mut shell = Command::new("bash")
        .args(["-e", "-c", &script, "bash"])
        .arg(&pipe)
        .current_dir(&root)
        .env("PATH", path)
        .env("ONCEWARD_URL", format!("http://127.0.0.1:{port}"))
        .env_remove("ONCEWARD_KEY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .expect("bash");
    let mut said = shell.stdout.take().expect("a pipe");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = said.read_to_string(&mut text);
        let _ = tell.send(text);
    });
    let text = told.recv_timeout(PATIENCE);
    let group = shell.id();
    if text.is_err() {
        let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).status();
    }
    let ended = shell.wait().expect("it ends");
    let text = text.expect("the tour comes to its end");
    assert!(ended.success(), "{ended}\n{text}");
    for part in
        ["\"state\":\"CREATED\"", "\"state\":\"QUEUED\"", "\"state\":\"SUCCEEDED\"", "The parcel weighs 42 kilograms."]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
