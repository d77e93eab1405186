//! Left to right within each row, so that few edges cross.

use super::layers::{CellIx, Layers};

/// Sweeps up and down. More rarely helps; pictures with many cells get fewer, to keep the work bounded.
const SWEEPS: usize = 16;
const CELLS_FOR_ALL_SWEEPS: usize = 2_000;

/// `attempt` picks the order to start from; how many edges cross is returned.
pub(super) fn order(layers: &mut Layers, attempt: u64) -> usize {
    first_order(layers, attempt);
    let mut best = layers.rows.clone();
    let mut fewest = crossings(layers);
    let sweeps = if layers.cells.len() > CELLS_FOR_ALL_SWEEPS { SWEEPS / 4 } else { SWEEPS };
    let mut at = vec![0.0; layers.cells.len()];
    let mut worse = 0;
    for sweep in 0..sweeps {
        if fewest == 0 || worse > 5 {
            break;
        }
        if sweep % 2 == 0 {
            for row in 1..layers.rows.len() {
                sort_row(layers, row, true, &mut at);
            }
        } else {
            for row in (0..layers.rows.len()).rev() {
                sort_row(layers, row, false, &mut at);
            }
        }
        swap_neighbours(layers);
        let now = crossings(layers);
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

/// As a walk from the start meets the cells; which of a cell's edges it takes first differs from attempt to attempt.
fn first_order(layers: &mut Layers, attempt: u64) {
    let shuffled = |cell: &CellIx| {
        let mixed = (*cell as u64).wrapping_add(1).wrapping_mul(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    };
    let mut met = vec![usize::MAX; layers.cells.len()];
    let mut count = 0;
    for root in 0..layers.cells.len() {
        let mut todo = vec![root];
        while let Some(cell) = todo.pop() {
            if met[cell] != usize::MAX {
                continue;
            }
            met[cell] = count;
            count += 1;
            let mut next = layers.down[cell].clone();
            next.sort_by_key(shuffled);
            todo.extend(next.iter().rev());
        }
    }
    for row in &mut layers.rows {
        row.sort_by_key(|cell| met[*cell]);
    }
}

fn positions(layers: &Layers) -> Vec<usize> {
    let mut at = vec![0; layers.cells.len()];
    for row in &layers.rows {
        for (position, cell) in row.iter().enumerate() {
            at[*cell] = position;
        }
    }
    at
}

/// Sorts a row by the mean position of what its cells are joined to. Cells joined to nothing keep their place. `at` is
/// room for positions, by cell.
fn sort_row(layers: &mut Layers, row: usize, by_upper: bool, at: &mut [f64]) {
    let neighbours = if by_upper { &layers.up } else { &layers.down };
    let beside = if by_upper { row.checked_sub(1) } else { Some(row + 1) };
    let Some(beside) = beside.and_then(|row| layers.rows.get(row)) else { return };
    let mut position = 0.0;
    for cell in beside {
        at[*cell] = position;
        position += 1.0;
    }
    let mut own = 0.0;
    let mut keyed: Vec<(f64, CellIx)> = Vec::with_capacity(layers.rows[row].len());
    for cell in &layers.rows[row] {
        let joined = &neighbours[*cell];
        let mut sum = 0.0;
        let mut count = 0.0;
        for other in joined {
            sum += at[*other];
            count += 1.0;
        }
        keyed.push((if count > 0.0 { sum / count } else { own }, *cell));
        own += 1.0;
    }
    keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    layers.rows[row] = keyed.into_iter().map(|(_, cell)| cell).collect();
}

fn swap_neighbours(layers: &mut Layers) {
    if layers.cells.len() > CELLS_FOR_ALL_SWEEPS {
        return;
    }
    for _ in 0..4 {
        let mut at = positions(layers);
        let mut better = false;
        for row in 0..layers.rows.len() {
            for left in 0..layers.rows[row].len().saturating_sub(1) {
                let (a, b) = (layers.rows[row][left], layers.rows[row][left + 1]);
                let crossings = |a: CellIx, b: CellIx| {
                    pair_crossings(&layers.up[a], &layers.up[b], &at)
                        + pair_crossings(&layers.down[a], &layers.down[b], &at)
                };
                if crossings(b, a) < crossings(a, b) {
                    layers.rows[row].swap(left, left + 1);
                    at.swap(a, b);
                    better = true;
                }
            }
        }
        if !better {
            return;
        }
    }
}

/// How many edges of `a` cross edges of `b` with `a` left of `b`.
fn pair_crossings(a: &[CellIx], b: &[CellIx], at: &[usize]) -> usize {
    a.iter().map(|of_a| b.iter().filter(|of_b| at[**of_b] < at[*of_a]).count()).sum()
}

fn crossings(layers: &Layers) -> usize {
    let at = positions(layers);
    let mut count = 0;
    for row in &layers.rows {
        let widest = row.iter().flat_map(|cell| &layers.down[*cell]).map(|cell| at[*cell] + 1).max().unwrap_or(0);
        // A count tree over positions below: how many ends so far lie right of this one.
        let mut tree = vec![0_usize; widest + 1];
        let mut seen = 0;
        for cell in row {
            let ends: Vec<usize> = layers.down[*cell].iter().map(|cell| at[*cell] + 1).collect();
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
