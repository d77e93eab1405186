//! Tests the pagination of libraries.

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::json;

use crate::support::ImageServer;

#[test]
fn library_is_paged_in_creation_order() {
    for db in ALL_DATABASES {
        let server = ImageServer::open(db, &[]);
        server.grant("local", 25);
        let mut ordered = Vec::new();
        for number in 0..5 {
            let id = server.place_order("", &format!("picture {number}"));
            server.wait_for_job("", &id, "completed");
            ordered.push(json!(id));
        }
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get("", &format!("/image/assets?limit=2{cursor}"));
            seen.extend(page["assets"].as_array().unwrap().iter().map(|asset| asset["job"].clone()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, ordered, "oldest first, each once");
        server.call("", "GET", "/image/assets?limit=0").assert_problem(422, "invalid_input");
        server.call("", "GET", "/image/assets?cursor=x").assert_problem(422, "invalid_input");
        server.call("", "GET", "/image/credits/entries?cursor=x").assert_problem(422, "invalid_input");
    }
}
