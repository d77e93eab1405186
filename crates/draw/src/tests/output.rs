//! Tests that the output is well-formed, escaped, deterministic and bounded.

use super::lifecycles::{
    empty_lifecycle, event_with, load_systems, null_formula, plain_state, random_lifecycle, shipped_lifecycle,
    shipped_lifecycles, transfer, transition,
};
use crate::{render_mermaid, render_svg};
use onceward_core::model::{Lifecycle, RefusalClause, StateSet, TimerSpec, TransferAmount};

fn assert_well_formed(name: &str, svg: &str) {
    if let Err(error) = roxmltree::Document::parse(svg) {
        panic!("{name}: {error}");
    }
}

/// Returns all text of the diagram except tooltips.
fn visible_text(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed");
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let words = |text: roxmltree::Node| -> String {
        text.descendants().filter(roxmltree::Node::is_text).filter_map(|node| node.text()).collect()
    };
    texts.map(|text| words(text).replace('\u{a0}', " ")).collect()
}

fn lifecycle_with_text(text: &str) -> Lifecycle {
    let mut out = empty_lifecycle(text, text);
    out.states = vec![plain_state(text, text), plain_state(text, text)];
    let mut create = transition(StateSet::default(), Some(0));
    create.when = Some(null_formula(text));
    let mut call = transition(StateSet::default().with(0), Some(1));
    call.rules = vec![text.into()];
    let stay = transition(StateSet::default().with(1), None);
    out.events = vec![event_with("create", vec![create]), event_with(text, vec![call, stay])];
    out
}

#[test]
fn svg_is_well_formed_xml() {
    for lifecycle in shipped_lifecycles() {
        assert_well_formed(&lifecycle.name, &render_svg(&lifecycle));
    }
    for seed in 0..12 {
        assert_well_formed(&format!("seed {seed}"), &render_svg(&random_lifecycle(seed, 9, 30)));
    }
}

#[test]
fn hostile_text_is_escaped_and_bounded() {
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
        let picture = render_svg(&lifecycle_with_text(text));
        assert_well_formed(text, &picture);
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
        let told = render_mermaid(&lifecycle_with_text(text));
        assert!(told.len() < 60_000);
        assert!(!told.contains("<script"), "{told}");
        assert!(told.lines().all(|line| !line.contains('\r')));
    }
}

#[test]
fn rendering_is_deterministic() {
    for (one, other) in shipped_lifecycles().into_iter().zip(shipped_lifecycles()) {
        assert_eq!(render_svg(&one), render_svg(&other));
        assert_eq!(render_mermaid(&one), render_mermaid(&other));
    }
}

#[test]
fn svg_shows_events_callers_guards_timers_and_transfers() {
    let document = visible_text(&render_svg(&shipped_lifecycle("document.job"))).join("\n");
    for told in [
        "document.job",
        "QUEUED",
        "waiting for a worker",
        "submit · owner",
        "after 1s",
        "if error.retryable",
        "otherwise",
    ] {
        assert!(document.contains(told), "{told} is missing in\n{document}");
    }
    let image = visible_text(&render_svg(&shipped_lifecycle("image.job"))).join("\n");
    for told in ["hold → revenue", "makes image.asset", "at retryAt", "block · moderator", "replay · owner or operator"]
    {
        assert!(image.contains(told), "{told} is missing in\n{image}");
    }
    let relay = visible_text(&render_svg(&shipped_lifecycle("relay.job"))).join("\n");
    for told in ["resolve ← another record", "requires won of", "tells links.submissions: discard"] {
        assert!(relay.contains(told), "{told} is missing in\n{relay}");
    }
}

/// Transitions on one edge need no numbers, because the edge lists them in order.
#[test]
fn competing_transitions_on_several_edges_are_numbered() {
    let execution = visible_text(&render_svg(&shipped_lifecycle("execution.job"))).join("\n");
    for told in ["1. fail", "2. fail", "3. fail", "transitions are tried in this order"] {
        assert!(execution.contains(told), "{told} is missing in\n{execution}");
    }
    assert!(!execution.contains("1. lease"), "{execution}");
    assert!(render_mermaid(&shipped_lifecycle("execution.job")).contains("2. fail"));
    let relay = visible_text(&render_svg(&shipped_lifecycle("relay.job"))).join("\n");
    assert!(relay.contains("only another record sends it") && !relay.contains("tried in this order"), "{relay}");
}

/// Timers with different delays do not compete and get no numbers.
#[test]
fn timers_with_equal_delay_are_numbered() {
    let timed = |after: &str, to, when: Option<&str>| {
        let mut row = transition(StateSet::default().with(0), Some(to));
        row.timer = Some(TimerSpec::AfterEntering(null_formula(after)));
        row.when = when.map(null_formula);
        row
    };
    let mut waits = empty_lifecycle("a.b", "");
    waits.states = vec![plain_state("A", ""), plain_state("B", "")];
    let first = timed("'3d'", 0, Some("record.reminders < 3"));
    waits.events = vec![
        event_with("create", vec![transition(StateSet::default(), Some(0))]),
        event_with("time", vec![first, timed("'3d'", 1, None)]),
    ];
    let lines = visible_text(&render_svg(&waits));
    for told in ["1. after 3d", "2. after 3d", "otherwise"] {
        assert!(lines.iter().any(|line| line == told), "{told} is missing in {lines:#?}");
    }
    assert!(render_mermaid(&waits).contains("⏱ 2. after 3d<br/>otherwise"), "{}", render_mermaid(&waits));
    waits.events[1].transitions[1] = timed("'4d'", 1, None);
    let lines = visible_text(&render_svg(&waits));
    assert!(lines.iter().any(|line| line == "after 3d") && !lines.iter().any(|line| line == "otherwise"), "{lines:#?}");
}

/// Long account names keep the part that distinguishes them.
#[test]
fn mermaid_lists_all_refusals_and_transfers() {
    let mut pays = empty_lifecycle("a.b", "");
    pays.states = vec![plain_state("A", "")];
    let mut create = transition(StateSet::default(), Some(0));
    for to in ["first:{record.owner}", "second:{input.submission.worker.name}", "third:{checks.deposit.sender}"] {
        create.transfers.push(transfer(
            "hold",
            to,
            TransferAmount::Computed(null_formula(&format!("record.price * {}", to.len()))),
        ));
    }
    create.refuse.push(RefusalClause {
        condition: null_formula("true"),
        status: 409,
        code: "judging".into(),
        audit: None,
    });
    create.refuse.push(RefusalClause {
        condition: null_formula("false"),
        status: 409,
        code: "own_job".into(),
        audit: None,
    });
    pays.events = vec![event_with("create", vec![create])];
    let told =
        render_mermaid(&pays).replace("#58;", ":").replace("#123;", "{").replace("#125;", "}").replace("#95;", "_");
    for part in [
        "refused: judging, own_job<br/>",
        "hold → first:{owner} (",
        "<br/>hold → second:{submission.worker.name} (",
        "<br/>hold → third:{checks.deposit.sender} (",
    ] {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    assert!(visible_text(&render_svg(&pays)).iter().any(|line| line == "refused: judging, own_job"));
}

/// No rule id is cut off.
#[test]
fn long_guard_wraps_before_loosest_operator() {
    let mut long = empty_lifecycle("a.b", "");
    long.states = vec![plain_state("A", "")];
    let mut create = transition(StateSet::default(), Some(0));
    create.when =
        Some(null_formula("record.first == 1 && record.second == 2 || record.third == 3 && record.fourth == 4"));
    create.rules = (1..=12).map(|rule| format!("RULE-{rule}").into()).collect();
    long.events = vec![event_with("create", vec![create])];
    let lines = visible_text(&render_svg(&long));
    for told in ["if first == 1 && second == 2", "|| third == 3 && fourth == 4"] {
        assert!(lines.iter().any(|line| line == told), "{told} is missing in {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.ends_with("RULE-12")), "{lines:#?}");
}

#[test]
fn largest_lifecycle_renders_within_size_bound() {
    for seed in 0..3 {
        let largest = random_lifecycle(seed, 64, 1_000);
        assert!(render_svg(&largest).len() < 3_000_000);
        assert!(render_mermaid(&largest).len() < 1_000_000);
    }
}

#[test]
fn empty_lifecycle_renders_valid_output() {
    assert_well_formed("empty", &render_svg(&empty_lifecycle("", "")));
    assert!(render_mermaid(&empty_lifecycle("", "")).starts_with("stateDiagram-v2\n"));
}

/// Writes all diagrams for review: `DRAW_TO=dir cargo test -p onceward-draw write_all_diagrams -- --ignored`.
/// `DRAW_FROM` names another directory of systems.
#[test]
#[ignore = "writes files for people to look at"]
fn write_all_diagrams() {
    let Ok(to) = std::env::var("DRAW_TO") else { return };
    let real = std::env::var("DRAW_FROM").map_or_else(|_| shipped_lifecycles(), |from| load_systems(from.as_ref()));
    let nasty = lifecycle_with_text("a\"b'c`d<br>#35;{x}[y]%%z;:: --> [*] \\n \u{202e}end note &amp; ${q} *b* _i_");
    let random_ones = [random_lifecycle(5, 5, 12), random_lifecycle(9, 9, 20), random_lifecycle(1, 64, 1_000), nasty];
    for lifecycle in real.into_iter().chain(random_ones.map(Into::into)) {
        let started = std::time::Instant::now();
        let picture = render_svg(&lifecycle);
        eprintln!("{}: {} bytes in {:?}", lifecycle.name, picture.len(), started.elapsed());
        let name: String = lifecycle.name.chars().filter(|c| c.is_alphanumeric() || *c == '.').collect();
        std::fs::write(format!("{to}/{name}.svg"), picture).expect("written");
        std::fs::write(format!("{to}/{name}.mmd"), render_mermaid(&lifecycle)).expect("written");
    }
}
