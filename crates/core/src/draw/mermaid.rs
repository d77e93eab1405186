//! The picture as text for Mermaid, which lays it out itself.

use std::fmt::Write as _;

use super::graph::{Graph, START, graph};
use super::text::{clean, wrap};
use super::words::{Said, Tone};
use crate::counted;
use crate::model::{Lifecycle, Ready, State};

/// Names and what states are about are cut here; Mermaid does not wrap them well.
const CHARS: usize = 90;
/// A guard or an effect is broken here, in pixels of the size that Mermaid sets it in, and has at most so many lines.
const WIDTH: f64 = 640.0;
const SIZE: f64 = 12.0;
const LINES: usize = 5;
/// What one row causes is told up to here, and the rest counted: a file of 256 KB must not become a text of many megabytes.
const EFFECT_CHARS: usize = 2_000;

/// Tells a lifecycle as a Mermaid state diagram.
pub fn mermaid(lifecycle: &Lifecycle) -> String {
    let graph = graph(lifecycle);
    let mut out = String::from("stateDiagram-v2\n");
    let _ = writeln!(out, "  accTitle: {}", plain(&lifecycle.name));
    if !clean(&lifecycle.about).is_empty() {
        let _ = writeln!(out, "  accDescr: {}", plain(&lifecycle.about));
    }
    for (ix, state) in lifecycle.states.iter().enumerate() {
        let name = format!("{}{}", cut(&state.name), standing(state));
        let about = cut(&state.about);
        let words = if about.is_empty() { name } else { format!("{name}<br/>{about}") };
        let _ = writeln!(out, "  state \"{words}\" as s{ix}");
    }
    for edge in &graph.edges {
        let from = if edge.from == START { "[*]".to_owned() } else { format!("s{}", edge.from - 1) };
        let mut words: Vec<String> = edge.rows.iter().map(short).collect();
        if edge.more > 0 {
            words.push(format!("and {} more", edge.more));
        }
        let _ = writeln!(out, "  {from} --> s{} : {}", edge.to - 1, words.join("<br/>"));
    }
    for (ix, state) in lifecycle.states.iter().enumerate() {
        if state.is_final {
            let _ = writeln!(out, "  s{ix} --> [*]");
        }
    }
    notes(&mut out, lifecycle, &graph);
    classes(&mut out, lifecycle);
    out
}

/// There is no legend to say what a border means.
fn standing(state: &State) -> &'static str {
    match state.ready {
        _ if state.reserved => " (reserved)",
        _ if state.is_final => " (final)",
        Ready::Yes | Ready::From(_) => " (ready)",
        Ready::No if state.rest => " (may rest)",
        Ready::No => "",
    }
}

fn notes(out: &mut String, lifecycle: &Lifecycle, graph: &Graph) {
    for (ix, inside) in graph.inside.iter().enumerate().skip(1) {
        if inside.rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "  note right of s{}", ix - 1);
        for row in &inside.rows {
            let to = row.to.and_then(|to| lifecycle.states.get(usize::from(to)));
            let to = to.map_or(String::new(), |to| format!(" → {}", cut(&to.name)));
            let _ = writeln!(out, "    {}{to}", short(&row.said));
        }
        if inside.more > 0 {
            let _ = writeln!(out, "    and {} more", inside.more);
        }
        out.push_str("  end note\n");
    }
}

fn classes(out: &mut String, lifecycle: &Lifecycle) {
    let kinds: [(&str, &str, Vec<usize>); 4] = [
        ("ready", "stroke:#0969da,stroke-width:3px", picked(lifecycle, |ix| lifecycle.states[ix].ready != Ready::No)),
        ("rest", "stroke:#9a6700,stroke-width:2px", picked(lifecycle, |ix| lifecycle.states[ix].rest)),
        ("ended", "stroke-width:4px", picked(lifecycle, |ix| lifecycle.states[ix].is_final)),
        ("reserved", "stroke-dasharray:5 4", picked(lifecycle, |ix| lifecycle.states[ix].reserved)),
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

fn picked(lifecycle: &Lifecycle, test: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..lifecycle.states.len()).filter(|ix| test(*ix)).collect()
}

fn short(said: &Said) -> String {
    let mut first = said.turned();
    if said.tone == Tone::Timer {
        first.insert_str(0, "⏱ ");
    }
    if let Some(caller) = &said.caller {
        let _ = write!(first, " · {caller}");
    }
    let mut words = vec![cut(&first)];
    words.extend(said.guard.iter().flat_map(|guard| lines(guard)));
    words.extend(said.refusals.iter().flat_map(|refusals| lines(refusals)));
    // Each on a line of its own and whole: a reader must not miss where money goes.
    let mut told = 0;
    for (at, effect) in said.effects.iter().enumerate() {
        if told > EFFECT_CHARS {
            words.push(format!("and {}", counted(said.effects.len() - at, "more effect", "more effects")));
            break;
        }
        let effect = lines(&effect.text);
        told += effect.iter().map(String::len).sum::<usize>();
        words.extend(effect);
    }
    words.join("<br/>")
}

fn lines(text: &str) -> Vec<String> {
    wrap(text, WIDTH, SIZE, false, LINES).iter().map(|line| encode(line)).collect()
}

fn cut(text: &str) -> String {
    let text = clean(text);
    match text.char_indices().nth(CHARS) {
        Some((at, _)) => encode(&format!("{}…", text[..at].trim_end())),
        None => encode(&text),
    }
}

/// Everything that Mermaid, Markdown or HTML could take for more than text goes by its number.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let is_text =
            c.is_alphanumeric() || matches!(c, ' ' | '.' | ',' | '(' | ')' | '!' | '=' | '+' | '·' | '…' | '→' | '⏱');
        // The words "end note" would end a note.
        let ends = c == ' ' && out.to_ascii_lowercase().ends_with("end");
        if is_text && !ends {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}

/// For the lines that Mermaid gives to screen readers, which know no numbers for characters.
fn plain(text: &str) -> String {
    let text: String = clean(text).chars().take(300).collect();
    text.chars()
        .map(|c| if matches!(c, '#' | ';' | '{' | '}' | '%' | ':' | '<' | '>' | '"') { ' ' } else { c })
        .collect()
}
