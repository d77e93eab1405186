//! Tests timers that became due while the engine was down.

use onceward_testkit::systems::load_texts;
use onceward_testkit::{Simulator, user};

/// Both timers affect the other record. The order depends neither on the record that the engine visits first nor on the
/// delay.
#[test]
fn overdue_timers_of_linked_records_fire_in_due_order() {
    let lamp_lifecycle = |own: &str, other: &str, wait: &str| {
        format!(
            r#"
language = 1
lifecycle = "room.{own}"
about = "a lamp that puts out the other"
[states]
on = {{ about = "burns" }}
out = {{ about = "put out by the other", final = true }}
off = {{ about = "burnt down", final = true }}
[fields]
other = {{ type = "ref", to = "room.{other}", optional = true }}
[[on.create]]
go = "-> on"
take = ["other"]
[[on.meet]]
go = "on"
take = ["other"]
[[on.time]]
go = "on -> off"
after = "{wait}"
cascade = [{{ to = "record.other", event = "put_out" }}]
[[on.put_out]]
go = "on -> out"
by = "record"
"#
        )
    };
    for (red, green, first) in [("1m", "2m", Some("red")), ("2m", "1m", Some("green")), ("1m", "1m", None)] {
        for asked in ["red", "green"] {
            let (red_file, green_file) = (lamp_lifecycle("red", "green", red), lamp_lifecycle("green", "red", green));
            let mut simulator = Simulator::new(load_texts(&[("red.toml", &red_file), ("green.toml", &green_file)]));
            let ann = user("ann");
            let one = simulator.create("room.red", &ann).expect_ok();
            let two = simulator.create("room.green", &ann).with("other", one.to_string()).expect_ok();
            simulator.fire(one, "meet", &ann).with("other", two.to_string()).expect_ok();
            simulator.advance_without_engine("1h");
            let record = if asked == "red" { one } else { two };
            simulator.fire(record, "meet", &ann).expect_refusal(409, "wrong_state");
            let states = [simulator.state(one), simulator.state(two)];
            // At equal times, the smaller id comes first.
            let first = first.unwrap_or(if one < two { "red" } else { "green" });
            let expected = if first == "red" { ["off", "out"] } else { ["out", "off"] };
            assert_eq!(states, expected, "{red} {green}, {asked} asked for");
        }
    }
}
