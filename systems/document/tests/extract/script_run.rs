//! Runs the script in a temporary folder.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use onceward_testkit::{TempDir, systems};

pub(crate) fn system_folder() -> PathBuf {
    systems::repository_root().join("systems/document")
}

pub(crate) fn sample(name: &str) -> Vec<u8> {
    let path = system_folder().join("samples").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) struct ScriptRun {
    folder: TempDir,
    environment: Vec<(&'static str, String)>,
    max_file_blocks: Option<u32>,
}

impl ScriptRun {
    pub(crate) fn new() -> Self {
        let run = Self { folder: TempDir::new(), environment: Vec::new(), max_file_blocks: None };
        std::fs::create_dir(run.temp_folder()).expect("a folder");
        run
    }

    pub(crate) fn with_env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Limits the size of files, in blocks of 512 bytes. Writes beyond it fail as on a full disk.
    pub(crate) fn with_max_file_blocks(mut self, blocks: u32) -> Self {
        self.max_file_blocks = Some(blocks);
        self
    }

    /// Returns the path of a test file outside the script's folder.
    pub(crate) fn sibling_path(&self, name: &str) -> PathBuf {
        self.folder.database_path().with_file_name(name)
    }

    pub(crate) fn temp_folder(&self) -> PathBuf {
        self.sibling_path("temp")
    }

    pub(crate) fn start(&self, document: &[u8]) -> Child {
        let file = self.sibling_path("document");
        File::create(&file).and_then(|mut file| file.write_all(document)).expect("a file");
        let script = system_folder().join("worker/extract.sh");
        let mut command = match self.max_file_blocks {
            None => Command::new(script),
            Some(blocks) => {
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' XFSZ; ulimit -f $1; exec \"$0\""]).arg(script).arg(blocks.to_string());
                command
            }
        };
        command.env("TMPDIR", self.temp_folder()).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(File::open(file).expect("a file")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).spawn().expect("the script starts")
    }

    pub(crate) fn finish(&self, child: Child) -> ScriptOutput {
        let output = child.wait_with_output().expect("the process ends");
        let leftovers: Vec<_> = std::fs::read_dir(self.temp_folder()).expect("a folder").flatten().collect();
        assert!(leftovers.is_empty(), "the script left {leftovers:?}");
        ScriptOutput::from_process(&output)
    }

    pub(crate) fn extract(&self, document: &[u8]) -> ScriptOutput {
        self.finish(self.start(document))
    }

    /// Replaces a program, for example by one that never ends.
    pub(crate) fn with_fake_program(self, program: &str, script: &str) -> Self {
        let folder = self.sibling_path("programs");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
        assert!(Command::new("chmod").arg("+x").arg(&path).status().expect("chmod").success());
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
        self.with_env("PATH", &path)
    }
}

#[derive(Debug)]
pub(crate) struct ScriptOutput {
    pub(crate) exit_code: Option<i32>,
    pub(crate) stdout_text: String,
    pub(crate) stderr: String,
}

impl ScriptOutput {
    fn from_process(output: &Output) -> Self {
        let decode = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { exit_code: output.status.code(), stdout_text: decode(&output.stdout), stderr: decode(&output.stderr) }
    }

    /// Asserts one line on standard error, which starts with the code, and no standard output.
    #[track_caller]
    pub(crate) fn assert_failure(&self, exit: i32, code: &str) {
        assert_eq!((self.exit_code, self.stderr.lines().count(), &*self.stdout_text), (Some(exit), 1, ""), "{self:?}");
        assert!(self.stderr.starts_with(&format!("{code}: ")), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn assert_text_contains(&self, words: &[&str]) {
        assert_eq!((self.exit_code, &*self.stderr), (Some(0), ""), "{self:?}");
        for word in words {
            assert!(self.stdout_text.contains(word), "{word} is missing in {self:?}");
        }
    }
}

#[track_caller]
pub(crate) fn assert_extracts(document: &[u8], words: &[&str]) {
    ScriptRun::new().extract(document).assert_text_contains(words);
}
