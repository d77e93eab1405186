//! What the signs mean: only those that the picture has.

use super::graph::Graph;
use super::plate::{Line, line};
use super::words::{ANOTHER_RECORD, EffectKind, Said, Tone};
use crate::model::{Lifecycle, Ready};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Start,
    Ready,
    Rest,
    Final,
    Reserved,
    Called,
    Engine,
    Timer,
    /// An arrow that stands for several of these.
    Mixed,
    /// Words alone, in their colour.
    Words,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) sign: Sign,
    pub(super) line: Line,
    /// Its upper left corner.
    pub(super) x: f64,
    pub(super) y: f64,
}

pub(super) const SIGN: f64 = 30.0;
const ITEM_GAP: f64 = 22.0;
const ROW: f64 = 20.0;

/// The items in rows of at most `width`, and their height.
pub(super) fn legend(lifecycle: &Lifecycle, graph: &Graph, width: f64) -> (Vec<Item>, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    let mut items = Vec::new();
    for (sign, line) in entries(lifecycle, graph) {
        let sign_width = if sign == Sign::Words { 0.0 } else { SIGN };
        if x > 0.0 && x + sign_width + line.width > width {
            x = 0.0;
            y += ROW;
        }
        let next = x + sign_width + line.width + ITEM_GAP;
        items.push(Item { sign, line, x, y });
        x = next;
    }
    (items, y + ROW)
}

fn entries(lifecycle: &Lifecycle, graph: &Graph) -> Vec<(Sign, Line)> {
    let states = &lifecycle.states;
    let edges = || graph.edges.iter().flat_map(|edge| &edge.rows);
    let rows = || edges().chain(graph.inside.iter().flat_map(|inside| inside.rows.iter().map(|row| &row.said)));
    let has_tone = |tone: Tone| rows().any(|row| row.tone == tone);
    let has_effect = |test: &dyn Fn(&Said) -> bool| rows().any(test);
    let stays = graph.inside.iter().any(|inside| inside.rows.iter().any(|row| row.to.is_none()));
    let leaves = graph.inside.iter().any(|inside| inside.rows.iter().any(|row| row.to.is_some()));
    let plain = |text: &str| line(None, vec![("legend", text.to_owned())]);
    let all = [
        (edges().next().is_some(), Sign::Start, plain("start")),
        (states.iter().any(|state| state.ready != Ready::No), Sign::Ready, plain("ready: a worker may lease it")),
        (states.iter().any(|state| state.rest), Sign::Rest, plain("may rest here for ever")),
        (states.iter().any(|state| state.is_final), Sign::Final, plain("final")),
        (states.iter().any(|state| state.reserved), Sign::Reserved, plain("reserved")),
        (
            has_tone(Tone::Called),
            Sign::Called,
            line(None, vec![("called", "event".to_owned()), ("legend", " · who may call it".to_owned())]),
        ),
        (
            has_tone(Tone::Engine),
            Sign::Engine,
            line(
                None,
                vec![("engine", "event".to_owned()), ("legend", " of the engine or the worker's lease".to_owned())],
            ),
        ),
        (
            has_tone(Tone::Timer),
            Sign::Timer,
            line(None, vec![("timer", "timer".to_owned()), ("legend", " since entering, or at a time".to_owned())]),
        ),
        (graph.edges.iter().any(|edge| edge.tone().is_none()), Sign::Mixed, plain("several of these on one arrow")),
        (
            has_effect(&|row| row.effects.iter().any(|effect| effect.kind == EffectKind::Money)),
            Sign::Words,
            line(
                None,
                vec![
                    ("money", "from → to (amount)".to_owned()),
                    ("legend", ": money; all of it if no amount".to_owned()),
                ],
            ),
        ),
        (
            rows().any(|row| row.caller.as_deref() == Some(ANOTHER_RECORD)),
            Sign::Words,
            line(
                None,
                vec![
                    ("called", "event".to_owned()),
                    ("who", format!(" ← {ANOTHER_RECORD}")),
                    ("legend", ": only another record sends it, no caller".to_owned()),
                ],
            ),
        ),
        (
            rows().any(|row| row.turn.is_some()),
            Sign::Words,
            plain(
                "1. 2. before an event or a timer: its rows are tried in this order, and the first that fits is taken",
            ),
        ),
        (
            rows().any(|row| row.refusals.is_some()),
            Sign::Words,
            line(
                None,
                vec![
                    ("who", "refused: codes".to_owned()),
                    ("legend", ": what a caller may be told instead; the file says when".to_owned()),
                ],
            ),
        ),
        (stays, Sign::Words, plain("under a line in a box: what may happen without leaving the state")),
        (leaves, Sign::Words, plain("→ state in a box: a move with no line drawn")),
    ];
    all.into_iter().filter(|(used, ..)| *used).map(|(_, sign, line)| (sign, line)).collect()
}
