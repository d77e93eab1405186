//! Tests the exact limits of hourly quotas, penalties and balances over HTTP.

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::json;

use crate::support::ImageServer;

/// For each role, with N, 1 and 0 orders left. Each order is blocked right away, so that only the hourly quota counts,
/// and is still charged.
#[test]
fn hourly_quota_is_enforced_exactly() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let mo = server.key("mo", &["moderator"]);
        for (role, quota) in [("producer", 5), ("user", 50)] {
            // If the hour changes in between, retry with another user.
            let is_within_hour = (0..3).any(|turn| {
                let name = format!("{role}-{turn}");
                let key = server.key(&name, &[role]);
                server.grant(&name, 5 * quota + 10);
                let hour_before = server.hour();
                let mut accepted = 0;
                let refused = loop {
                    let made = server.send_order(&key, &format!("picture {accepted}"));
                    if made.status != 201 {
                        break made;
                    }
                    accepted += 1;
                    let id = made.json()["id"].as_str().unwrap().to_owned();
                    let blocked = server.post(&mo, &format!("/image/jobs/{id}/block"), &json!({}));
                    assert_eq!(
                        (blocked.status, &blocked.json()["state"]),
                        (200, &json!("rejected")),
                        "{}",
                        blocked.text()
                    );
                    assert!(accepted <= 2 * quota, "the quota is never reached");
                };
                refused.assert_problem(429, "quota");
                let wait: u32 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("Retry-After");
                assert!((1..=3_600).contains(&wait), "at most until the end of the hour: {wait}");
                let same = server.hour() == hour_before;
                if same {
                    assert_eq!(
                        (accepted, server.balance(&key)),
                        (quota, 10),
                        "{role}: each accepted order was charged, the refused one was not"
                    );
                    server.send_order(&key, "one more order").assert_problem(429, "quota");
                    assert_eq!(server.checked_statement(&key).len(), usize::try_from(quota).unwrap() + 1);
                }
                same
            });
            assert!(is_within_hour, "an hour ended during each of three attempts");
        }
    }
}

#[test]
fn order_costs_exactly_five_credits() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let ann = server.key("ann", &["pro"]);
        server.grant("ann", 4);
        server.send_order(&ann, "a cat").assert_problem(402, "insufficient_credits");
        assert_eq!(server.balance(&ann), 4);
        server.grant("ann", 1);
        server.place_order(&ann, "a cat");
        assert_eq!(server.balance(&ann), 0);
    }
}
