//! INV-7: limits to the last one, for each way of counting.

use onceward_testkit::{Stage, systems, user};

/// Seats that are counted while taken, by the hour, or ever; how many there are comes with the guest.
fn seats(counted: &str) -> Stage {
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
seat = {{ on = ["owner"], {counted}max = "record.seats", clash = "429 full" }}

[[on.create]]
go   = "-> seated"
take = ["seats"]

[[on.leave]]
go = "seated -> gone"
by = "owner"
"#
    );
    Stage::new(systems::load_text(&[("guest.toml", &text)]))
}

/// INV-7: at none, at one and at the last of several: so many get in, the next does not, and a refusal counts for nothing.
#[test]
fn exactly_as_many_as_the_limit_says() {
    for counted in ["in = [\"seated\"], ", "per = \"1h\", ", ""] {
        for seats_there in [0, 1, 5] {
            let mut stage = seats(counted).at("2026-11-15T20:00:00Z");
            for seat in 1..=seats_there {
                let refused = stage.create("test.guest", &user("alice")).with("seats", seat - 1);
                refused.refused(429, "full");
                stage.create("test.guest", &user("alice")).with("seats", seats_there).ok();
            }
            for _ in 0..2 {
                stage.create("test.guest", &user("alice")).with("seats", seats_there).refused(429, "full");
            }
            assert_eq!(stage.all("test.guest").len(), seats_there, "{counted}{seats_there}");
            let other = stage.create("test.guest", &user("bob")).with("seats", seats_there).outcome();
            assert_eq!(stage.all("test.guest").len() > seats_there, seats_there > 0, "{}", other.what);
        }
    }
}

/// INV-7: what leaves the counted set makes room for one, and only where it is the set that counts.
#[test]
fn a_seat_that_is_left_is_free_once() {
    for (counted, free) in [("in = [\"seated\"], ", true), ("per = \"1h\", ", false), ("", false)] {
        let mut stage = seats(counted).at("2026-11-15T20:00:00Z");
        let first = stage.create("test.guest", &user("alice")).with("seats", 1).ok();
        stage.fire(first, "leave", &user("alice")).ok();
        let next = stage.create("test.guest", &user("alice")).with("seats", 1);
        if free {
            next.ok();
        } else {
            next.refused(429, "full");
        }
        stage.create("test.guest", &user("alice")).with("seats", 1).refused(429, "full");
    }
}
