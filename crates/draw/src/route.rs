//! Positions boxes and labels, and routes edges as smooth curves.
//!
//! Edges move sideways only between rows, and pass each row vertically in a cell of their own. They therefore never
//! cross a box or a label.

use std::fmt::Write as _;

use crate::coordinates::CellCoordinates;
use crate::graph::{NodeIndex, START_NODE, StateGraph};
use crate::labels::TriggerKind;
use crate::layers::{CellKind, CellLayers, LABEL_GAP};
use crate::text_block::TextBlocks;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PixelRect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Debug)]
pub(crate) struct EdgeLabel {
    pub(crate) edge: usize,
    pub(crate) rect: PixelRect,
    /// Whether the edge runs along the right side. Lines of text then end there.
    pub(crate) left_of_edge: bool,
}

#[derive(Debug)]
pub(crate) struct EdgePath {
    /// Straight pieces, as x, top y and bottom y. Curves join them.
    pub(crate) straights: Vec<(f64, f64, f64)>,
    pub(crate) arrow_tip: (f64, f64),
    pub(crate) points_up: bool,
    /// `None` if the transitions have different triggers.
    pub(crate) trigger: Option<TriggerKind>,
}

/// The diagram without title and legend, with its origin at (0, 0).
#[derive(Debug, Default)]
pub(crate) struct RoutedGraph {
    pub(crate) start: Option<(f64, f64)>,
    pub(crate) boxes: Vec<(NodeIndex, PixelRect)>,
    pub(crate) labels: Vec<EdgeLabel>,
    /// By edge.
    pub(crate) edge_paths: Vec<EdgePath>,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

pub(crate) const ARROW_LENGTH: f64 = 8.0;

pub(crate) fn route_edges(
    graph: &StateGraph,
    layers: &CellLayers,
    coordinates: &CellCoordinates,
    blocks: &TextBlocks,
    back: &[bool],
) -> RoutedGraph {
    let extent = |(ix, cell): (usize, &crate::layers::LayoutCell)| {
        (coordinates.x[ix] - cell.left, coordinates.x[ix] + cell.right)
    };
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for (left, right) in layers.cells.iter().enumerate().map(extent) {
        least = least.min(left);
        most = most.max(right);
    }
    let x_of = |x: f64| round_to_tenth(x - least);
    let mut out = RoutedGraph {
        width: round_to_tenth(most - least).max(0.0),
        height: round_to_tenth(coordinates.bottom.last().copied().unwrap_or(0.0)),
        ..RoutedGraph::default()
    };
    for (row, cells) in layers.rows.iter().enumerate() {
        let (top, bottom) = (coordinates.top[row], coordinates.bottom[row]);
        for cell in cells {
            let x = x_of(coordinates.x[*cell]);
            match layers.cells[*cell].kind {
                CellKind::Start => out.start = Some((x, round_to_tenth(f64::midpoint(top, bottom)))),
                CellKind::State(node) => {
                    let plate = &blocks.boxes[node];
                    let rect = PixelRect {
                        x: round_to_tenth(x - plate.width / 2.0),
                        y: round_to_tenth(top),
                        width: plate.width,
                        height: plate.height,
                    };
                    out.boxes.push((node, rect));
                }
                CellKind::Label(edge) => {
                    let plate = &blocks.labels[edge];
                    let left_of_edge = layers.cells[*cell].left > layers.cells[*cell].right;
                    let x = if left_of_edge { x - LABEL_GAP - plate.width } else { x + LABEL_GAP };
                    let y = round_to_tenth(f64::midpoint(top, bottom - plate.height));
                    let rect = PixelRect { x: round_to_tenth(x), y, width: plate.width, height: plate.height };
                    out.labels.push(EdgeLabel { edge, rect, left_of_edge });
                }
                CellKind::Bend => {}
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
        let (port_above, port_below) = coordinates.ports[edge];
        let mut straights = Vec::with_capacity(chain.len());
        for (ix, cell) in chain.iter().enumerate() {
            let row = row_of[*cell];
            let (top, bottom) = (coordinates.top[row], coordinates.bottom[row]);
            let straight = if ix == 0 {
                let from = if *cell == START_NODE { bottom + 2.0 } else { top + layers.cells[*cell].height };
                (port_above, from, if back[edge] { bottom.max(from + ARROW_LENGTH) } else { bottom.max(from) })
            } else if ix + 1 == chain.len() {
                (port_below, if back[edge] { top } else { top - ARROW_LENGTH }, top)
            } else {
                (coordinates.x[*cell], top, bottom)
            };
            straights.push((x_of(straight.0), round_to_tenth(straight.1), round_to_tenth(straight.2)));
        }
        snap_ends(&mut straights);
        out.edge_paths.push(edge_path(graph, edge, straights, back[edge]));
    }
    out
}

/// Moves the end of a nearly straight edge by a few pixels, because such an edge looks like a mistake.
fn snap_ends(straights: &mut [(f64, f64, f64)]) {
    const MAX_SNAP_DISTANCE: f64 = 4.0;
    let last = straights.len().saturating_sub(1);
    if last < 2 {
        return;
    }
    for (end, next) in [(0, 1), (last, last - 1)] {
        if (straights[end].0 - straights[next].0).abs() < MAX_SNAP_DISTANCE {
            straights[end].0 = straights[next].0;
        }
    }
}

fn edge_path(graph: &StateGraph, edge: usize, straights: Vec<(f64, f64, f64)>, points_up: bool) -> EdgePath {
    let tone = graph.edges[edge].trigger();
    let tip = match (points_up, straights.first(), straights.last()) {
        (true, Some((x, top, _)), _) => (*x, *top),
        (_, _, Some((x, _, bottom))) => (*x, *bottom),
        _ => (0.0, 0.0),
    };
    EdgePath { straights, arrow_tip: tip, points_up, trigger: tone }
}

/// Returns the edge as SVG path data.
pub(crate) fn svg_path_data(straights: &[(f64, f64, f64)], points_up: bool) -> String {
    let mut out = String::new();
    let last = straights.len().saturating_sub(1);
    let mut at: Option<(f64, f64)> = None;
    for (ix, (x, top, bottom)) in straights.iter().enumerate() {
        // The line ends inside the arrow head, so that the tip stays sharp.
        let top = if points_up && ix == 0 { top + ARROW_LENGTH - 2.0 } else { *top };
        let bottom = if !points_up && ix == last { bottom - ARROW_LENGTH + 2.0 } else { *bottom };
        match at {
            None => {
                let _ = write!(out, "M{x} {top}");
            }
            Some((x0, y0)) if (x0 - x).abs() > 0.05 => {
                let middle = round_to_tenth(f64::midpoint(y0, top));
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

/// Rounds to a tenth of a pixel, which is precise enough and keeps the file small.
pub(crate) fn round_to_tenth(at: f64) -> f64 {
    (at * 10.0).round() / 10.0
}
