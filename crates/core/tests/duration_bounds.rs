//! Tests that durations stay within their bounds, both from callers and from transitions.

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::load_definitions;
use onceward_testkit::{Simulator, user};

const PARCEL_LIFECYCLE: &str = r#"
language = 1
lifecycle = "shop.parcel"
[states]
open = { rest = true }
[fields]
wait = { type = "duration", min = "1s", max = "1h", default = "1m" }
[[on.create]]
go = "-> open"
take = ["wait"]
[[on.longer]]
go = "open"
set = { wait = "record.wait + record.wait" }
"#;

#[test]
fn duration_outside_bounds_is_refused_from_caller_and_set() {
    let files = InputFiles { files: vec![InputFile { name: "parcel.toml".into(), text: PARCEL_LIFECYCLE.into() }] };
    let mut simulator = Simulator::new(load_definitions(&files).unwrap().definitions);
    let ann = user("ann");
    for wait in ["0s", "61m"] {
        let refusal = simulator.create("shop.parcel", &ann).with("wait", wait).expect_bad_input();
        assert_eq!(&*refusal.reason, "`wait` must be from 1s to 1h");
    }
    let parcel = simulator.create("shop.parcel", &ann).with("wait", "31m").expect_ok();
    simulator.fire(parcel, "longer", &ann).expect_refusal(422, "fault");
}
