//! What the texts must keep to: well-formed, escaped, the same each time, bounded in size.

use super::sample::{empty, event, formula, money, one, random, row, shipped, state, systems};
use crate::draw::{mermaid, svg};
use crate::model::{Amount, Lifecycle, Refuse, StateSet, Timing};

fn parsed(name: &str, svg: &str) {
    if let Err(error) = roxmltree::Document::parse(svg) {
        panic!("{name}: {error}");
    }
}

/// All text of the picture, without the tooltips.
fn shown(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed");
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let words = |text: roxmltree::Node| -> String {
        text.descendants().filter(roxmltree::Node::is_text).filter_map(|node| node.text()).collect()
    };
    texts.map(|text| words(text).replace('\u{a0}', " ")).collect()
}

fn hostile(text: &str) -> Lifecycle {
    let mut out = empty(text, text);
    out.states = vec![state(text, text), state(text, text)];
    let mut create = row(StateSet::default(), Some(0));
    create.when = Some(formula(text));
    let mut call = row(StateSet::default().with(0), Some(1));
    call.rules = vec![text.into()];
    let stay = row(StateSet::default().with(1), None);
    out.events = vec![event("create", vec![create]), event(text, vec![call, stay])];
    out
}

#[test]
fn pictures_are_well_formed() {
    for lifecycle in shipped() {
        parsed(&lifecycle.name, &svg(&lifecycle));
    }
    for seed in 0..12 {
        parsed(&format!("seed {seed}"), &svg(&random(seed, 9, 30)));
    }
}

#[test]
fn no_text_breaks_out_of_the_picture() {
    let long = "m".repeat(100_000);
    for text in [
        "</text><script>alert(1)</script>",
        "\" onload=\"alert(1)",
        "a\u{0}b\u{1b}c\u{ffff}\u{202e}d",
        "]]>&amp;&#0;<!--",
        "line\nbreak\r\n\ttab",
        "",
        &long,
    ] {
        let picture = svg(&hostile(text));
        parsed(text, &picture);
        let document = roxmltree::Document::parse(&picture).expect("well-formed");
        let known = ["svg", "title", "style", "rect", "g", "path", "circle", "text", "tspan"];
        assert!(
            document
                .descendants()
                .filter(roxmltree::Node::is_element)
                .all(|node| known.contains(&node.tag_name().name()))
        );
        let attributes = document
            .descendants()
            .flat_map(|node| node.attributes().map(|it| it.name().to_owned()).collect::<Vec<_>>());
        assert!(attributes.into_iter().all(|name| !name.starts_with("on")));
        assert!(picture.len() < 60_000, "{} bytes", picture.len());
        let told = mermaid(&hostile(text));
        assert!(told.len() < 60_000);
        assert!(!told.contains("<script"), "{told}");
        assert!(told.lines().all(|line| !line.contains('\r')));
    }
}

#[test]
fn the_same_lifecycle_gives_the_same_text() {
    for (one, other) in shipped().into_iter().zip(shipped()) {
        assert_eq!(svg(&one), svg(&other));
        assert_eq!(mermaid(&one), mermaid(&other));
    }
}

#[test]
fn a_picture_tells_events_callers_guards_timers_and_money() {
    let document = shown(&svg(&one("document.job"))).join("\n");
    for told in [
        "document.job",
        "QUEUED",
        "waiting for a worker",
        "submit · owner",
        "after 1s",
        "if cancelRequested",
        "otherwise",
    ] {
        assert!(document.contains(told), "{told} is missing in\n{document}");
    }
    let image = shown(&svg(&one("image.job"))).join("\n");
    for told in ["hold → revenue", "makes image.asset", "at retryAt", "block · moderator", "replay · owner or operator"]
    {
        assert!(image.contains(told), "{told} is missing in\n{image}");
    }
    let relay = shown(&svg(&one("relay.job"))).join("\n");
    for told in ["resolve ← another record", "requires won of", "tells links.submissions: discard"] {
        assert!(relay.contains(told), "{told} is missing in\n{relay}");
    }
}

/// Rows that compete on several arrows say which is tried first; rows on one arrow stand in that order.
#[test]
fn rows_on_several_arrows_are_numbered() {
    let execution = shown(&svg(&one("execution.job"))).join("\n");
    for told in ["1. fail", "2. fail", "3. fail", "its rows are tried in this order"] {
        assert!(execution.contains(told), "{told} is missing in\n{execution}");
    }
    assert!(!execution.contains("1. lease"), "{execution}");
    assert!(mermaid(&one("execution.job")).contains("2. fail"));
    let relay = shown(&svg(&one("relay.job"))).join("\n");
    assert!(relay.contains("only another record sends it") && !relay.contains("tried in this order"), "{relay}");
}

/// Timers of one time compete as other rows do; those of different times do not.
#[test]
fn timers_of_the_same_time_are_numbered() {
    let timed = |after: &str, to, when: Option<&str>| {
        let mut row = row(StateSet::default().with(0), Some(to));
        row.timing = Some(Timing::After(formula(after)));
        row.when = when.map(formula);
        row
    };
    let mut waits = empty("a.b", "");
    waits.states = vec![state("A", ""), state("B", "")];
    let first = timed("'3d'", 0, Some("record.reminders < 3"));
    waits.events = vec![
        event("create", vec![row(StateSet::default(), Some(0))]),
        event("time", vec![first, timed("'3d'", 1, None)]),
    ];
    let lines = shown(&svg(&waits));
    for told in ["1. after 3d", "2. after 3d", "otherwise"] {
        assert!(lines.iter().any(|line| line == told), "{told} is missing in {lines:#?}");
    }
    assert!(mermaid(&waits).contains("⏱ 2. after 3d<br/>otherwise"), "{}", mermaid(&waits));
    waits.events[1].rows[1] = timed("'4d'", 1, None);
    let lines = shown(&svg(&waits));
    assert!(lines.iter().any(|line| line == "after 3d") && !lines.iter().any(|line| line == "otherwise"), "{lines:#?}");
}

/// No move of money, nor anything else that a row causes, is left out of the text; names keep what tells them apart.
#[test]
fn mermaid_tells_all_that_a_row_causes() {
    let mut pays = empty("a.b", "");
    pays.states = vec![state("A", "")];
    let mut create = row(StateSet::default(), Some(0));
    for to in ["first:{record.owner}", "second:{input.submission.worker.name}", "third:{checks.deposit.sender}"] {
        create.moves.push(money("hold", to, Amount::Formula(formula(&format!("record.price * {}", to.len())))));
    }
    create.refuse.push(Refuse { condition: formula("true"), status: 409, code: "judging".into(), audit: None });
    create.refuse.push(Refuse { condition: formula("false"), status: 409, code: "own_job".into(), audit: None });
    pays.events = vec![event("create", vec![create])];
    let told = mermaid(&pays).replace("#58;", ":").replace("#123;", "{").replace("#125;", "}").replace("#95;", "_");
    for part in [
        "refused: judging, own_job<br/>",
        "hold → first:{owner} (",
        "<br/>hold → second:{submission.worker.name} (",
        "<br/>hold → third:{checks.deposit.sender} (",
    ] {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    assert!(shown(&svg(&pays)).iter().any(|line| line == "refused: judging, own_job"));
}

/// A guard breaks where its parts are joined most loosely, and no rule is cut off.
#[test]
fn long_words_are_broken_where_they_are_loose() {
    let mut long = empty("a.b", "");
    long.states = vec![state("A", "")];
    let mut create = row(StateSet::default(), Some(0));
    create.when = Some(formula("record.first == 1 && record.second == 2 || record.third == 3 && record.fourth == 4"));
    create.rules = (1..=12).map(|rule| format!("RULE-{rule}").into()).collect();
    long.events = vec![event("create", vec![create])];
    let lines = shown(&svg(&long));
    for told in ["if first == 1 && second == 2", "|| third == 3 && fourth == 4"] {
        assert!(lines.iter().any(|line| line == told), "{told} is missing in {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.ends_with("RULE-12")), "{lines:#?}");
}

#[test]
fn the_largest_lifecycles_give_bounded_pictures() {
    for seed in 0..3 {
        let largest = random(seed, 64, 1_000);
        assert!(svg(&largest).len() < 3_000_000);
        assert!(mermaid(&largest).len() < 1_000_000);
    }
}

#[test]
fn a_lifecycle_without_anything_is_still_a_picture() {
    parsed("empty", &svg(&empty("", "")));
    assert!(mermaid(&empty("", "")).starts_with("stateDiagram-v2\n"));
}

/// For looking at them: `DRAW_TO=dir cargo test -p onceward-core draw_all -- --ignored`; `DRAW_FROM` names another
/// directory of systems.
#[test]
#[ignore = "writes files for people to look at"]
fn draw_all() {
    let Ok(to) = std::env::var("DRAW_TO") else { return };
    let real = std::env::var("DRAW_FROM").map_or_else(|_| shipped(), |from| systems(from.as_ref()));
    let nasty = hostile("a\"b'c`d<br>#35;{x}[y]%%z;:: --> [*] \\n \u{202e}end note &amp; ${q} *b* _i_");
    let random_ones = [random(5, 5, 12), random(9, 9, 20), random(1, 64, 1_000), nasty];
    for lifecycle in real.into_iter().chain(random_ones.map(Into::into)) {
        let started = std::time::Instant::now();
        let picture = svg(&lifecycle);
        eprintln!("{}: {} bytes in {:?}", lifecycle.name, picture.len(), started.elapsed());
        let name: String = lifecycle.name.chars().filter(|c| c.is_alphanumeric() || *c == '.').collect();
        std::fs::write(format!("{to}/{name}.svg"), picture).expect("written");
        std::fs::write(format!("{to}/{name}.mmd"), mermaid(&lifecycle)).expect("written");
    }
}
