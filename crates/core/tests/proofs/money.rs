//! Holds are empty at the end.

use super::house::{sound, unsound, warned};

const COMMIT: &str = "move  = [{ from = \"hold\", to = \"revenue\", amount = \"rest\" }]\n";

/// IMG-13, REL-18: no way into a final state with money in the hold.
#[test]
fn every_end_empties_the_hold() {
    unsound(&[(COMMIT, "")], "filled-hold");
    unsound(&[("move = [{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }]", "")], "filled-hold");
    // A cancelled job before it was paid for has nothing; afterwards it has.
    sound(&[("[[on.lease]]", "[[on.cancel]]\ngo = \"NEW -> FAILED\"\n\n[[on.lease]]")]);
    unsound(&[("[[on.lease]]", "[[on.cancel]]\ngo = \"NEW | WAITING -> FAILED\"\n\n[[on.lease]]")], "filled-hold");
}

/// REL-18: the order of moves counts.
#[test]
fn moves_count_in_their_order() {
    let pay = |moves: &str| {
        (
            "[[on.lease]]".to_owned(),
            format!("[[on.cancel]]\ngo = \"QUEUED -> FAILED\"\nmove = [{moves}]\n\n[[on.lease]]"),
        )
    };
    let rest = "{ from = \"hold\", to = \"fee\", amount = \"rest\" }";
    let fill = "{ from = \"mint\", to = \"hold\", amount = \"1\" }";
    let (old, new) = pay(&format!("{fill}, {rest}"));
    sound(&[(&old, &new)]);
    let (old, new) = pay(&format!("{rest}, {fill}"));
    unsound(&[(&old, &new)], "filled-hold");
    // An amount may leave something behind.
    let (old, new) = pay("{ from = \"hold\", to = \"fee\", amount = \"record.price\" }");
    unsound(&[(&old, &new)], "filled-hold");
}

#[test]
fn a_note_on_a_final_state_fills_nothing() {
    let late =
        "[[on.late]]\ngo = \"FAILED\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"1\" }]\n\n[[on.lease]]";
    unsound(&[("[[on.lease]]", late)], "filled-hold");
    let through = "[[on.late]]\ngo = \"FAILED\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"1\" }, { from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.lease]]";
    sound(&[("[[on.lease]]", through)]);
}

#[test]
fn the_world_is_seen_from_every_file() {
    let grant = "language = 1\nlifecycle = \"test.grant\"\nabout = \"x\"\nasset = \"coin\"\n[states]\nGIVEN = { final = true }\n[[on.create]]\ngo = \"-> GIVEN\"\nby = \"operator\"\nmove = [{ from = \"mint\", to = \"fee\", amount = \"1\" }]\n";
    let found = super::house::found(&[super::house::JOB, super::house::THING, grant]);
    assert_eq!(found, vec!["outside-elsewhere"]);
    warned(&[("[[on.lease]]", "[[on.ask]]\ngo = \"QUEUED\"\nby = \"record\"\n\n[[on.lease]]")], "never-caused");
}

/// REL-18: money that comes in must have a way out.
#[test]
fn money_is_not_trapped() {
    let file = |more: &str| {
        format!(
            "language = 1\nlifecycle = \"test.box\"\nabout = \"x\"\nasset = \"coin\"\noutside = [\"mint\"]\n[states]\nOPEN = {{ rest = true }}\nPAID = {{ rest = true }}\nSHUT = {{ rest = true }}\n[[on.create]]\ngo = \"-> OPEN\"\n[[on.pay]]\ngo = \"OPEN -> PAID\"\nmove = [{{ from = \"mint\", to = \"hold\", amount = \"5\" }}]\n[[on.shut]]\ngo = \"OPEN | PAID -> SHUT\"\n{more}"
        )
    };
    assert_eq!(super::house::found(&[&file("")]), vec!["trapped-hold"]);
    // A way on is none where what is in the hold stays there, or some of it.
    let part = "[[on.take]]\ngo = \"SHUT\"\nmove = [{ from = \"hold\", to = \"mint\", amount = \"3\" }]\n";
    assert_eq!(super::house::found(&[&file(part)]), vec!["trapped-hold"]);
    let rest = "[[on.take]]\ngo = \"SHUT\"\nmove = [{ from = \"hold\", to = \"mint\", amount = \"rest\" }]\n";
    assert_eq!(super::house::found(&[&file(rest)]), Vec::<&str>::new());
    let chosen = "[[on.take]]\ngo = \"SHUT\"\ninput = { much = { type = \"int\", min = 0 } }\nmove = [{ from = \"hold\", to = \"mint\", amount = \"input.much\" }]\n";
    assert_eq!(super::house::found(&[&file(chosen)]), Vec::<&str>::new());
}
