//! MSH-6: claims that are replaced by others.

use onceward_core::value::RecordId;

use super::{evidence, fact, grounded, machine, one_of_each, rejected, rival, stage, supersede, you};

/// MSH-6: a machine replaces whatever is neither a Fact nor rejected, and the claim says by what.
#[test]
fn claims_are_replaced() {
    let mut stage = stage();
    let (ground, better) = (evidence(&mut stage), rival(&mut stage));
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        match state {
            "Fact" | "Rejected" => drop(supersede(&mut stage, id, better, &machine()).not_allowed()),
            "Superseded" => drop(supersede(&mut stage, id, better, &machine()).wrong_state(state, "supersede")),
            _ => {
                supersede(&mut stage, id, better, &machine()).ok();
                assert_eq!(stage.state(id), "Superseded", "from {state}");
                assert_eq!(stage.field(id, "replacedBy"), better.to_string());
            }
        }
    }
    assert_eq!(stage.state(better), "Claim");
}

/// MSH-6, MSH-9, MSH-10, MSH-11: a Fact and a Rejected claim are replaced by the user, who must also hold the capability.
#[test]
fn the_user_replaces_facts_and_rejected_claims() {
    let mut stage = stage();
    let (ground, better) = (evidence(&mut stage), rival(&mut stage));
    let mut voice = you();
    voice.capabilities = vec!["Claim.Read".into()];
    for id in [fact(&mut stage, &[ground]), rejected(&mut stage, &[ground])] {
        supersede(&mut stage, id, better, &machine()).not_allowed();
        supersede(&mut stage, id, better, &voice).not_allowed();
        supersede(&mut stage, id, better, &you()).ok();
        assert_eq!((stage.state(id), stage.field(id, "replacedBy")), ("Superseded".into(), better.to_string().into()));
    }
}

/// MSH-6: the replacement must be a claim that is on the log already.
#[test]
fn the_replacement_is_there() {
    let mut stage = stage();
    let (id, ground) = (grounded(&mut stage), evidence(&mut stage));
    let nowhere = RecordId("01930000-0000-7000-8000-000000000001".parse().expect("a UUID"));
    supersede(&mut stage, id, nowhere, &machine()).bad_input();
    supersede(&mut stage, id, ground, &machine()).bad_input();
    stage.fire(id, "supersede", &machine()).bad_input();
    assert_eq!(stage.state(id), "Claim");
}

/// MSH-6: nothing replaces itself, neither at once nor round a corner.
#[test]
fn replacements_go_round_in_no_circle() {
    let mut stage = stage();
    let [a, b, c] = [0; 3].map(|_| grounded(&mut stage));
    supersede(&mut stage, a, a, &machine()).refused(422, "replaces_itself");
    supersede(&mut stage, a, b, &machine()).ok();
    supersede(&mut stage, b, a, &machine()).refused(409, "replacement_superseded");
    supersede(&mut stage, b, c, &machine()).ok();
    supersede(&mut stage, c, a, &machine()).refused(409, "replacement_superseded");
    stage.fire(c, "confirm", &you()).ok();
    supersede(&mut stage, c, c, &you()).refused(422, "replaces_itself");
    supersede(&mut stage, c, b, &you()).refused(409, "replacement_superseded");
}

/// MSH-6, MSH-10: the user lifts one out of a chain, and it names its replacement no more; so it may replace what replaced
/// it, and the circle stays open.
#[test]
fn what_the_user_lifts_closes_no_circle() {
    for event in ["confirm", "reject"] {
        let mut stage = stage();
        let [a, b, c] = [0; 3].map(|_| grounded(&mut stage));
        supersede(&mut stage, a, b, &machine()).ok();
        supersede(&mut stage, b, c, &machine()).ok();
        stage.fire(a, event, &you()).ok();
        assert!(stage.field(a, "replacedBy").is_null());
        supersede(&mut stage, c, a, &machine()).ok();
        supersede(&mut stage, a, b, &you()).refused(409, "replacement_superseded");
        supersede(&mut stage, a, c, &you()).refused(409, "replacement_superseded");
        assert_eq!([b, c].map(|id| stage.field(id, "replacedBy")), [c, a].map(|id| id.to_string()));
    }
}

/// MSH-6: to be replaced is not to be wrong: what rests on the old claim stays.
#[test]
fn replacing_spreads_no_doubt() {
    let mut stage = stage();
    let (id, better) = (grounded(&mut stage), rival(&mut stage));
    let above = super::claim(&mut stage, &[id]);
    assert_eq!(supersede(&mut stage, id, better, &machine()).changes().records.len(), 1);
    assert_eq!(stage.state(above), "Claim");
}

/// MSH-6: what is replaced is replaced by something: another claim, which is named and is there.
#[test]
fn a_replacement_is_named() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let nobody = RecordId("01930000-0000-7000-8000-000000000009".parse().expect("a UUID"));
    for (state, id) in one_of_each(&mut stage, &[ground]).into_iter().filter(|(state, _)| *state != "Superseded") {
        stage.fire(id, "supersede", &you()).bad_input();
        supersede(&mut stage, id, ground, &you()).bad_input();
        supersede(&mut stage, id, nobody, &you()).bad_input();
        assert_eq!(stage.state(id), state);
    }
}
