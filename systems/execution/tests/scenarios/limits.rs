//! INV-7: limits, for each way of counting.

use onceward_testkit::{Simulator, systems, user};

/// Creates a simulator with a limit counted by state, per hour, or over all time. The guest sets the maximum.
fn simulator_with_seat_limit(limit_clause: &str) -> Simulator {
    let text = format!(
        r#"
language  = 1
lifecycle = "test.guest"
about     = "A guest who wants a seat"

[states]
seated = {{ about = "has one", rest = true }}
gone   = {{ about = "has left", final = true }}

[fields]
seats = {{ type = "int" }}

[limit]
seat = {{ on = ["owner"], {limit_clause}max = "record.seats", clash = "429 full" }}

[[on.create]]
go   = "-> seated"
take = ["seats"]

[[on.leave]]
go = "seated -> gone"
by = "owner"
"#
    );
    Simulator::new(systems::load_texts(&[("guest.toml", &text)]))
}

/// INV-7: for maxima of 0, 1 and more; a refusal does not count.
#[test]
fn limit_admits_exactly_its_maximum() {
    for limit_clause in ["in = [\"seated\"], ", "per = \"1h\", ", ""] {
        for max_seats in [0, 1, 5] {
            let mut stage = simulator_with_seat_limit(limit_clause).starting_at("2026-11-15T20:00:00Z");
            for seat in 1..=max_seats {
                let refused = stage.create("test.guest", &user("alice")).with("seats", seat - 1);
                refused.expect_refusal(429, "full");
                stage.create("test.guest", &user("alice")).with("seats", max_seats).expect_ok();
            }
            for _ in 0..2 {
                stage.create("test.guest", &user("alice")).with("seats", max_seats).expect_refusal(429, "full");
            }
            assert_eq!(stage.records_of("test.guest").len(), max_seats, "{limit_clause}{max_seats}");
            let other = stage.create("test.guest", &user("bob")).with("seats", max_seats).run();
            assert_eq!(stage.records_of("test.guest").len() > max_seats, max_seats > 0, "{}", other.description);
        }
    }
}

/// INV-7
#[test]
fn leaving_frees_one_place_only_for_state_limit() {
    for (limit_clause, frees_place) in [("in = [\"seated\"], ", true), ("per = \"1h\", ", false), ("", false)] {
        let mut stage = simulator_with_seat_limit(limit_clause).starting_at("2026-11-15T20:00:00Z");
        let first = stage.create("test.guest", &user("alice")).with("seats", 1).expect_ok();
        stage.fire(first, "leave", &user("alice")).expect_ok();
        let next = stage.create("test.guest", &user("alice")).with("seats", 1);
        if frees_place {
            next.expect_ok();
        } else {
            next.expect_refusal(429, "full");
        }
        stage.create("test.guest", &user("alice")).with("seats", 1).expect_refusal(429, "full");
    }
}
