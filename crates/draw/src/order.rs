//! Orders the cells of each row so that few edges cross.

use crate::layers::{CellIndex, CellLayers};

/// More sweeps rarely help. Diagrams with many cells get fewer sweeps, to bound the work.
const MAX_SWEEPS: usize = 16;
const MAX_CELLS_FOR_ALL_SWEEPS: usize = 2_000;

/// Orders the cells and returns the number of crossings. `attempt` selects the initial order.
pub(crate) fn minimize_crossings(layers: &mut CellLayers, attempt: u64) -> usize {
    set_initial_order(layers, attempt);
    let mut best = layers.rows.clone();
    let mut fewest = count_crossings(layers);
    let sweeps = if layers.cells.len() > MAX_CELLS_FOR_ALL_SWEEPS { MAX_SWEEPS / 4 } else { MAX_SWEEPS };
    let mut positions = vec![0.0; layers.cells.len()];
    let mut worse = 0;
    for sweep in 0..sweeps {
        if fewest == 0 || worse > 5 {
            break;
        }
        if sweep % 2 == 0 {
            for row in 1..layers.rows.len() {
                sort_row_by_neighbors(layers, row, true, &mut positions);
            }
        } else {
            for row in (0..layers.rows.len()).rev() {
                sort_row_by_neighbors(layers, row, false, &mut positions);
            }
        }
        swap_neighbors(layers);
        let now = count_crossings(layers);
        if now < fewest {
            fewest = now;
            best.clone_from(&layers.rows);
            worse = 0;
        } else {
            worse += 1;
        }
    }
    layers.rows = best;
    fewest
}

/// Orders the cells by a depth-first search from the start. The order of a cell's edges depends on `attempt`.
fn set_initial_order(layers: &mut CellLayers, attempt: u64) {
    let shuffled = |cell: &CellIndex| {
        let mixed = (*cell as u64).wrapping_add(1).wrapping_mul(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    };
    let mut visit_order = vec![usize::MAX; layers.cells.len()];
    let mut count = 0;
    for root in 0..layers.cells.len() {
        let mut todo = vec![root];
        while let Some(cell) = todo.pop() {
            if visit_order[cell] != usize::MAX {
                continue;
            }
            visit_order[cell] = count;
            count += 1;
            let mut next = layers.neighbors_below[cell].clone();
            next.sort_by_key(shuffled);
            todo.extend(next.iter().rev());
        }
    }
    for row in &mut layers.rows {
        row.sort_by_key(|cell| visit_order[*cell]);
    }
}

fn cell_positions(layers: &CellLayers) -> Vec<usize> {
    let mut at = vec![0; layers.cells.len()];
    for row in &layers.rows {
        for (position, cell) in row.iter().enumerate() {
            at[*cell] = position;
        }
    }
    at
}

/// Sorts a row by the mean position of each cell's neighbors. Cells without neighbors keep their position. `positions`
/// is a scratch buffer, by cell.
fn sort_row_by_neighbors(layers: &mut CellLayers, row: usize, by_upper: bool, positions: &mut [f64]) {
    let neighbors = if by_upper { &layers.neighbors_above } else { &layers.neighbors_below };
    let adjacent_row = if by_upper { row.checked_sub(1) } else { Some(row + 1) };
    let Some(beside) = adjacent_row.and_then(|row| layers.rows.get(row)) else { return };
    let mut position = 0.0;
    for cell in beside {
        positions[*cell] = position;
        position += 1.0;
    }
    let mut own = 0.0;
    let mut keyed: Vec<(f64, CellIndex)> = Vec::with_capacity(layers.rows[row].len());
    for cell in &layers.rows[row] {
        let joined = &neighbors[*cell];
        let mut sum = 0.0;
        let mut count = 0.0;
        for other in joined {
            sum += positions[*other];
            count += 1.0;
        }
        keyed.push((if count > 0.0 { sum / count } else { own }, *cell));
        own += 1.0;
    }
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    layers.rows[row] = keyed.into_iter().map(|(_, cell)| cell).collect();
}

fn swap_neighbors(layers: &mut CellLayers) {
    if layers.cells.len() > MAX_CELLS_FOR_ALL_SWEEPS {
        return;
    }
    for _ in 0..4 {
        let mut positions = cell_positions(layers);
        let mut better = false;
        for row in 0..layers.rows.len() {
            for left in 0..layers.rows[row].len().saturating_sub(1) {
                let (a, b) = (layers.rows[row][left], layers.rows[row][left + 1]);
                let crossings = |a: CellIndex, b: CellIndex| {
                    pair_crossings(&layers.neighbors_above[a], &layers.neighbors_above[b], &positions)
                        + pair_crossings(&layers.neighbors_below[a], &layers.neighbors_below[b], &positions)
                };
                if crossings(b, a) < crossings(a, b) {
                    layers.rows[row].swap(left, left + 1);
                    positions.swap(a, b);
                    better = true;
                }
            }
        }
        if !better {
            return;
        }
    }
}

/// Counts crossings between the edges of `a` and `b` if `a` is left of `b`.
fn pair_crossings(a: &[CellIndex], b: &[CellIndex], positions: &[usize]) -> usize {
    a.iter().map(|of_a| b.iter().filter(|of_b| positions[**of_b] < positions[*of_a]).count()).sum()
}

fn count_crossings(layers: &CellLayers) -> usize {
    let positions = cell_positions(layers);
    let mut count = 0;
    for row in &layers.rows {
        let widest = row
            .iter()
            .flat_map(|cell| &layers.neighbors_below[*cell])
            .map(|cell| positions[*cell] + 1)
            .max()
            .unwrap_or(0);
        // Fenwick tree over positions in the row below. Counts the earlier ends right of this one.
        let mut tree = vec![0_usize; widest + 1];
        let mut seen = 0;
        for cell in row {
            let ends: Vec<usize> = layers.neighbors_below[*cell].iter().map(|cell| positions[*cell] + 1).collect();
            for end in &ends {
                let (mut below, mut ix) = (0, *end);
                while ix > 0 {
                    below += tree[ix];
                    ix &= ix - 1;
                }
                count += seen - below;
            }
            for end in ends {
                let mut ix = end;
                while ix <= widest {
                    tree[ix] += 1;
                    ix += ix & ix.wrapping_neg();
                }
                seen += 1;
            }
        }
    }
    count
}
