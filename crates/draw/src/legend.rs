//! Builds the legend: only the symbols that the diagram uses.

use crate::graph::StateGraph;
use crate::labels::{EffectLabelKind, RECORD_CALLER_NAME, TransitionLabel, TriggerKind};
use crate::text_block::{TextLine, measured_line};
use onceward_core::model::{Lifecycle, StateReadiness};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LegendSymbol {
    Start,
    Ready,
    Rest,
    Final,
    Reserved,
    Called,
    Engine,
    Timer,
    /// An edge whose transitions have different triggers.
    Mixed,
    /// No symbol, only colored text.
    TextOnly,
}

#[derive(Debug)]
pub(crate) struct LegendItem {
    pub(crate) symbol: LegendSymbol,
    pub(crate) line: TextLine,
    /// Upper left corner.
    pub(crate) x: f64,
    pub(crate) y: f64,
}

pub(crate) const SYMBOL_WIDTH: f64 = 30.0;
const LEGEND_ITEM_GAP: f64 = 22.0;
const LEGEND_ROW_HEIGHT: f64 = 20.0;

/// Arranges the items in rows of at most `width`, and returns them with their height.
pub(crate) fn layout_legend(lifecycle: &Lifecycle, graph: &StateGraph, width: f64) -> (Vec<LegendItem>, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    let mut items = Vec::new();
    for (sign, line) in legend_entries(lifecycle, graph) {
        let sign_width = if sign == LegendSymbol::TextOnly { 0.0 } else { SYMBOL_WIDTH };
        if x > 0.0 && x + sign_width + line.width > width {
            x = 0.0;
            y += LEGEND_ROW_HEIGHT;
        }
        let next = x + sign_width + line.width + LEGEND_ITEM_GAP;
        items.push(LegendItem { symbol: sign, line, x, y });
        x = next;
    }
    (items, y + LEGEND_ROW_HEIGHT)
}

fn legend_entries(lifecycle: &Lifecycle, graph: &StateGraph) -> Vec<(LegendSymbol, TextLine)> {
    let states = &lifecycle.states;
    let edges = || graph.edges.iter().flat_map(|edge| &edge.labels);
    let labels =
        || edges().chain(graph.box_contents.iter().flat_map(|inside| inside.transitions.iter().map(|row| &row.label)));
    let has_tone = |tone: TriggerKind| labels().any(|row| row.trigger == tone);
    let has_effect = |test: &dyn Fn(&TransitionLabel) -> bool| labels().any(test);
    let stays = graph.box_contents.iter().any(|inside| inside.transitions.iter().any(|row| row.to.is_none()));
    let leaves = graph.box_contents.iter().any(|inside| inside.transitions.iter().any(|row| row.to.is_some()));
    let plain = |text: &str| measured_line(None, vec![("legend", text.to_owned())]);
    let all = [
        (edges().next().is_some(), LegendSymbol::Start, plain("start")),
        (
            states.iter().any(|state| state.readiness != StateReadiness::NotReady),
            LegendSymbol::Ready,
            plain("ready: a worker may lease it"),
        ),
        (states.iter().any(|state| state.can_rest), LegendSymbol::Rest, plain("a record may stay here")),
        (states.iter().any(|state| state.is_final), LegendSymbol::Final, plain("final")),
        (states.iter().any(|state| state.is_reserved), LegendSymbol::Reserved, plain("reserved")),
        (
            has_tone(TriggerKind::Called),
            LegendSymbol::Called,
            measured_line(None, vec![("called", "event".to_owned()), ("legend", " · allowed callers".to_owned())]),
        ),
        (
            has_tone(TriggerKind::Engine),
            LegendSymbol::Engine,
            measured_line(
                None,
                vec![("engine", "event".to_owned()), ("legend", " of the engine or the worker's lease".to_owned())],
            ),
        ),
        (
            has_tone(TriggerKind::Timer),
            LegendSymbol::Timer,
            measured_line(
                None,
                vec![("timer", "timer".to_owned()), ("legend", " since entering, or at a time".to_owned())],
            ),
        ),
        (
            graph.edges.iter().any(|edge| edge.trigger().is_none()),
            LegendSymbol::Mixed,
            plain("several of these on one arrow"),
        ),
        (
            has_effect(&|row| row.effects.iter().any(|effect| effect.kind == EffectLabelKind::Money)),
            LegendSymbol::TextOnly,
            measured_line(
                None,
                vec![
                    ("money", "from → to (amount)".to_owned()),
                    ("legend", ": money; all of it if no amount".to_owned()),
                ],
            ),
        ),
        (
            labels().any(|row| row.caller.as_deref() == Some(RECORD_CALLER_NAME)),
            LegendSymbol::TextOnly,
            measured_line(
                None,
                vec![
                    ("called", "event".to_owned()),
                    ("who", format!(" ← {RECORD_CALLER_NAME}")),
                    ("legend", ": only another record sends it, no caller".to_owned()),
                ],
            ),
        ),
        (
            labels().any(|row| row.order.is_some()),
            LegendSymbol::TextOnly,
            plain(
                "1. 2. before an event or a timer: transitions are tried in this order, and the first that applies is taken",
            ),
        ),
        (
            labels().any(|row| row.refusals.is_some()),
            LegendSymbol::TextOnly,
            measured_line(
                None,
                vec![("who", "refused: codes".to_owned()), ("legend", ": refusals that a caller may get".to_owned())],
            ),
        ),
        (stays, LegendSymbol::TextOnly, plain("under a line in a box: internal transitions")),
        (leaves, LegendSymbol::TextOnly, plain("→ state in a box: a transition without an arrow")),
    ];
    all.into_iter().filter(|(used, ..)| *used).map(|(_, sign, line)| (sign, line)).collect()
}
