//! The picture as rows of cells: states in the even rows, what is said on edges in the odd ones, and bends where an
//! edge passes a row. Since everything that takes room is a cell, nothing can overlap once cells of a row do not.

use super::graph::{Graph, NodeIx, START};
use super::plate::Plates;
use super::rank::{Ranks, ends};

pub(super) type CellIx = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Start,
    State(NodeIx),
    /// What is said on an edge; the edge runs along its left or right side.
    Label(usize),
    Bend,
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) what: What,
    /// Room to the left and to the right of the line on which edges meet the cell.
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) height: f64,
    /// On the main way, which runs straight.
    pub(super) main: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    pub(super) cells: Vec<Cell>,
    /// Top to bottom; in each, left to right.
    pub(super) rows: Vec<Vec<CellIx>>,
    /// By cell: what it is joined to in the row above and in the row below.
    pub(super) up: Vec<Vec<CellIx>>,
    pub(super) down: Vec<Vec<CellIx>>,
    /// By edge: its cells from the upper end to the lower one.
    pub(super) chains: Vec<Vec<CellIx>>,
}

/// Half the room that a passing edge takes.
const BEND: f64 = 9.0;
/// Between an edge and the words beside it.
pub(super) const LABEL_GAP: f64 = 8.0;
pub(super) const START_RADIUS: f64 = 8.0;

/// Words of long edges stand beside the state they leave, until their row is `row_width` wide.
pub(super) fn layers(graph: &Graph, ranks: &Ranks, plates: &Plates, row_width: f64) -> Layers {
    let mut layers = Layers::default();
    let last = ranks.of.iter().copied().max().unwrap_or(0);
    layers.rows = vec![Vec::new(); 2 * last + 1];
    for node in 0..graph.inside.len() {
        let cell = if node == START {
            Cell { what: What::Start, left: START_RADIUS, right: START_RADIUS, height: 2.0 * START_RADIUS, main: true }
        } else {
            let size = &plates.boxes[node];
            Cell {
                what: What::State(node),
                left: size.width / 2.0,
                right: size.width / 2.0,
                height: size.height,
                main: graph.main.iter().any(|edge| graph.edges[*edge].to == node),
            }
        };
        layers.add(cell, 2 * ranks.of[node]);
    }
    let mut used = vec![0.0; layers.rows.len()];
    for edge in 0..graph.edges.len() {
        let (upper, lower) = ends(graph, &ranks.back, edge);
        let (first, last) = (2 * ranks.of[upper] + 1, 2 * ranks.of[lower] - 1);
        let width = plates.labels[edge].width + LABEL_GAP + 20.0;
        let label_row = label_row(first, last, ranks.back[edge], row_width - width, &used);
        let main = graph.main.contains(&edge);
        let mut chain = vec![upper];
        for (row, used) in used.iter_mut().enumerate().take(last + 1).skip(first) {
            let bend = Cell { what: What::Bend, left: BEND, right: BEND, height: 0.0, main };
            let cell = if row == label_row {
                let right = plates.labels[edge].width + LABEL_GAP;
                Cell { what: What::Label(edge), right, height: plates.labels[edge].height, ..bend }
            } else {
                bend
            };
            *used += cell.left + cell.right;
            let cell = layers.add(cell, row);
            layers.join(*chain.last().unwrap_or(&upper), cell);
            chain.push(cell);
        }
        layers.join(*chain.last().unwrap_or(&upper), lower);
        chain.push(lower);
        layers.chains.push(chain);
    }
    layers
}

/// The row nearest to the state that the edge leaves, if there is room; else the emptiest.
fn label_row(first: usize, last: usize, back: bool, most: f64, used: &[f64]) -> usize {
    let mut best = if back { last } else { first };
    let mut by_nearness: Vec<usize> = (first..=last).step_by(2).collect();
    if back {
        by_nearness.reverse();
    }
    for row in by_nearness {
        if used[row] <= most {
            return row;
        }
        if used[row] < used[best] {
            best = row;
        }
    }
    best
}

impl Layers {
    fn add(&mut self, cell: Cell, row: usize) -> CellIx {
        self.cells.push(cell);
        self.up.push(Vec::new());
        self.down.push(Vec::new());
        let ix = self.cells.len() - 1;
        self.rows[row].push(ix);
        ix
    }

    fn join(&mut self, upper: CellIx, lower: CellIx) {
        self.down[upper].push(lower);
        self.up[lower].push(upper);
    }

    /// By edge: how far down its chain its words stand.
    pub(super) fn label_rows(&self) -> Vec<usize> {
        let is_label = |cell: &CellIx| matches!(self.cells[*cell].what, What::Label(_));
        self.chains.iter().map(|chain| chain.iter().position(is_label).unwrap_or(0)).collect()
    }

    /// Puts the words of edges left of the main way on their left side: edges then stay near each other, words outside.
    pub(super) fn turn_labels_outward(&mut self) {
        for row in &self.rows {
            let main = row.iter().position(|cell| self.cells[*cell].main);
            let labels = row.iter().filter(|cell| matches!(self.cells[**cell].what, What::Label(_))).count();
            let middle = main.unwrap_or(if labels > 1 { row.len() / 2 } else { 0 });
            for cell in &row[..middle] {
                let cell = &mut self.cells[*cell];
                if matches!(cell.what, What::Label(_)) {
                    std::mem::swap(&mut cell.left, &mut cell.right);
                }
            }
        }
    }
}
