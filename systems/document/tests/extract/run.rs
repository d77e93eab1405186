//! A run of the script in a place of its own.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use onceward_testkit::{Folder, systems};

pub(crate) fn system() -> PathBuf {
    systems::repository().join("systems/document")
}

pub(crate) fn sample(name: &str) -> Vec<u8> {
    let path = system().join("samples").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) struct Run {
    folder: Folder,
    environment: Vec<(&'static str, String)>,
    room: Option<u32>,
}

impl Run {
    pub(crate) fn new() -> Self {
        let run = Self { folder: Folder::new(), environment: Vec::new(), room: None };
        std::fs::create_dir(run.temp()).expect("a folder");
        run
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// No file can become larger: writes beyond it fail, as they do on a disk that is full. In blocks of 512 bytes.
    pub(crate) fn with_room_for(mut self, blocks: u32) -> Self {
        self.room = Some(blocks);
        self
    }

    /// A file of the test's own, beside the script's.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.folder.file().with_file_name(name)
    }

    pub(crate) fn temp(&self) -> PathBuf {
        self.place("temp")
    }

    pub(crate) fn start(&self, document: &[u8]) -> Child {
        let file = self.place("document");
        File::create(&file).and_then(|mut file| file.write_all(document)).expect("a file");
        let script = system().join("worker/extract.sh");
        let mut command = match self.room {
            None => Command::new(script),
            Some(blocks) => {
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' XFSZ; ulimit -f $1; exec \"$0\""]).arg(script).arg(blocks.to_string());
                command
            }
        };
        command.env("TMPDIR", self.temp()).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(File::open(file).expect("a file")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).spawn().expect("the script runs")
    }

    pub(crate) fn end(&self, child: Child) -> Ended {
        let output = child.wait_with_output().expect("it ends");
        let left: Vec<_> = std::fs::read_dir(self.temp()).expect("a folder").flatten().collect();
        assert!(left.is_empty(), "it left {left:?}");
        Ended::of(&output)
    }

    pub(crate) fn of(&self, document: &[u8]) -> Ended {
        self.end(self.start(document))
    }

    /// A program in place of a real one: for one that never ends, say.
    pub(crate) fn instead(self, program: &str, script: &str) -> Self {
        let folder = self.place("programs");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
        assert!(Command::new("chmod").arg("+x").arg(&path).status().expect("chmod").success());
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
        self.with("PATH", &path)
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Option<i32>,
    pub(crate) text: String,
    pub(crate) said: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { exit: output.status.code(), text: text(&output.stdout), said: text(&output.stderr) }
    }

    /// One line, which begins with the code; nothing on standard output.
    #[track_caller]
    pub(crate) fn is(&self, exit: i32, code: &str) {
        assert_eq!((self.exit, self.said.lines().count(), &*self.text), (Some(exit), 1, ""), "{self:?}");
        assert!(self.said.starts_with(&format!("{code}: ")), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn has(&self, words: &[&str]) {
        assert_eq!((self.exit, &*self.said), (Some(0), ""), "{self:?}");
        for word in words {
            assert!(self.text.contains(word), "{word} is missing in {self:?}");
        }
    }
}

#[track_caller]
pub(crate) fn reads(document: &[u8], words: &[&str]) {
    Run::new().of(document).has(words);
}
