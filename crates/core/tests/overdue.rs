//! What the engine slept through.

use onceward_testkit::systems::load_text;
use onceward_testkit::{Stage, user};

/// Two records that are both overdue, and whose timed rows touch each other, do not wait for one another: what was due
/// first goes first, whichever of them the engine comes to, and however late it comes.
#[test]
fn what_was_due_first_goes_first_across_records() {
    let lamp = |own: &str, other: &str, wait: &str| {
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
            let (red_file, green_file) = (lamp("red", "green", red), lamp("green", "red", green));
            let mut stage = Stage::new(load_text(&[("red.toml", &red_file), ("green.toml", &green_file)]));
            let ann = user("ann");
            let one = stage.create("room.red", &ann).ok();
            let two = stage.create("room.green", &ann).with("other", one.to_string()).ok();
            stage.fire(one, "meet", &ann).with("other", two.to_string()).ok();
            stage.doze("1h");
            let record = if asked == "red" { one } else { two };
            stage.fire(record, "meet", &ann).refused(409, "wrong_state");
            let states = [stage.state(one), stage.state(two)];
            // At the same moment the smaller id goes first.
            let first = first.unwrap_or(if one < two { "red" } else { "green" });
            let expected = if first == "red" { ["off", "out"] } else { ["out", "off"] };
            assert_eq!(states, expected, "{red} {green}, {asked} asked for");
        }
    }
}
