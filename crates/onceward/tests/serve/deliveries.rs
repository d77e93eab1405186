//! Tests the flag that allows deliveries to private addresses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

use crate::server::BINARY;

const NOTICE_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.notice"
about     = "Posts to a URL when it is created"

[states]
sent = { about = "the delivery exists", final = true }

[fields]
to = { type = "string", max = 1000 }

[[on.create]]
go      = "-> sent"
take    = ["to"]
deliver = [{ to = "record.to", body = { text = "'hello'" } }]
"#;

/// Answers every request with 204. Returns the URL.
fn start_receiver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    url
}

/// Waits until the only delivery has ended.
fn ended_delivery(server: &ServerProcess) -> Json {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let page = server.get("/v1/records?lifecycle=onceward.delivery").expect_ok();
        let delivery = page["records"][0].clone();
        if delivery["state"] == "delivered" || delivery["state"] == "dead" {
            return delivery;
        }
        assert!(Instant::now() < deadline, "not ended: {delivery}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn delivery_to_loopback_needs_flag_or_variable() {
    let url = start_receiver();
    for (arguments, variable, expected) in [
        (&[][..], None, "dead"),
        (&[], Some(""), "dead"),
        (&["--allow-private-deliveries"], None, "delivered"),
        (&[], Some("true"), "delivered"),
    ] {
        let folder = TempDir::new();
        std::fs::write(folder.join("notice.toml"), NOTICE_LIFECYCLE).expect("written");
        let mut command = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&folder));
        command.arg("--lifecycles").arg(folder.join("notice.toml")).args(arguments);
        command.envs(variable.map(|value| ("ONCEWARD_ALLOW_PRIVATE_DELIVERIES", value)));
        let server = ServerProcess::start(&mut command).with_temp_dir(folder);
        server.post("/v1/lifecycles/test.notice/records", &json!({ "fields": { "to": url } })).expect_ok();
        let delivery = ended_delivery(&server);
        assert_eq!(delivery["state"], expected, "{arguments:?} {variable:?}: {delivery}");
        let error = delivery["fields"]["lastError"].as_str().unwrap_or_default();
        assert_eq!(error.contains("--allow-private-deliveries"), expected == "dead", "{error}");
    }
}
