//! What the server tells of prompts.

use std::process::Command;

use onceward_testkit::Folder;
use onceward_testkit::served::{self, Served};
use serde_json::json;

use crate::house::BINARY;

/// Neither a prompt that is flagged nor one that passes stands in the server's log, at the lowest level of all, in its answers or its
/// metrics, or, where it is flagged, in the database and beside it.
#[test]
fn nothing_of_a_prompt_is_told() {
    let folder = Folder::new();
    let mut command: Command = served::command(BINARY, &format!("sqlite:{}", folder.file().display()));
    let command = command.args(["--log-format", "json"]).env("ONCEWARD_LOG", "trace");
    let served = Served::start(command);
    let mut said = String::new();
    served.post("/image/credits/grants", &json!({ "user": "local", "amount": 20, "order": "first" })).ok();
    for prompt in ["porn with a MARKED window", "\u{200b}", "a MARKED lighthouse"] {
        said += &served.post("/image/jobs", &json!({ "prompt": prompt, "size": "256x256" })).text();
        said += &served
            .post("/v1/lifecycles/image.job/records", &json!({ "payload": { "prompt": prompt, "n": 1 } }))
            .text();
        said += &served.post("/v1/lifecycles/image.job/records", &json!({ "payload": prompt })).text();
    }
    said += &served.get("/v1/records?lifecycle=image.job").text();
    said += &served.get("/metrics").text();
    let written = served.stop();
    assert!(said.contains("policy_violation") && said.contains("bad_order") && said.contains("queued"), "{said}");
    assert!(written.contains("a prompt was flagged") && written.contains("engine drained"), "{written}");
    for (what, text) in [("the log", &written), ("an answer", &said)] {
        let found = text.find("MARKED");
        assert!(found.is_none(), "{what} tells of it: {}", &text[found.unwrap_or(0).saturating_sub(300)..]);
    }
    // What is flagged is kept nowhere; what passes is its job's payload.
    let kept: Vec<u8> = files(&folder).into_iter().flat_map(|file| std::fs::read(file).expect("a file")).collect();
    let has = |words: &str| kept.windows(words.len()).any(|part| part == words.as_bytes());
    assert!(has("MARKED lighthouse") && !has("MARKED window"));
}

fn files(folder: &Folder) -> Vec<std::path::PathBuf> {
    let (mut folders, mut files) = (vec![folder.file().parent().expect("a folder").to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}
