//! Libraries come in pages.

use onceward_testkit::served::BOTH;
use serde_json::json;

use crate::house::House;

#[test]
fn a_library_is_read_in_pages() {
    for db in BOTH {
        let house = House::open(db, &[]);
        house.grant("local", 25);
        let mut ordered = Vec::new();
        for number in 0..5 {
            let id = house.ordered("", &format!("picture {number}"));
            house.until("", &id, "completed");
            ordered.push(json!(id));
        }
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = house.get("", &format!("/image/assets?limit=2{cursor}"));
            seen.extend(page["assets"].as_array().unwrap().iter().map(|asset| asset["job"].clone()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, ordered, "the oldest first, none twice, none left out");
        house.call("", "GET", "/image/assets?limit=0").is_problem(422, "bad_input");
        house.call("", "GET", "/image/assets?cursor=x").is_problem(422, "bad_input");
        house.call("", "GET", "/image/credits/entries?cursor=x").is_problem(422, "bad_input");
    }
}
