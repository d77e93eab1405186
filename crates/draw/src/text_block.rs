//! Builds the measured lines of text in boxes and on edges.

use crate::graph::{BoxTransition, StateEdge, StateGraph};
use crate::labels::{EffectLabelKind, RECORD_CALLER_NAME, TransitionLabel, TriggerKind};
use crate::text::{fit_to_width, text_width, wrap_text};
use onceward_core::count_noun;
use onceward_core::model::{Lifecycle, StateDef, StateReadiness};

const NAME_FONT_SIZE: f64 = 14.0;
const ABOUT_FONT_SIZE: f64 = 11.5;
const HEAD_FONT_SIZE: f64 = 12.0;
const SMALL_FONT_SIZE: f64 = 11.0;
const RULE_FONT_SIZE: f64 = 9.5;
const LINE_HEIGHT_FACTOR: f64 = 1.32;

const MAX_LABEL_WIDTH: f64 = 230.0;
const MAX_BOX_WIDTH: f64 = 228.0;
const MIN_BOX_WIDTH: f64 = 150.0;
const BOX_PADDING: f64 = 12.0;
/// Distance between the ports of a box.
const PORT_SPACING: f64 = 16.0;
const HANGING_INDENT: f64 = 10.0;
const MAX_GUARD_LINES: usize = 8;
const MAX_REFUSAL_LINES: usize = 4;
const MAX_RULE_LINES: usize = 3;
const MAX_EFFECT_LINES: usize = 8;
/// Distance between two transitions in one block.
const LINE_GROUP_GAP: f64 = 6.0;
pub(crate) const ICON_WIDTH: f64 = 15.0;

/// A small symbol before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineIcon {
    Clock,
    Ready,
    Rest,
}

/// A piece of a line in one style, which `class` names.
#[derive(Clone, Debug)]
pub(crate) struct TextRun {
    pub(crate) class: &'static str,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct TextLine {
    pub(crate) icon: Option<LineIcon>,
    pub(crate) runs: Vec<TextRun>,
    /// Indent of a continuation line.
    pub(crate) indent: f64,
    /// Measured width of the whole line.
    pub(crate) width: f64,
    /// Distance from the top of the block.
    pub(crate) baseline: f64,
    pub(crate) height: f64,
}

/// The lines of one transition, with its full text as tooltip.
#[derive(Clone, Debug)]
pub(crate) struct LineGroup {
    pub(crate) lines: Vec<TextLine>,
    pub(crate) tooltip: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TextBlock {
    /// Only in boxes: name and `about`, centered.
    pub(crate) head: Vec<TextLine>,
    /// Position of the line between head and transitions.
    pub(crate) divider: Option<f64>,
    pub(crate) groups: Vec<LineGroup>,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Debug)]
pub(crate) struct TextBlocks {
    /// By node. The block of the start marker is empty.
    pub(crate) boxes: Vec<TextBlock>,
    /// By edge.
    pub(crate) labels: Vec<TextBlock>,
}

pub(crate) fn build_text_blocks(lifecycle: &Lifecycle, graph: &StateGraph) -> TextBlocks {
    let mut boxes = vec![TextBlock::default()];
    for (ix, state) in lifecycle.states.iter().enumerate() {
        let node = ix + 1;
        let inside = &graph.box_contents[node];
        let leaving = graph.edges.iter().filter(|edge| edge.from == node).count();
        let touching = graph.edges.iter().filter(|edge| edge.to == node).count().max(leaving);
        boxes.push(state_block(lifecycle, state, &inside.transitions, inside.omitted, touching));
    }
    TextBlocks { boxes, labels: graph.edges.iter().map(label_block).collect() }
}

/// Returns size and weight of a class. Must match the style sheet.
fn font_style(class: &str) -> (f64, bool) {
    match class {
        "name" => (NAME_FONT_SIZE, true),
        "about" => (ABOUT_FONT_SIZE, false),
        "called" | "engine" | "timer" => (HEAD_FONT_SIZE, true),
        "rule" => (RULE_FONT_SIZE, false),
        "title" => (20.0, true),
        "intro" => (13.0, false),
        _ => (SMALL_FONT_SIZE, false),
    }
}

pub(crate) fn measured_line(icon: Option<LineIcon>, runs: Vec<(&'static str, String)>) -> TextLine {
    let mut total = if icon.is_some() { ICON_WIDTH } else { 0.0 };
    let mut height = 0.0_f64;
    for (class, text) in &runs {
        let (size, bold) = font_style(class);
        total += text_width(text, size, bold);
        height = height.max(size * LINE_HEIGHT_FACTOR);
    }
    let runs = runs.into_iter().map(|(class, text)| TextRun { class, text }).collect();
    TextLine { icon, runs, indent: 0.0, width: total, baseline: 0.0, height }
}

pub(crate) fn wrapped_lines(class: &'static str, text: &str, max_width: f64, max_lines: usize) -> Vec<TextLine> {
    let (size, bold) = font_style(class);
    wrap_text(text, max_width, size, bold, max_lines)
        .into_iter()
        .map(|text| measured_line(None, vec![(class, text)]))
        .collect()
}

/// Like [`wrapped_lines`], but indents all lines except the first.
fn hanging_lines(class: &'static str, text: &str, max_width: f64, max_lines: usize) -> Vec<TextLine> {
    let mut lines = wrapped_lines(class, text, max_width - HANGING_INDENT, max_lines);
    for line in lines.iter_mut().skip(1) {
        line.indent = HANGING_INDENT;
        line.width += HANGING_INDENT;
    }
    lines
}

fn fitted_line(class: &'static str, text: &str, max_width: f64) -> TextLine {
    let (size, bold) = font_style(class);
    measured_line(None, vec![(class, fit_to_width(text, max_width, size, bold))])
}

/// Stacks lines from `top` and returns the bottom of the last one.
pub(crate) fn stack_lines(lines: &mut [TextLine], mut top: f64) -> f64 {
    for line in lines {
        line.baseline = top + line.height * 0.76;
        top += line.height;
    }
    top
}

fn max_line_width(lines: &[TextLine]) -> f64 {
    lines.iter().map(|line| line.width).fold(0.0, f64::max)
}

fn state_block(
    lifecycle: &Lifecycle,
    state: &StateDef,
    transitions: &[BoxTransition],
    omitted: usize,
    touching: usize,
) -> TextBlock {
    let icon = match state.readiness {
        StateReadiness::Immediate | StateReadiness::FromField(_) => Some(LineIcon::Ready),
        StateReadiness::NotReady if state.can_rest => Some(LineIcon::Rest),
        StateReadiness::NotReady => None,
    };
    let inner = MAX_BOX_WIDTH - 2.0 * BOX_PADDING;
    let mut head =
        vec![measured_line(icon, vec![("name", fit_to_width(&state.name, inner - ICON_WIDTH, NAME_FONT_SIZE, true))])];
    head.extend(wrapped_lines("about", &state.about, inner, 4));
    if let StateReadiness::FromField(slot) = state.readiness {
        let field = lifecycle.fields.get(usize::from(slot)).map_or("?", |field| &field.name);
        head.push(fitted_line("hint", &format!("ready from {field} on"), inner));
    }
    if state.is_reserved {
        head.push(fitted_line("hint", "reserved: not reached yet", inner));
    }
    if !state.rules.is_empty() {
        head.extend(wrapped_lines("rule", &state.rules.join(" "), inner, MAX_RULE_LINES));
    }
    let mut block = TextBlock { head, ..TextBlock::default() };
    let mut y = stack_lines(&mut block.head, BOX_PADDING - 3.0);
    let mut needed_width = max_line_width(&block.head);
    if !transitions.is_empty() {
        y += 6.0;
        block.divider = Some(y);
        y += 6.0;
        for row in transitions {
            let to = row.to.and_then(|to| lifecycle.states.get(usize::from(to)));
            let mut lines = label_lines(&row.label, inner);
            if let Some(to) = to {
                let again = if to.name == state.name { " again" } else { "" };
                lines.push(fitted_line("who", &format!("→ {}{again}", to.name), inner));
            }
            needed_width = needed_width.max(max_line_width(&lines));
            y = stack_lines(&mut lines, y) + LINE_GROUP_GAP;
            block.groups.push(LineGroup { lines, tooltip: row.label.tooltip.clone() });
        }
        y = push_omitted_line(&mut block.groups, omitted, y) - LINE_GROUP_GAP;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of edges")]
    // The main path meets the box in the middle, and all other edges may be on one side of it.
    let ports_width = 2.0 * touching as f64 * PORT_SPACING;
    block.width = (needed_width + 2.0 * BOX_PADDING).max(MIN_BOX_WIDTH).max(ports_width.min(MAX_BOX_WIDTH)).ceil();
    block.height = (y + BOX_PADDING - 3.0).ceil();
    block
}

fn label_block(edge: &StateEdge) -> TextBlock {
    let mut block = TextBlock::default();
    let mut y = 0.0;
    for label in &edge.labels {
        let mut lines = label_lines(label, MAX_LABEL_WIDTH);
        block.width = block.width.max(max_line_width(&lines));
        y = stack_lines(&mut lines, y) + LINE_GROUP_GAP;
        block.groups.push(LineGroup { lines, tooltip: label.tooltip.clone() });
    }
    y = push_omitted_line(&mut block.groups, edge.omitted, y);
    block.width = block.width.ceil();
    block.height = (y - LINE_GROUP_GAP).max(0.0).ceil();
    block
}

/// Adds a line "and N more" for omitted labels, if there are any. Returns the y position below it.
fn push_omitted_line(groups: &mut Vec<LineGroup>, omitted: usize, y: f64) -> f64 {
    if omitted == 0 {
        return y;
    }
    let mut lines = vec![measured_line(None, vec![("who", format!("and {omitted} more"))])];
    let end = stack_lines(&mut lines, y);
    groups.push(LineGroup { lines, tooltip: String::new() });
    end + LINE_GROUP_GAP
}

fn label_lines(label: &TransitionLabel, max_width: f64) -> Vec<TextLine> {
    let (class, icon) = match label.trigger {
        TriggerKind::Called => ("called", None),
        TriggerKind::Engine => ("engine", None),
        TriggerKind::Timer => ("timer", Some(LineIcon::Clock)),
    };
    let (size, bold) = font_style(class);
    let available_width = if icon.is_some() { max_width - ICON_WIDTH } else { max_width };
    let head = fit_to_width(&label.numbered_head(), available_width, size, bold);
    let mut lines = vec![measured_line(icon, vec![(class, head.clone())])];
    if let Some(caller) = &label.caller {
        let sign = if caller == RECORD_CALLER_NAME { " ← " } else { " · " };
        let both = measured_line(icon, vec![(class, head), ("who", format!("{sign}{caller}"))]);
        if both.width <= max_width {
            lines[0] = both;
        } else {
            lines.push(fitted_line("who", &format!("by {caller}"), max_width));
        }
    }
    if let Some(guard) = &label.guard {
        lines.extend(hanging_lines("guard", guard, max_width, MAX_GUARD_LINES));
    }
    if let Some(refusals) = &label.refusals {
        lines.extend(hanging_lines("who", refusals, max_width, MAX_REFUSAL_LINES));
    }
    let shown = if label.effects.len() > MAX_EFFECT_LINES { MAX_EFFECT_LINES - 1 } else { label.effects.len() };
    for effect in &label.effects[..shown] {
        let class = match effect.kind {
            EffectLabelKind::Money => "money",
            EffectLabelKind::Other => "effect",
        };
        lines.extend(hanging_lines(class, &effect.text, max_width, 3));
    }
    if shown < label.effects.len() {
        lines.push(measured_line(
            None,
            vec![("effect", format!("and {}", count_noun(label.effects.len() - shown, "more effect", "more effects")))],
        ));
    }
    if !label.rules.is_empty() {
        lines.extend(wrapped_lines("rule", &label.rules, max_width, MAX_RULE_LINES));
    }
    lines
}
