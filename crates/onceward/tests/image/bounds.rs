//! Bounds over HTTP at their exact places: the quota of each hour, the penalty, the balance.

use onceward_testkit::served::BOTH;
use serde_json::json;

use crate::house::House;

/// What is left of the quota of each role is N, 1 and 0: N orders are taken, the one after them is refused and costs nothing. Each is blocked
/// as soon as it is placed, so that only the hour counts, and paid for all the same.
#[test]
fn the_quota_is_exact() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let mo = house.key("mo", &["moderator"]);
        for (role, quota) in [("producer", 5), ("user", 50)] {
            // Should the hour end in between, another user begins anew in the next.
            let counted = (0..3).any(|turn| {
                let name = format!("{role}-{turn}");
                let key = house.key(&name, &[role]);
                house.grant(&name, 5 * quota + 10);
                let began = house.hour();
                let mut taken = 0;
                let refused = loop {
                    let made = house.order(&key, &format!("picture {taken}"));
                    if made.status != 201 {
                        break made;
                    }
                    taken += 1;
                    let id = made.json()["id"].as_str().unwrap().to_owned();
                    let blocked = house.post(&mo, &format!("/image/jobs/{id}/block"), &json!({}));
                    assert_eq!(
                        (blocked.status, &blocked.json()["state"]),
                        (200, &json!("rejected")),
                        "{}",
                        blocked.text()
                    );
                    assert!(taken <= 2 * quota, "there is no end to it");
                };
                refused.is_problem(429, "quota");
                let wait: u32 =
                    refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("when to come back");
                assert!((1..=3_600).contains(&wait), "by the end of the hour: {wait}");
                let same = house.hour() == began;
                if same {
                    assert_eq!(
                        (taken, house.balance(&key)),
                        (quota, 10),
                        "{role}: each was a penalty, the refused one free"
                    );
                    house.order(&key, "one more").is_problem(429, "quota");
                    assert_eq!(house.statement(&key).len(), usize::try_from(quota).unwrap() + 1);
                }
                same
            });
            assert!(counted, "three hours have passed");
        }
    }
}

/// Four credits are not enough, five are.
#[test]
fn the_balance_is_exact() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let ann = house.key("ann", &["pro"]);
        house.grant("ann", 4);
        house.order(&ann, "a cat").is_problem(402, "insufficient_credits");
        assert_eq!(house.balance(&ann), 4);
        house.grant("ann", 1);
        house.ordered(&ann, "a cat");
        assert_eq!(house.balance(&ann), 0);
    }
}
