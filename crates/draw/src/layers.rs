//! Builds the rows of cells: states in even rows, edge labels in odd rows, and bends where an edge passes a row.
//!
//! Everything that takes space is a cell. If no cells of a row overlap, nothing in the diagram does.

use crate::graph::{NodeIndex, START_NODE, StateGraph};
use crate::rank::{NodeRanks, edge_ends};
use crate::text_block::TextBlocks;

pub(crate) type CellIndex = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellKind {
    Start,
    State(NodeIndex),
    /// The label of an edge. The edge runs along its left or right side.
    Label(usize),
    Bend,
}

#[derive(Clone, Debug)]
pub(crate) struct LayoutCell {
    pub(crate) kind: CellKind,
    /// Space to the left and right of the line on which edges meet the cell.
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) height: f64,
    /// Whether the cell is on the main path, which is drawn straight.
    pub(crate) is_on_main_path: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CellLayers {
    pub(crate) cells: Vec<LayoutCell>,
    /// From top to bottom; the cells of a row from left to right.
    pub(crate) rows: Vec<Vec<CellIndex>>,
    /// By cell: neighbors in the row above and in the row below.
    pub(crate) neighbors_above: Vec<Vec<CellIndex>>,
    pub(crate) neighbors_below: Vec<Vec<CellIndex>>,
    /// By edge: its cells from the upper end to the lower one.
    pub(crate) chains: Vec<Vec<CellIndex>>,
}

/// Half the width that a passing edge takes.
const BEND_HALF_WIDTH: f64 = 9.0;
/// Distance between an edge and its label.
pub(crate) const LABEL_GAP: f64 = 8.0;
pub(crate) const START_RADIUS: f64 = 8.0;

/// Builds the layers. The label of a long edge goes next to the state that the edge leaves, until that row is
/// `row_width` wide.
pub(crate) fn build_layers(graph: &StateGraph, ranks: &NodeRanks, blocks: &TextBlocks, row_width: f64) -> CellLayers {
    let mut layers = CellLayers::default();
    let last = ranks.ranks.iter().copied().max().unwrap_or(0);
    layers.rows = vec![Vec::new(); 2 * last + 1];
    for node in 0..graph.box_contents.len() {
        let cell = if node == START_NODE {
            LayoutCell {
                kind: CellKind::Start,
                left: START_RADIUS,
                right: START_RADIUS,
                height: 2.0 * START_RADIUS,
                is_on_main_path: true,
            }
        } else {
            let size = &blocks.boxes[node];
            LayoutCell {
                kind: CellKind::State(node),
                left: size.width / 2.0,
                right: size.width / 2.0,
                height: size.height,
                is_on_main_path: graph.main_path.iter().any(|edge| graph.edges[*edge].to == node),
            }
        };
        layers.add_cell(cell, 2 * ranks.ranks[node]);
    }
    let mut used = vec![0.0; layers.rows.len()];
    for edge in 0..graph.edges.len() {
        let (upper, lower) = edge_ends(graph, &ranks.is_back_edge, edge);
        let (first, last) = (2 * ranks.ranks[upper] + 1, 2 * ranks.ranks[lower] - 1);
        let width = blocks.labels[edge].width + LABEL_GAP + 20.0;
        let label_row = label_row(first, last, ranks.is_back_edge[edge], row_width - width, &used);
        let main = graph.main_path.contains(&edge);
        let mut chain = vec![upper];
        for (row, used) in used.iter_mut().enumerate().take(last + 1).skip(first) {
            let bend = LayoutCell {
                kind: CellKind::Bend,
                left: BEND_HALF_WIDTH,
                right: BEND_HALF_WIDTH,
                height: 0.0,
                is_on_main_path: main,
            };
            let cell = if row == label_row {
                let right = blocks.labels[edge].width + LABEL_GAP;
                LayoutCell { kind: CellKind::Label(edge), right, height: blocks.labels[edge].height, ..bend }
            } else {
                bend
            };
            *used += cell.left + cell.right;
            let cell = layers.add_cell(cell, row);
            layers.connect(*chain.last().unwrap_or(&upper), cell);
            chain.push(cell);
        }
        layers.connect(*chain.last().unwrap_or(&upper), lower);
        chain.push(lower);
        layers.chains.push(chain);
    }
    layers
}

/// Returns the row nearest to the state that the edge leaves and that has space, or else the emptiest row.
fn label_row(first: usize, last: usize, back: bool, max_used_width: f64, used: &[f64]) -> usize {
    let mut best = if back { last } else { first };
    let mut by_nearness: Vec<usize> = (first..=last).step_by(2).collect();
    if back {
        by_nearness.reverse();
    }
    for row in by_nearness {
        if used[row] <= max_used_width {
            return row;
        }
        if used[row] < used[best] {
            best = row;
        }
    }
    best
}

impl CellLayers {
    fn add_cell(&mut self, cell: LayoutCell, row: usize) -> CellIndex {
        self.cells.push(cell);
        self.neighbors_above.push(Vec::new());
        self.neighbors_below.push(Vec::new());
        let ix = self.cells.len() - 1;
        self.rows[row].push(ix);
        ix
    }

    fn connect(&mut self, upper: CellIndex, lower: CellIndex) {
        self.neighbors_below[upper].push(lower);
        self.neighbors_above[lower].push(upper);
    }

    /// Returns, by edge, the index of the label in its chain.
    pub(crate) fn label_rows(&self) -> Vec<usize> {
        let is_label = |cell: &CellIndex| matches!(self.cells[*cell].kind, CellKind::Label(_));
        self.chains.iter().map(|chain| chain.iter().position(is_label).unwrap_or(0)).collect()
    }

    /// Puts labels left of the main path on the left side of their edges. Edges then stay close together, with labels
    /// outside.
    pub(crate) fn turn_labels_outward(&mut self) {
        for row in &self.rows {
            let main = row.iter().position(|cell| self.cells[*cell].is_on_main_path);
            let labels = row.iter().filter(|cell| matches!(self.cells[**cell].kind, CellKind::Label(_))).count();
            let middle = main.unwrap_or(if labels > 1 { row.len() / 2 } else { 0 });
            for cell in &row[..middle] {
                let cell = &mut self.cells[*cell];
                if matches!(cell.kind, CellKind::Label(_)) {
                    std::mem::swap(&mut cell.left, &mut cell.right);
                }
            }
        }
    }
}
