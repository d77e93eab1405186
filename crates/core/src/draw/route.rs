//! Where everything is drawn: boxes, words and the edges as smooth curves.
//!
//! Edges move sideways only between rows and pass each row straight down, in a cell of their own; so they cross
//! neither a box nor words.

use std::fmt::Write as _;

use super::graph::{Graph, NodeIx, START};
use super::layers::{LABEL_GAP, Layers, What};
use super::place::Places;
use super::plate::Plates;
use super::words::Tone;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

#[derive(Debug)]
pub(super) struct Label {
    pub(super) edge: usize,
    pub(super) rect: Rect,
    /// The edge runs along its right side, and its lines end there.
    pub(super) left_of_edge: bool,
}

#[derive(Debug)]
pub(super) struct Wire {
    /// The straight pieces: x, and y from top to bottom. Between them are the curves.
    pub(super) straights: Vec<(f64, f64, f64)>,
    pub(super) tip: (f64, f64),
    pub(super) up: bool,
    /// `None`: rows of several tones.
    pub(super) tone: Option<Tone>,
}

/// The picture without title and legend, from (0, 0) on.
#[derive(Debug, Default)]
pub(super) struct Routed {
    pub(super) start: Option<(f64, f64)>,
    pub(super) boxes: Vec<(NodeIx, Rect)>,
    pub(super) labels: Vec<Label>,
    /// By edge.
    pub(super) wires: Vec<Wire>,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) const ARROW: f64 = 8.0;

pub(super) fn route(graph: &Graph, layers: &Layers, placed: &Places, plates: &Plates, back: &[bool]) -> Routed {
    let extent = |(ix, cell): (usize, &super::layers::Cell)| (placed.x[ix] - cell.left, placed.x[ix] + cell.right);
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for (left, right) in layers.cells.iter().enumerate().map(extent) {
        least = least.min(left);
        most = most.max(right);
    }
    let x_of = |x: f64| round(x - least);
    let mut out = Routed {
        width: round(most - least).max(0.0),
        height: round(placed.bottom.last().copied().unwrap_or(0.0)),
        ..Routed::default()
    };
    for (row, cells) in layers.rows.iter().enumerate() {
        let (top, bottom) = (placed.top[row], placed.bottom[row]);
        for cell in cells {
            let x = x_of(placed.x[*cell]);
            match layers.cells[*cell].what {
                What::Start => out.start = Some((x, round(f64::midpoint(top, bottom)))),
                What::State(node) => {
                    let plate = &plates.boxes[node];
                    let rect = Rect {
                        x: round(x - plate.width / 2.0),
                        y: round(top),
                        width: plate.width,
                        height: plate.height,
                    };
                    out.boxes.push((node, rect));
                }
                What::Label(edge) => {
                    let plate = &plates.labels[edge];
                    let left_of_edge = layers.cells[*cell].left > layers.cells[*cell].right;
                    let x = if left_of_edge { x - LABEL_GAP - plate.width } else { x + LABEL_GAP };
                    let y = round(f64::midpoint(top, bottom - plate.height));
                    let rect = Rect { x: round(x), y, width: plate.width, height: plate.height };
                    out.labels.push(Label { edge, rect, left_of_edge });
                }
                What::Bend => {}
            }
        }
    }
    let mut row_of = vec![0; layers.cells.len()];
    for (row, cells) in layers.rows.iter().enumerate() {
        for cell in cells {
            row_of[*cell] = row;
        }
    }
    for (edge, chain) in layers.chains.iter().enumerate() {
        let (port_above, port_below) = placed.ports[edge];
        let mut straights = Vec::with_capacity(chain.len());
        for (ix, cell) in chain.iter().enumerate() {
            let row = row_of[*cell];
            let (top, bottom) = (placed.top[row], placed.bottom[row]);
            let straight = if ix == 0 {
                let from = if *cell == START { bottom + 2.0 } else { top + layers.cells[*cell].height };
                (port_above, from, if back[edge] { bottom.max(from + ARROW) } else { bottom.max(from) })
            } else if ix + 1 == chain.len() {
                (port_below, if back[edge] { top } else { top - ARROW }, top)
            } else {
                (placed.x[*cell], top, bottom)
            };
            straights.push((x_of(straight.0), round(straight.1), round(straight.2)));
        }
        settle_ends(&mut straights);
        out.wires.push(wire(graph, edge, straights, back[edge]));
    }
    out
}

/// A line that is straight but for a few pixels looks like a mistake: its end on the box moves by so much.
fn settle_ends(straights: &mut [(f64, f64, f64)]) {
    const NEARLY: f64 = 4.0;
    let last = straights.len().saturating_sub(1);
    if last < 2 {
        return;
    }
    for (end, next) in [(0, 1), (last, last - 1)] {
        if (straights[end].0 - straights[next].0).abs() < NEARLY {
            straights[end].0 = straights[next].0;
        }
    }
}

fn wire(graph: &Graph, edge: usize, straights: Vec<(f64, f64, f64)>, up: bool) -> Wire {
    let tone = graph.edges[edge].tone();
    let tip = match (up, straights.first(), straights.last()) {
        (true, Some((x, top, _)), _) => (*x, *top),
        (_, _, Some((x, _, bottom))) => (*x, *bottom),
        _ => (0.0, 0.0),
    };
    Wire { straights, tip, up, tone }
}

/// A wire as SVG has it.
pub(super) fn path(straights: &[(f64, f64, f64)], up: bool) -> String {
    let mut out = String::new();
    let last = straights.len().saturating_sub(1);
    let mut at: Option<(f64, f64)> = None;
    for (ix, (x, top, bottom)) in straights.iter().enumerate() {
        // The line ends inside the arrow head, so that the point stays sharp.
        let top = if up && ix == 0 { top + ARROW - 2.0 } else { *top };
        let bottom = if !up && ix == last { bottom - ARROW + 2.0 } else { *bottom };
        match at {
            None => {
                let _ = write!(out, "M{x} {top}");
            }
            Some((x0, y0)) if (x0 - x).abs() > 0.05 => {
                let middle = round(f64::midpoint(y0, top));
                let _ = write!(out, "V{y0}C{x0} {middle} {x} {middle} {x} {top}");
            }
            Some(_) => {}
        }
        at = Some((*x, bottom));
    }
    if let Some((_, y)) = at {
        let _ = write!(out, "V{y}");
    }
    out
}

/// Tenths are enough, and keep the file small.
pub(super) fn round(at: f64) -> f64 {
    (at * 10.0).round() / 10.0
}
