//! Renders a lifecycle as Mermaid text. Mermaid does the layout.

use std::fmt::Write as _;

use crate::graph::{START_NODE, StateGraph, build_graph};
use crate::labels::{TransitionLabel, TriggerKind};
use crate::text::{sanitize_line, wrap_text};
use onceward_core::count_noun;
use onceward_core::model::{Lifecycle, StateDef, StateReadiness};

/// Names and `about` texts are cut here, because Mermaid wraps them badly.
const MAX_NAME_CHARS: usize = 90;
/// Guards and effects wrap at this width, in pixels at Mermaid's font size.
const WRAP_WIDTH: f64 = 640.0;
const WRAP_FONT_SIZE: f64 = 12.0;
const MAX_WRAPPED_LINES: usize = 5;
/// Further effects of a transition are only counted. Without this bound, a file of 256 KB could become a text of many
/// megabytes.
const MAX_EFFECT_BYTES: usize = 2_000;

/// Renders a lifecycle as a Mermaid state diagram.
pub fn render_mermaid(lifecycle: &Lifecycle) -> String {
    let graph = build_graph(lifecycle);
    let mut out = String::from("stateDiagram-v2\n");
    let _ = writeln!(out, "  accTitle: {}", accessible_text(&lifecycle.name));
    if !sanitize_line(&lifecycle.about).is_empty() {
        let _ = writeln!(out, "  accDescr: {}", accessible_text(&lifecycle.about));
    }
    for (ix, state) in lifecycle.states.iter().enumerate() {
        let name = format!("{}{}", encode_truncated(&state.name), state_suffix(state));
        let about = encode_truncated(&state.about);
        let words = if about.is_empty() { name } else { format!("{name}<br/>{about}") };
        let _ = writeln!(out, "  state \"{words}\" as s{ix}");
    }
    for edge in &graph.edges {
        let from = if edge.from == START_NODE { "[*]".to_owned() } else { format!("s{}", edge.from - 1) };
        let mut words: Vec<String> = edge.labels.iter().map(label_text).collect();
        if edge.omitted > 0 {
            words.push(format!("and {} more", edge.omitted));
        }
        let _ = writeln!(out, "  {from} --> s{} : {}", edge.to - 1, words.join("<br/>"));
    }
    for (ix, state) in lifecycle.states.iter().enumerate() {
        if state.is_final {
            let _ = writeln!(out, "  s{ix} --> [*]");
        }
    }
    write_notes(&mut out, lifecycle, &graph);
    write_classes(&mut out, lifecycle);
    out
}

/// Returns the kind of the state as text, because a Mermaid diagram has no legend.
fn state_suffix(state: &StateDef) -> &'static str {
    match state.readiness {
        _ if state.is_reserved => " (reserved)",
        _ if state.is_final => " (final)",
        StateReadiness::Immediate | StateReadiness::FromField(_) => " (ready)",
        StateReadiness::NotReady if state.can_rest => " (may rest)",
        StateReadiness::NotReady => "",
    }
}

fn write_notes(out: &mut String, lifecycle: &Lifecycle, graph: &StateGraph) {
    for (ix, inside) in graph.box_contents.iter().enumerate().skip(1) {
        if inside.transitions.is_empty() {
            continue;
        }
        let _ = writeln!(out, "  note right of s{}", ix - 1);
        for row in &inside.transitions {
            let to = row.to.and_then(|to| lifecycle.states.get(usize::from(to)));
            let to = to.map_or(String::new(), |to| format!(" → {}", encode_truncated(&to.name)));
            let _ = writeln!(out, "    {}{to}", label_text(&row.label));
        }
        if inside.omitted > 0 {
            let _ = writeln!(out, "    and {} more", inside.omitted);
        }
        out.push_str("  end note\n");
    }
}

fn write_classes(out: &mut String, lifecycle: &Lifecycle) {
    let kinds: [(&str, &str, Vec<usize>); 4] = [
        (
            "ready",
            "stroke:#0969da,stroke-width:3px",
            states_where(lifecycle, |ix| lifecycle.states[ix].readiness != StateReadiness::NotReady),
        ),
        ("rest", "stroke:#9a6700,stroke-width:2px", states_where(lifecycle, |ix| lifecycle.states[ix].can_rest)),
        ("ended", "stroke-width:4px", states_where(lifecycle, |ix| lifecycle.states[ix].is_final)),
        ("reserved", "stroke-dasharray:5 4", states_where(lifecycle, |ix| lifecycle.states[ix].is_reserved)),
    ];
    for (name, style, states) in kinds {
        if states.is_empty() {
            continue;
        }
        let _ = writeln!(out, "  classDef {name} {style}");
        for state in states {
            let _ = writeln!(out, "  class s{state} {name}");
        }
    }
}

fn states_where(lifecycle: &Lifecycle, test: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..lifecycle.states.len()).filter(|ix| test(*ix)).collect()
}

fn label_text(label: &TransitionLabel) -> String {
    let mut first = label.numbered_head();
    if label.trigger == TriggerKind::Timer {
        first.insert_str(0, "⏱ ");
    }
    if let Some(caller) = &label.caller {
        let _ = write!(first, " · {caller}");
    }
    let mut words = vec![encode_truncated(&first)];
    words.extend(label.guard.iter().flat_map(|guard| encode_wrapped(guard)));
    words.extend(label.refusals.iter().flat_map(|refusals| encode_wrapped(refusals)));
    // Each effect gets its own line, uncut: a reader must see every transfer.
    let mut written_bytes = 0;
    for (at, effect) in label.effects.iter().enumerate() {
        if written_bytes > MAX_EFFECT_BYTES {
            words.push(format!("and {}", count_noun(label.effects.len() - at, "more effect", "more effects")));
            break;
        }
        let effect = encode_wrapped(&effect.text);
        written_bytes += effect.iter().map(String::len).sum::<usize>();
        words.extend(effect);
    }
    words.join("<br/>")
}

fn encode_wrapped(text: &str) -> Vec<String> {
    wrap_text(text, WRAP_WIDTH, WRAP_FONT_SIZE, false, MAX_WRAPPED_LINES)
        .iter()
        .map(|line| encode_mermaid(line))
        .collect()
}

fn encode_truncated(text: &str) -> String {
    let text = sanitize_line(text);
    match text.char_indices().nth(MAX_NAME_CHARS) {
        Some((at, _)) => encode_mermaid(&format!("{}…", text[..at].trim_end())),
        None => encode_mermaid(&text),
    }
}

/// Replaces each character that Mermaid, Markdown or HTML could interpret with its numeric code.
fn encode_mermaid(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let is_text =
            c.is_alphanumeric() || matches!(c, ' ' | '.' | ',' | '(' | ')' | '!' | '=' | '+' | '·' | '…' | '→' | '⏱');
        // "end note" would end a note.
        let ends = c == ' ' && out.to_ascii_lowercase().ends_with("end");
        if is_text && !ends {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}

/// Returns text for screen readers. Mermaid does not decode numeric codes there, so special characters become spaces.
fn accessible_text(text: &str) -> String {
    let text: String = sanitize_line(text).chars().take(300).collect();
    text.chars()
        .map(|c| if matches!(c, '#' | ';' | '{' | '}' | '%' | ':' | '<' | '>' | '"') { ' ' } else { c })
        .collect()
}
