//! What is taken already.

use serde_json::{Value as Json, json};

use crate::people::{NOBODY, create, on_both};

/// A taken id and a taken key tell that they are taken, and nothing of who has them. Idempotency keys are each owner's own.
#[test]
fn a_clash_shows_nothing_of_the_other() {
    on_both(async |house| {
        let (ann, eve) = (house.key("ann", &["producer"], &[]).await, house.key("eve", &["producer"], &[]).await);
        let viewer = house.key("eve", &["viewer"], &[]).await;
        let anns = create(&house, &ann, &json!({ "fields": { "name": "anns" }, "key": "one" }));
        let eves = create(&house, &eve, &json!({ "fields": { "name": "eves" }, "key": "one" }));
        assert_ne!(anns, eves, "the same key of another owner is another key");
        for path in ["/v1/lifecycles/house.job/records", "/v1/lifecycles/house.job/records/batch"] {
            let of = |new: Json| if path.ends_with("batch") { json!({ "records": [new] }) } else { new };
            let mut said = Vec::new();
            for id in [&anns, &eves] {
                said.push(house.send(Some(&eve), "POST", path, Some(&of(json!({ "id": id })))).without(id));
            }
            assert_eq!(said[0], said[1], "a foreign id and one's own");
            assert!(said[0].text().contains("id_taken"), "{said:?}");
            let mut said = Vec::new();
            for name in ["anns", "eves"] {
                said.push(house.send(Some(&eve), "POST", path, Some(&of(json!({ "fields": { "name": name } })))));
            }
            for one in &said {
                assert!(
                    one.text().contains("name_taken") && !one.text().contains(&anns) && !one.text().contains("ann\""),
                    "{one:?}"
                );
            }
            // Pointing to a record is a way of asking whether it is there.
            let mut said = Vec::new();
            for id in [&*anns, NOBODY] {
                let near = of(json!({ "fields": { "near": id } }));
                said.push(house.send(Some(&eve), "POST", path, Some(&near)).without(id));
            }
            assert_eq!(said[0], said[1]);
            assert!(said[0].text().contains("error") || said[0].status >= 400, "{said:?}");
            // Who could not have made one is not even told that it is taken.
            let mut said = Vec::new();
            for id in [&*anns, NOBODY] {
                said.push(house.send(Some(&viewer), "POST", path, Some(&of(json!({ "id": id })))).without(id));
            }
            assert_eq!(said[0], said[1]);
            assert!(said[0].text().contains("not_allowed"), "{said:?}");
        }
        house.close().await;
    });
}
