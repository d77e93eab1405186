//! Tests that holds are empty in final states.

use super::support::{assert_no_diagnostics, assert_only_error, assert_only_warning};

const COMMIT_TRANSFER: &str = "move  = [{ from = \"hold\", to = \"revenue\", amount = \"rest\" }]\n";

/// IMG-13, REL-18
#[test]
fn final_state_with_filled_hold_is_error() {
    assert_only_error(&[(COMMIT_TRANSFER, "")], "filled-hold");
    assert_only_error(
        &[("move = [{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }]", "")],
        "filled-hold",
    );
    // A job that is canceled before payment has an empty hold; after payment it has not.
    assert_no_diagnostics(&[("[[on.lease]]", "[[on.cancel]]\ngo = \"NEW -> FAILED\"\n\n[[on.lease]]")]);
    assert_only_error(
        &[("[[on.lease]]", "[[on.cancel]]\ngo = \"NEW | WAITING -> FAILED\"\n\n[[on.lease]]")],
        "filled-hold",
    );
}

/// REL-18
#[test]
fn transfer_order_decides_whether_hold_is_filled() {
    let pay = |moves: &str| {
        (
            "[[on.lease]]".to_owned(),
            format!("[[on.cancel]]\ngo = \"QUEUED -> FAILED\"\nmove = [{moves}]\n\n[[on.lease]]"),
        )
    };
    let rest = "{ from = \"hold\", to = \"fee\", amount = \"rest\" }";
    let fill = "{ from = \"mint\", to = \"hold\", amount = \"1\" }";
    let (old, new) = pay(&format!("{fill}, {rest}"));
    assert_no_diagnostics(&[(&old, &new)]);
    let (old, new) = pay(&format!("{rest}, {fill}"));
    assert_only_error(&[(&old, &new)], "filled-hold");
    // A fixed amount may leave a rest.
    let (old, new) = pay("{ from = \"hold\", to = \"fee\", amount = \"record.price\" }");
    assert_only_error(&[(&old, &new)], "filled-hold");
}

#[test]
fn internal_transition_filling_hold_of_final_state_is_error() {
    let late =
        "[[on.late]]\ngo = \"FAILED\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"1\" }]\n\n[[on.lease]]";
    assert_only_error(&[("[[on.lease]]", late)], "filled-hold");
    let through = "[[on.late]]\ngo = \"FAILED\"\nmove = [{ from = \"mint\", to = \"hold\", amount = \"1\" }, { from = \"hold\", to = \"fee\", amount = \"rest\" }]\n\n[[on.lease]]";
    assert_no_diagnostics(&[("[[on.lease]]", through)]);
}

#[test]
fn outside_account_of_other_file_gives_warning() {
    let grant = "language = 1\nlifecycle = \"test.grant\"\nabout = \"x\"\nasset = \"coin\"\n[states]\nGIVEN = { final = true }\n[[on.create]]\ngo = \"-> GIVEN\"\nby = \"operator\"\nmove = [{ from = \"mint\", to = \"fee\", amount = \"1\" }]\n";
    let found =
        super::support::diagnostic_codes(&[super::support::JOB_LIFECYCLE, super::support::THING_LIFECYCLE, grant]);
    assert_eq!(found, vec!["outside-elsewhere"]);
    assert_only_warning(
        &[("[[on.lease]]", "[[on.ask]]\ngo = \"QUEUED\"\nby = \"record\"\n\n[[on.lease]]")],
        "never-sent",
    );
}

/// REL-18
#[test]
fn hold_without_emptying_transition_gives_trapped_hold() {
    let file = |more: &str| {
        format!(
            "language = 1\nlifecycle = \"test.box\"\nabout = \"x\"\nasset = \"coin\"\noutside = [\"mint\"]\n[states]\nOPEN = {{ rest = true }}\nPAID = {{ rest = true }}\nSHUT = {{ rest = true }}\n[[on.create]]\ngo = \"-> OPEN\"\n[[on.pay]]\ngo = \"OPEN -> PAID\"\nmove = [{{ from = \"mint\", to = \"hold\", amount = \"5\" }}]\n[[on.shut]]\ngo = \"OPEN | PAID -> SHUT\"\n{more}"
        )
    };
    assert_eq!(super::support::diagnostic_codes(&[&file("")]), vec!["trapped-hold"]);
    // Leaving the state does not help if the hold keeps some money.
    let part = "[[on.take]]\ngo = \"SHUT\"\nmove = [{ from = \"hold\", to = \"mint\", amount = \"3\" }]\n";
    assert_eq!(super::support::diagnostic_codes(&[&file(part)]), vec!["trapped-hold"]);
    let rest = "[[on.take]]\ngo = \"SHUT\"\nmove = [{ from = \"hold\", to = \"mint\", amount = \"rest\" }]\n";
    assert_eq!(super::support::diagnostic_codes(&[&file(rest)]), Vec::<&str>::new());
    let chosen = "[[on.take]]\ngo = \"SHUT\"\ninput = { much = { type = \"int\", min = 0 } }\nmove = [{ from = \"hold\", to = \"mint\", amount = \"input.much\" }]\n";
    assert_eq!(super::support::diagnostic_codes(&[&file(chosen)]), Vec::<&str>::new());
}
