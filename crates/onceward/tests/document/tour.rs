//! Runs the tour of the system's README.

use onceward_testkit::doc_runner::{DocRunner, assert_contains_all, command_block, read_page};

use crate::support::BINARY;

/// A PDF goes in, and its text comes out.
#[test]
fn document_tour_runs_as_pasted() {
    let page = read_page("systems/document/README.md");
    let reader = DocRunner::new(BINARY);
    let (serve, tour) =
        (reader.localize(command_block(&page, "onceward serve")), reader.localize(command_block(&page, "url=")));
    // Two terminals: the first runs the server until the end. The second starts once the server listens.
    let pipe = reader.tmp_path("said");
    let script = format!(
        "mkfifo {pipe}\n( exec {serve} ) >{pipe} &\nserver=$!\nexec 3<{pipe}\nwhile read -r line <&3; do case $line in listening*) break ;; esac; done\n{tour}kill $server\n",
        pipe = pipe.display(),
        serve = serve.trim()
    );
    let text = reader.run(&script);
    assert_contains_all(
        &text,
        &[
            "\"state\":\"CREATED\"",
            "\"state\":\"QUEUED\"",
            "\"state\":\"SUCCEEDED\"",
            "The parcel weighs 42 kilograms.",
        ],
    );
}
