//! Who sees and does what.

use onceward_testkit::served::BOTH;
use serde_json::json;

use crate::house::House;

/// A job, an asset, a picture and an account that are another's look like ones that are not there.
#[test]
fn what_is_anothers_is_not_there() {
    for db in BOTH {
        let house = House::with_keys(db, &[]);
        let (ann, eve, mo) =
            (house.key("ann", &["user"]), house.key("eve", &["user"]), house.key("mo", &["moderator"]));
        house.grant("ann", 10);
        let id = house.ordered(&ann, "a cat");
        let job = house.until(&ann, &id, "completed");
        let (asset, picture) =
            (job["asset"].as_str().unwrap().to_owned(), job["resultUrl"].as_str().unwrap().to_owned());
        let nothing = "01936f0e-0000-7000-8000-000000000001";
        for (own, missing) in [
            (format!("/image/jobs/{id}"), format!("/image/jobs/{nothing}")),
            (format!("/image/assets/{asset}"), format!("/image/assets/{nothing}")),
            (picture.clone(), format!("/image/assets/{nothing}/image")),
            // There, and of another kind.
            (format!("/image/jobs/{asset}"), "/image/jobs/nonsense".to_owned()),
            (format!("/image/assets/{id}"), "/image/assets/nonsense".to_owned()),
        ] {
            let (foreign, none) = (house.call(&eve, "GET", &own), house.call(&eve, "GET", &missing));
            foreign.is_problem(404, "not_found");
            assert_eq!(foreign.lasting(), none.lasting(), "{own}");
        }
        for what in ["replay", "block", "withdraw"] {
            let path = |id: &str| format!("/image/jobs/{id}/{what}");
            let (foreign, none) =
                (house.post(&eve, &path(&id), &json!({})), house.post(&eve, &path(nothing), &json!({})));
            foreign.is_problem(404, "not_found");
            assert_eq!(foreign.lasting(), none.lasting(), "{what}");
        }
        house.call(&eve, "DELETE", &format!("/image/assets/{asset}")).is_problem(404, "not_found");
        assert_eq!(house.get(&eve, "/image/assets")["assets"], json!([]));
        // An operator sees the entry; the picture is its owner's alone. A moderator sees the job.
        assert_eq!(house.get(house.ops(), &format!("/image/assets/{asset}"))["owner"], "ann");
        house.call(house.ops(), "GET", &picture).is_problem(404, "not_found");
        house.call(house.ops(), "DELETE", &format!("/image/assets/{asset}")).is_problem(403, "not_allowed");
        assert_eq!(house.get(&mo, &format!("/image/jobs/{id}"))["state"], "completed");
        house.call(&mo, "GET", &picture).is_problem(404, "not_found");
        // Credits.
        assert_eq!((house.balance(&ann), house.balance(&eve)), (5, 0));
        assert_eq!(house.statement(&eve), []);
        house.call(&eve, "GET", "/image/credits?user=ann").is_problem(403, "forbidden");
        house.call(&eve, "GET", "/image/credits/entries?user=ann").is_problem(403, "forbidden");
        assert_eq!(house.get(house.ops(), "/image/credits?user=ann")["balance"], 5);
        let grant = json!({ "user": "eve", "amount": 5, "order": "mine" });
        house.post(&eve, "/image/credits/grants", &grant).is_problem(403, "not_allowed");
        assert_eq!(house.post(house.ops(), "/image/credits/grants", &grant).status, 201);
        assert_eq!(house.post(house.ops(), "/image/credits/grants", &grant).status, 200, "an order is granted once");
        assert_eq!(house.balance(&eve), 5);
    }
}
