//! The words in boxes and on edges as measured lines.

use super::graph::{Edge, Graph, InsideRow};
use super::text::{fit, width, wrap};
use super::words::{ANOTHER_RECORD, EffectKind, Said, Tone};
use crate::counted;
use crate::model::{Lifecycle, Ready, State};

const NAME: f64 = 14.0;
const ABOUT: f64 = 11.5;
const HEAD: f64 = 12.0;
const SMALL: f64 = 11.0;
const RULE: f64 = 9.5;
const LINE: f64 = 1.32;

const LABEL_WIDTH: f64 = 230.0;
const BOX_WIDTH: f64 = 228.0;
const BOX_LEAST: f64 = 150.0;
const PADDING: f64 = 12.0;
/// An edge meets a box at this distance from the next.
const PORT: f64 = 16.0;
const INDENT: f64 = 10.0;
const GUARD_LINES: usize = 8;
const REFUSAL_LINES: usize = 4;
const RULE_LINES: usize = 3;
const EFFECT_LINES: usize = 8;
/// Between rows said one under the other.
const ROW_GAP: f64 = 6.0;
pub(super) const ICON: f64 = 15.0;

/// A small sign before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Icon {
    Clock,
    Ready,
    Rest,
}

/// A piece of a line in one style; the class says which.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) class: &'static str,
    pub(super) text: String,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) icon: Option<Icon>,
    pub(super) runs: Vec<Run>,
    /// Set in from the left: it goes on from the line above.
    pub(super) indent: f64,
    /// Of the whole line, as measured.
    pub(super) width: f64,
    /// From the top of its plate.
    pub(super) baseline: f64,
    pub(super) height: f64,
}

/// Lines that belong together, with the whole text as their tooltip.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) lines: Vec<Line>,
    pub(super) tip: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Plate {
    /// Of a box: its name and what it is about, centred.
    pub(super) head: Vec<Line>,
    /// Where a line divides the head from the rows.
    pub(super) divider: Option<f64>,
    pub(super) rows: Vec<Group>,
    pub(super) width: f64,
    pub(super) height: f64,
}

#[derive(Debug)]
pub(super) struct Plates {
    /// By node; that of the start marker is empty.
    pub(super) boxes: Vec<Plate>,
    /// By edge.
    pub(super) labels: Vec<Plate>,
}

pub(super) fn plates(lifecycle: &Lifecycle, graph: &Graph) -> Plates {
    let mut boxes = vec![Plate::default()];
    for (ix, state) in lifecycle.states.iter().enumerate() {
        let node = ix + 1;
        let inside = &graph.inside[node];
        let leaving = graph.edges.iter().filter(|edge| edge.from == node).count();
        let touching = graph.edges.iter().filter(|edge| edge.to == node).count().max(leaving);
        boxes.push(state_plate(lifecycle, state, &inside.rows, inside.more, touching));
    }
    Plates { boxes, labels: graph.edges.iter().map(label_plate).collect() }
}

/// The size and weight of each class, as the style sheet has them.
fn style_of(class: &str) -> (f64, bool) {
    match class {
        "name" => (NAME, true),
        "about" => (ABOUT, false),
        "called" | "engine" | "timer" => (HEAD, true),
        "rule" => (RULE, false),
        "title" => (20.0, true),
        "intro" => (13.0, false),
        _ => (SMALL, false),
    }
}

pub(super) fn line(icon: Option<Icon>, runs: Vec<(&'static str, String)>) -> Line {
    let mut total = if icon.is_some() { ICON } else { 0.0 };
    let mut height = 0.0_f64;
    for (class, text) in &runs {
        let (size, bold) = style_of(class);
        total += width(text, size, bold);
        height = height.max(size * LINE);
    }
    let runs = runs.into_iter().map(|(class, text)| Run { class, text }).collect();
    Line { icon, runs, indent: 0.0, width: total, baseline: 0.0, height }
}

pub(super) fn wrapped(class: &'static str, text: &str, max: f64, lines: usize) -> Vec<Line> {
    let (size, bold) = style_of(class);
    wrap(text, max, size, bold, lines).into_iter().map(|text| line(None, vec![(class, text)])).collect()
}

/// As `wrapped`, with all but the first line set in.
fn hanging(class: &'static str, text: &str, max: f64, lines: usize) -> Vec<Line> {
    let mut lines = wrapped(class, text, max - INDENT, lines);
    for line in lines.iter_mut().skip(1) {
        line.indent = INDENT;
        line.width += INDENT;
    }
    lines
}

fn fitted(class: &'static str, text: &str, max: f64) -> Line {
    let (size, bold) = style_of(class);
    line(None, vec![(class, fit(text, max, size, bold))])
}

/// Stacks lines from `top` on; returns where they end.
pub(super) fn stack(lines: &mut [Line], mut top: f64) -> f64 {
    for line in lines {
        line.baseline = top + line.height * 0.76;
        top += line.height;
    }
    top
}

fn widest(lines: &[Line]) -> f64 {
    lines.iter().map(|line| line.width).fold(0.0, f64::max)
}

fn state_plate(lifecycle: &Lifecycle, state: &State, rows: &[InsideRow], more: usize, touching: usize) -> Plate {
    let icon = match state.ready {
        Ready::Yes | Ready::From(_) => Some(Icon::Ready),
        Ready::No if state.rest => Some(Icon::Rest),
        Ready::No => None,
    };
    let inner = BOX_WIDTH - 2.0 * PADDING;
    let mut head = vec![line(icon, vec![("name", fit(&state.name, inner - ICON, NAME, true))])];
    head.extend(wrapped("about", &state.about, inner, 4));
    if let Ready::From(slot) = state.ready {
        let field = lifecycle.fields.get(usize::from(slot)).map_or("?", |field| &field.name);
        head.push(fitted("hint", &format!("ready from {field} on"), inner));
    }
    if state.reserved {
        head.push(fitted("hint", "reserved: not reached yet", inner));
    }
    if !state.rules.is_empty() {
        head.extend(wrapped("rule", &state.rules.join(" "), inner, RULE_LINES));
    }
    let mut plate = Plate { head, ..Plate::default() };
    let mut y = stack(&mut plate.head, PADDING - 3.0);
    let mut need = widest(&plate.head);
    if !rows.is_empty() {
        y += 6.0;
        plate.divider = Some(y);
        y += 6.0;
        for row in rows {
            let to = row.to.and_then(|to| lifecycle.states.get(usize::from(to)));
            let mut lines = row_lines(&row.said, inner);
            if let Some(to) = to {
                let again = if to.name == state.name { " again" } else { "" };
                lines.push(fitted("who", &format!("→ {}{again}", to.name), inner));
            }
            need = need.max(widest(&lines));
            y = stack(&mut lines, y) + ROW_GAP;
            plate.rows.push(Group { lines, tip: row.said.full.clone() });
        }
        y = more_line(&mut plate.rows, more, y) - ROW_GAP;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of edges")]
    // The main way meets the box in the middle, and all others may lie on one side of it.
    let ports = 2.0 * touching as f64 * PORT;
    plate.width = (need + 2.0 * PADDING).max(BOX_LEAST).max(ports.min(BOX_WIDTH)).ceil();
    plate.height = (y + PADDING - 3.0).ceil();
    plate
}

fn label_plate(edge: &Edge) -> Plate {
    let mut plate = Plate::default();
    let mut y = 0.0;
    for said in &edge.rows {
        let mut lines = row_lines(said, LABEL_WIDTH);
        plate.width = plate.width.max(widest(&lines));
        y = stack(&mut lines, y) + ROW_GAP;
        plate.rows.push(Group { lines, tip: said.full.clone() });
    }
    y = more_line(&mut plate.rows, edge.more, y);
    plate.width = plate.width.ceil();
    plate.height = (y - ROW_GAP).max(0.0).ceil();
    plate
}

fn more_line(rows: &mut Vec<Group>, more: usize, y: f64) -> f64 {
    if more == 0 {
        return y;
    }
    let mut lines = vec![line(None, vec![("who", format!("and {more} more"))])];
    let end = stack(&mut lines, y);
    rows.push(Group { lines, tip: String::new() });
    end + ROW_GAP
}

fn row_lines(said: &Said, max: f64) -> Vec<Line> {
    let (class, icon) = match said.tone {
        Tone::Called => ("called", None),
        Tone::Engine => ("engine", None),
        Tone::Timer => ("timer", Some(Icon::Clock)),
    };
    let (size, bold) = style_of(class);
    let room = if icon.is_some() { max - ICON } else { max };
    let head = fit(&said.turned(), room, size, bold);
    let mut lines = vec![line(icon, vec![(class, head.clone())])];
    if let Some(caller) = &said.caller {
        let sign = if caller == ANOTHER_RECORD { " ← " } else { " · " };
        let both = line(icon, vec![(class, head), ("who", format!("{sign}{caller}"))]);
        if both.width <= max {
            lines[0] = both;
        } else {
            lines.push(fitted("who", &format!("by {caller}"), max));
        }
    }
    if let Some(guard) = &said.guard {
        lines.extend(hanging("guard", guard, max, GUARD_LINES));
    }
    if let Some(refusals) = &said.refusals {
        lines.extend(hanging("who", refusals, max, REFUSAL_LINES));
    }
    let shown = if said.effects.len() > EFFECT_LINES { EFFECT_LINES - 1 } else { said.effects.len() };
    for effect in &said.effects[..shown] {
        let class = match effect.kind {
            EffectKind::Money => "money",
            EffectKind::Other => "effect",
        };
        lines.extend(hanging(class, &effect.text, max, 3));
    }
    if shown < said.effects.len() {
        lines.push(line(
            None,
            vec![("effect", format!("and {}", counted(said.effects.len() - shown, "more effect", "more effects")))],
        ));
    }
    if !said.rules.is_empty() {
        lines.extend(wrapped("rule", &said.rules, max, RULE_LINES));
    }
    lines
}
