//! The picture as rows of cells: states in the even rows, what is said on edges in the odd ones, and bends where an
//! edge passes a row. Since everything that takes room is a cell, nothing can overlap once cells of a row do not.

use super::graph::{NodeIndex, START_NODE, StateGraph};
use super::rank::{NodeRanks, edge_ends};
use super::text_block::TextBlocks;

pub(super) type CellIndex = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    Start,
    State(NodeIndex),
    /// What is said on an edge; the edge runs along its left or right side.
    Label(usize),
    Bend,
}

#[derive(Clone, Debug)]
pub(super) struct LayoutCell {
    pub(super) kind: CellKind,
    /// Room to the left and to the right of the line on which edges meet the cell.
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) height: f64,
    /// On the main way, which runs straight.
    pub(super) is_on_main_path: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CellLayers {
    pub(super) cells: Vec<LayoutCell>,
    /// Top to bottom; in each, left to right.
    pub(super) rows: Vec<Vec<CellIndex>>,
    /// By cell: what it is joined to in the row above and in the row below.
    pub(super) neighbors_above: Vec<Vec<CellIndex>>,
    pub(super) neighbors_below: Vec<Vec<CellIndex>>,
    /// By edge: its cells from the upper end to the lower one.
    pub(super) chains: Vec<Vec<CellIndex>>,
}

/// Half the room that a passing edge takes.
const BEND_HALF_WIDTH: f64 = 9.0;
/// Between an edge and the words beside it.
pub(super) const LABEL_GAP: f64 = 8.0;
pub(super) const START_RADIUS: f64 = 8.0;

/// Words of long edges stand beside the state they leave, until their row is `row_width` wide.
pub(super) fn build_layers(graph: &StateGraph, ranks: &NodeRanks, blocks: &TextBlocks, row_width: f64) -> CellLayers {
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

/// The row nearest to the state that the edge leaves, if there is room; else the emptiest.
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

    /// By edge: how far down its chain its words stand.
    pub(super) fn label_rows(&self) -> Vec<usize> {
        let is_label = |cell: &CellIndex| matches!(self.cells[*cell].kind, CellKind::Label(_));
        self.chains.iter().map(|chain| chain.iter().position(is_label).unwrap_or(0)).collect()
    }

    /// Puts the words of edges left of the main way on their left side: edges then stay near each other, words outside.
    pub(super) fn turn_labels_outward(&mut self) {
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
