//! A duration keeps to its bounds, whoever gives it: a caller, or a row.

use onceward_core::diagnostic::{File, Files};
use onceward_core::load;
use onceward_testkit::{Stage, user};

const PARCEL: &str = r#"
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
fn a_duration_keeps_to_its_bounds() {
    let files = Files { files: vec![File { name: "parcel.toml".into(), text: PARCEL.into() }] };
    let mut stage = Stage::new(load(&files).unwrap().definitions);
    let ann = user("ann");
    for wait in ["0s", "61m"] {
        let refusal = stage.create("shop.parcel", &ann).with("wait", wait).bad_input();
        assert_eq!(&*refusal.reason, "`wait` must be from 1s to 1h");
    }
    let parcel = stage.create("shop.parcel", &ann).with("wait", "31m").ok();
    stage.fire(parcel, "longer", &ann).refused(422, "fault");
}
