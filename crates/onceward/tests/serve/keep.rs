//! How long a server keeps what has ended.

use std::process::{Output, Stdio};

use onceward_testkit::Folder;
use onceward_testkit::http::BYTES;
use onceward_testkit::served::{self, BOTH, Db, Served};
use serde_json::{Value as Json, json};

use crate::server::BINARY;

/// A document's job that has ended; where it is.
fn ended(served: &Served, name: &str) -> String {
    let headers = [BYTES, ("client-request-id", name)];
    let made = served.call("POST", "/document/upload", &headers, Some(b"x")).ok();
    let job = format!("/document/jobs/{}", made["jobId"].as_str().expect("an id"));
    assert_eq!(served.post(&format!("{job}/cancel"), &json!({})).ok()["state"], "FAILED");
    job
}

/// An order that was taken back; where it is.
fn withdrawn(served: &Served) -> String {
    let grant = json!({ "user": "local", "amount": 5, "order": "first" });
    served.post("/image/credits/grants", &grant).ok();
    let ordered = served.post("/image/jobs", &json!({ "prompt": "a cat" })).ok();
    let job = format!("/image/jobs/{}", ordered["id"].as_str().expect("an id"));
    assert_eq!(served.post(&format!("{job}/withdraw"), &json!({})).ok()["state"], "dead_letter");
    job
}

fn prune(served: &Served, what: &Json) -> Json {
    served.post("/v1/prune", what).ok()["records"].clone()
}

/// By hand, what the server would take by itself goes; what it keeps by its name goes only by its name.
#[test]
fn what_is_kept_is_as_it_was_said() {
    for db in BOTH {
        let folder = Folder::new();
        let mut command = served::command(BINARY, &db.url(&folder));
        command.arg("--objects").arg(folder.join("bucket")).args(["--image-provider", "none"]);
        command.args(["--keep", "0d", "--keep", "image.job=forever"]);
        let served = Served::start(command.env("ONCEWARD_KEEP", "1d,document.job=1d")).keeping(folder);
        let (document, order) = (ended(&served, "a"), withdrawn(&served));
        assert_eq!(prune(&served, &json!({ "dry_run": true })), 2, "the document's job and the grant");
        assert_eq!(prune(&served, &json!({})), 2);
        served.get(&document).is_problem(404, "not_found");
        assert_eq!(served.get(&order).status, 200, "for ever");
        assert_eq!(prune(&served, &json!({ "older_than": "0s" })), 0, "it has a length of its own");
        let second = ended(&served, "b");
        assert_eq!(prune(&served, &json!({ "only": ["image.job"] })), 0);
        assert_eq!(prune(&served, &json!({ "older_than": "0s", "only": ["image.job"] })), 1, "by its name");
        served.get(&order).is_problem(404, "not_found");
        assert_eq!(served.get(&second).status, 200, "it was not named");
    }
}

/// The same by a variable; and without either it is thirty days.
#[test]
fn a_variable_says_the_same() {
    for (keep, goes) in [(Some("forever,document.job=0d"), 1), (Some("forever"), 0), (None, 0), (Some(""), 0)] {
        let folder = Folder::new();
        let mut command = served::command(BINARY, &Db::Sqlite.url(&folder));
        let served = Served::start(command.envs(keep.map(|keep| ("ONCEWARD_KEEP", keep)))).keeping(folder);
        ended(&served, "a");
        assert_eq!(prune(&served, &json!({})), goes, "{keep:?}");
        assert_eq!(prune(&served, &json!({ "older_than": "0s", "only": ["document.job"] })), 1 - goes, "{keep:?}");
    }
}

/// What cannot be meant ends the start.
#[test]
fn what_cannot_be_kept_is_told() {
    let folder = Folder::new();
    let start = |keep: &[&str]| -> Output {
        let mut command = served::command(BINARY, &Db::Sqlite.url(&folder));
        command.args(keep.iter().flat_map(|keep| ["--keep", keep])).env_remove("ONCEWARD_KEEP").stdin(Stdio::null());
        command.output().expect("the binary runs")
    };
    for (keep, says) in [
        (&["soon"][..], "`soon` is no length of time"),
        (&["image.job=-1d"], "is no length of time"),
        (&["=1d"], "names no lifecycle"),
        (&["1d", "forever"], "says twice how long records are kept"),
        (&["image.job=1d", "image.job=2d"], "says twice how long records of image.job are kept"),
        (&["image.jobs=1d"], "no lifecycle here is called `image.jobs`; there are document.job"),
    ] {
        let ended = start(keep);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && said.contains(says), "{keep:?}: {said}");
    }
}
