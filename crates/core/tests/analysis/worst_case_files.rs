//! Tests files that are built to be slow to analyze.

use std::fmt::Write as _;

use super::support::diagnostic_codes;

#[test]
fn largest_file_is_analyzed_without_panic() {
    let states = 64;
    let mut text = String::from("language = 1\nlifecycle = \"test.large\"\nabout = \"x\"\n[states]\n");
    for state in 0..states {
        let _ = writeln!(text, "S{state} = {{}}");
    }
    text.push_str("[fields]\n");
    for field in 0..100 {
        let _ = writeln!(text, "f{field} = {{ type = \"int\", default = 0 }}");
    }
    text.push_str("[[on.create]]\ngo = \"-> S0\"\n");
    let all: Vec<String> = (0..states).map(|state| format!("S{state}")).collect();
    let all = all.join(" | ");
    for row in 0..250 {
        let guard = format!(
            "record.f{} + {row} < record.f{} && record.f{} != {row}",
            row % 100,
            (row + 1) % 100,
            (row + 2) % 100
        );
        let _ = write!(
            text,
            "[[on.time]]\ngo = \"{all} -> S{}\"\nafter = \"1s\"\nwhen = \"{guard}\"\nset = {{ f{} = \"record.f{} + 1\" }}\n",
            row % states,
            row % 100,
            row % 100
        );
    }
    let found = diagnostic_codes(&[&text]);
    assert!(found.contains(&"orphan-state"), "{found:?}");
}

/// Each counted failure precedes all later ones in every leased state. The analysis of counts is bounded.
#[test]
fn many_counted_fail_transitions_are_analyzed() {
    let states = 60;
    let mut text = String::from("language = 1\nlifecycle = \"test.large\"\nabout = \"x\"\n[states]\n");
    text.push_str("Q = { ready = true }\nD = { final = true }\nF = { final = true }\n");
    for state in 0..states {
        let _ = writeln!(text, "R{state} = {{}}");
    }
    text.push_str("[work]\nlease = \"30s\"\n[fields]\n");
    for field in 0..50 {
        let _ = writeln!(text, "f{field} = {{ type = \"int\", default = 0 }}");
    }
    let all: Vec<String> = (0..states).map(|state| format!("R{state}")).collect();
    let all = all.join(" | ");
    let _ = write!(text, "[[on.create]]\ngo = \"-> Q\"\n[[on.commit]]\ngo = \"{all} -> D\"\n");
    for state in 0..states {
        let _ = write!(text, "[[on.lease]]\ngo = \"Q -> R{state}\"\nwhen = \"record.attempt % 60 == {state}\"\n");
    }
    for row in 0..40 {
        let (field, next) = (row % 50, (row + 1) % 50);
        let _ = write!(
            text,
            "[[on.fail]]\ngo = \"{all} -> Q\"\nwhen = \"record.f{field} < {row} && record.f{next} < {row}\"\n\
             set = {{ f{field} = \"record.f{field} + 1\" }}\n"
        );
    }
    let _ = write!(text, "[[on.fail]]\ngo = \"{all} -> Q\"\n");
    let found = diagnostic_codes(&[&text]);
    assert!(found.contains(&"unhandled-work"), "{found:?}");
}

/// The conditions alternate at maximum depth; following both branches at each would take exponential time.
#[test]
fn deeply_nested_guards_are_analyzed() {
    let mut guard = "record.a == 1".to_owned();
    for depth in 0..24 {
        let operator = if depth % 2 == 0 { "&&" } else { "||" };
        guard = format!("(record.a == {depth} {operator} !({guard}))");
    }
    let text = format!(
        "language = 1\nlifecycle = \"test.deep\"\nabout = \"x\"\n[states]\nA = {{ rest = true }}\n[fields]\na = {{ type = \"int\", default = 0 }}\n[[on.create]]\ngo = \"-> A\"\n[[on.go]]\ngo = \"A\"\nwhen = \"{guard}\"\n[[on.go]]\ngo = \"A\"\nwhen = \"!({guard})\"\n"
    );
    diagnostic_codes(&[&text]);
}
