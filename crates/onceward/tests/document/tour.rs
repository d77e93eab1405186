//! The tour of the system's README, pasted as it stands: a server, a PDF that ships with it, a worker, and the text.

use onceward_testkit::reader::{Reader, block, page, shows};

use crate::house::BINARY;

/// What a stranger pastes works: a PDF goes in, its text comes out.
#[test]
fn the_tour_works_as_pasted() {
    let page = page("systems/document/README.md");
    let reader = Reader::new(BINARY);
    let (serve, tour) = (reader.typed(block(&page, "onceward serve")), reader.typed(block(&page, "url=")));
    // Two terminals: the first is left open, and is closed in the end. The second is typed when the first says that it listens.
    let pipe = reader.file("said");
    let script = format!(
        "mkfifo {pipe}\n( exec {serve} ) >{pipe} &\nserver=$!\nexec 3<{pipe}\nwhile read -r line <&3; do case $line in listening*) break ;; esac; done\n{tour}kill $server\n",
        pipe = pipe.display(),
        serve = serve.trim()
    );
    let text = reader.paste(&script);
    shows(
        &text,
        &[
            "\"state\":\"CREATED\"",
            "\"state\":\"QUEUED\"",
            "\"state\":\"SUCCEEDED\"",
            "The parcel weighs 42 kilograms.",
        ],
    );
}
