//! Duplicate ids, unique keys and idempotency keys of other owners.

use onceward_core::diagnostic::{InputFile, InputFiles};
use serde_json::{Value as Json, json};

use crate::fixtures::{MISSING_RECORD_ID, create_record, on_both_stores};

/// Idempotency keys belong to one owner.
#[test]
fn duplicate_error_reveals_nothing_of_other_owner() {
    on_both_stores(async |server| {
        let (ann, eve) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("eve", &["producer"], &[]).await,
        );
        let viewer = server.create_api_key("eve", &["viewer"], &[]).await;
        let anns = create_record(&server, &ann, &json!({ "fields": { "name": "anns" }, "key": "one" }));
        let eves = create_record(&server, &eve, &json!({ "fields": { "name": "eves" }, "key": "one" }));
        assert_ne!(anns, eves, "idempotency keys are per owner");
        for path in ["/v1/lifecycles/house.job/records", "/v1/lifecycles/house.job/records/batch"] {
            let request_body = |new: Json| if path.ends_with("batch") { json!({ "records": [new] }) } else { new };
            let mut response = Vec::new();
            for id in [&anns, &eves] {
                response.push(
                    server.send(Some(&eve), "POST", path, Some(&request_body(json!({ "id": id })))).with_id_masked(id),
                );
            }
            assert_eq!(response[0], response[1], "id of another owner and own id");
            assert!(response[0].text().contains("id_taken"), "{response:?}");
            let mut response = Vec::new();
            for name in ["anns", "eves"] {
                response.push(server.send(
                    Some(&eve),
                    "POST",
                    path,
                    Some(&request_body(json!({ "fields": { "name": name } }))),
                ));
            }
            for one in &response {
                assert!(
                    one.text().contains("name_taken") && !one.text().contains(&anns) && !one.text().contains("ann\""),
                    "{one:?}"
                );
            }
            // A reference must not reveal whether a record exists.
            let mut response = Vec::new();
            for id in [&*anns, MISSING_RECORD_ID] {
                let near = request_body(json!({ "fields": { "near": id } }));
                response.push(server.send(Some(&eve), "POST", path, Some(&near)).with_id_masked(id));
            }
            assert_eq!(response[0], response[1]);
            assert!(response[0].text().contains("error") || response[0].status >= 400, "{response:?}");
            // A caller that may not create records does not learn that the id exists.
            let mut response = Vec::new();
            for id in [&*anns, MISSING_RECORD_ID] {
                response.push(
                    server
                        .send(Some(&viewer), "POST", path, Some(&request_body(json!({ "id": id }))))
                        .with_id_masked(id),
                );
            }
            assert_eq!(response[0], response[1]);
            assert!(response[0].text().contains("not_allowed"), "{response:?}");
        }
        server.close().await;
    });
}

/// Created by its owner, readable by judges only.
const PLEA_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "house.plea"
about     = "Filed by its owner, and read by judges only"
[states]
filed = { about = "for a judge", rest = true }
[fields]
name = { type = "string" }
note = { type = "string", optional = true }
[unique]
name = { on = ["name"], clash = "return" }
[who]
judge = "'judge' in actor.roles"
[access]
read = ["judge"]
[[on.create]]
go   = "-> filed"
take = ["name", "note"]
"#;

/// Not even its owner gets it back without the right to read it.
#[test]
fn existing_record_is_returned_only_to_its_readers() {
    on_both_stores(async |server| {
        let file = InputFile { name: "plea.toml".to_owned(), text: PLEA_LIFECYCLE.into() };
        server.engine.put_lifecycles(&InputFiles { files: vec![file] }).await.expect("valid lifecycle file");
        let (ann, eve) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("eve", &["producer"], &[]).await,
        );
        let judge = server.create_api_key("zoe", &["producer", "judge"], &[]).await;
        let path = "/v1/lifecycles/house.plea/records";
        let file = |key: &str| {
            let new = json!({ "fields": { "name": "one", "note": "of another" } });
            let batch = json!({ "records": [new] });
            (
                server.send(Some(key), "POST", path, Some(&new)),
                server.send(Some(key), "POST", &format!("{path}/batch"), Some(&batch)),
            )
        };
        let secret = json!({ "fields": { "name": "one", "note": "of ann's" } });
        assert_eq!(server.send(Some(&ann), "POST", path, Some(&secret)).status, 201);
        for key in [&ann, &eve] {
            let (one, many) = file(key);
            one.assert_problem(409, "key_taken");
            assert!(many.text().contains("key_taken"), "{many:?}");
            for response in [one.text(), many.text()] {
                assert!(!response.contains("of ann's") && !response.contains("ann\""), "{response}");
            }
        }
        let (one, many) = file(&judge);
        assert_eq!((one.status, &one.json()["fields"]["note"]), (200, &json!("of ann's")), "{one:?}");
        assert_eq!(many.json()["results"][0]["record"]["fields"]["note"], "of ann's");
        server.close().await;
    });
}
