//! Assigns coordinates: x by aligning connected cells within their order, y row by row.

use crate::layers::{CellIndex, CellKind, CellLayers};

/// Distance between cells of a row.
const CELL_GAP: f64 = 14.0;
const STATE_GAP: f64 = 28.0;
/// Distance between rows. It is larger if an edge moves far sideways, so that the edge is not too flat.
const MIN_ROW_GAP: f64 = 24.0;
const MAX_ROW_GAP: f64 = 72.0;
const PLACEMENT_ROUNDS: usize = 24;
/// Weight of the main path, so high that it stays in place and other cells move.
const PINNED_WEIGHT: f64 = 1.0e6;
/// Minimum distance of a port from the sides of its box, and from other ports.
const PORT_MARGIN: f64 = 14.0;
const PORT_GAP: f64 = 16.0;

#[derive(Debug)]
pub(crate) struct CellCoordinates {
    /// By cell: the line on which edges meet it.
    pub(crate) x: Vec<f64>,
    /// By row.
    pub(crate) top: Vec<f64>,
    pub(crate) bottom: Vec<f64>,
    /// By edge: its ports at the upper and the lower end.
    pub(crate) ports: Vec<(f64, f64)>,
}

pub(crate) fn assign_coordinates(layers: &CellLayers) -> CellCoordinates {
    let mut x = vec![0.0; layers.cells.len()];
    for row in &layers.rows {
        let desired = vec![(0.0, 1.0); row.len()];
        place_row(layers, row, &desired, &mut x);
    }
    for round in 0..PLACEMENT_ROUNDS {
        // First alternate between both directions, which propagates far; then use both, which balances.
        let (up, down) = if round >= PLACEMENT_ROUNDS / 2 { (true, true) } else { (round % 2 == 0, round % 2 == 1) };
        let mut rows: Vec<usize> = (0..layers.rows.len()).collect();
        if round % 2 == 1 {
            rows.reverse();
        }
        for row in rows {
            let row = &layers.rows[row];
            let desired: Vec<(f64, f64)> =
                row.iter().map(|cell| desired_position(layers, *cell, &x, up, down)).collect();
            place_row(layers, row, &desired, &mut x);
        }
    }
    for _ in 0..3 {
        straighten(layers, &mut x);
    }
    let mut port_xs = port_positions(layers, &x);
    for _ in 0..2 {
        align_to_ports(layers, &mut x, &port_xs);
        port_xs = port_positions(layers, &x);
    }
    let ports = port_xs;
    let (top, bottom) = row_extents(layers, &x, &ports);
    CellCoordinates { x, top, bottom, ports }
}

/// Cost of a crossing, of a bend, and of a pixel beyond the page width. A pixel of sideways movement costs 1.
const CROSSING_COST: f64 = 220.0;
const BEND_COST: f64 = 24.0;
const OVERWIDTH_COST_PER_PIXEL: f64 = 4.0;
const PAGE_WIDTH: f64 = 1_140.0;

impl CellCoordinates {
    /// Returns how hard the layout is to read. The scene draws the cheapest of several layouts.
    pub(crate) fn cost(&self, layers: &CellLayers, crossings: usize) -> f64 {
        let mut cost = 0.0;
        for _ in 0..crossings.min(1_000) {
            cost += CROSSING_COST;
        }
        for (chain, ends) in layers.chains.iter().zip(&self.ports) {
            for (ix, pair) in chain.windows(2).enumerate() {
                let from = if ix == 0 { ends.0 } else { self.x[pair[0]] };
                let to = if ix + 2 == chain.len() { ends.1 } else { self.x[pair[1]] };
                let aside = (from - to).abs();
                cost += aside + if aside > 0.5 { BEND_COST } else { 0.0 };
            }
        }
        let cells = || layers.cells.iter().zip(&self.x);
        let left = cells().map(|(cell, x)| x - cell.left).fold(0.0, f64::min);
        let right = cells().map(|(cell, x)| x + cell.right).fold(0.0, f64::max);
        cost + (right - left) * 0.5 + (right - left - PAGE_WIDTH).max(0.0) * OVERWIDTH_COST_PER_PIXEL
    }
}

/// Returns the desired position of a cell and its weight.
fn desired_position(layers: &CellLayers, cell: CellIndex, x: &[f64], up: bool, down: bool) -> (f64, f64) {
    if layers.cells[cell].is_on_main_path {
        return (0.0, PINNED_WEIGHT);
    }
    let is_state = |cell: CellIndex| matches!(layers.cells[cell].kind, CellKind::State(_) | CellKind::Start);
    let (mut sum, mut weight) = (0.0, 0.0);
    let sides = [(up, &layers.neighbors_above[cell]), (down, &layers.neighbors_below[cell])];
    for other in sides.into_iter().filter(|(counts, _)| *counts).flat_map(|(_, cells)| cells) {
        // Straight long edges matter more than short edges that are as short as possible.
        let pull = if is_state(cell) || is_state(*other) { 1.0 } else { 6.0 };
        sum += x[*other] * pull;
        weight += pull;
    }
    if weight > 0.0 { (sum / weight, weight) } else { (x[cell], 0.1) }
}

fn min_distance(layers: &CellLayers, left: CellIndex, right: CellIndex) -> f64 {
    let (left, right) = (&layers.cells[left], &layers.cells[right]);
    let both_states = matches!((left.kind, right.kind), (CellKind::State(_), CellKind::State(_)));
    left.right + right.left + if both_states { STATE_GAP } else { CELL_GAP }
}

/// Places a row nearest to the desired positions that keep order and distances.
fn place_row(layers: &CellLayers, row: &[CellIndex], desired: &[(f64, f64)], x: &mut [f64]) {
    let rooms: Vec<f64> = row.windows(2).map(|pair| min_distance(layers, pair[0], pair[1])).collect();
    let settled = solve_positions(desired, &rooms, None);
    for (cell, at) in row.iter().zip(settled) {
        x[*cell] = at;
    }
}

/// Solves weighted least squares under `x[i + 1] - x[i] >= min_distances[i]`, within `bounds`. Neighbors that come too
/// close are pooled and placed together at their mean.
fn solve_positions(desired: &[(f64, f64)], min_distances: &[f64], bounds: Option<(f64, f64)>) -> Vec<f64> {
    let mut offset = Vec::with_capacity(desired.len());
    let mut so_far = 0.0;
    for ix in 0..desired.len() {
        offset.push(so_far);
        so_far += min_distances.get(ix).copied().unwrap_or(0.0);
    }
    // Each pool holds the sum of weighted positions, the weight, and the number of members.
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (ix, (wish, weight)) in desired.iter().enumerate() {
        let mut pool = ((wish - offset[ix]) * weight, *weight, 1);
        while let Some(last) = pools.last().filter(|last| last.0 / last.1 >= pool.0 / pool.1) {
            pool = (last.0 + pool.0, last.1 + pool.1, last.2 + pool.2);
            pools.pop();
        }
        pools.push(pool);
    }
    let span = offset.last().copied().unwrap_or(0.0);
    let means = pools.into_iter().flat_map(|(sum, weight, members)| std::iter::repeat_n(sum / weight, members));
    means
        .zip(&offset)
        .map(|(mean, offset)| {
            let mean = bounds.map_or(mean, |(least, most)| mean.min(most - span).max(least));
            mean + offset
        })
        .collect()
}

type RowNeighbors = Vec<(Option<CellIndex>, Option<CellIndex>)>;

/// Returns the left and right neighbor of each cell.
fn row_neighbors(layers: &CellLayers) -> RowNeighbors {
    let mut neighbors = vec![(None, None); layers.cells.len()];
    for row in &layers.rows {
        for pair in row.windows(2) {
            neighbors[pair[0]].1 = Some(pair[1]);
            neighbors[pair[1]].0 = Some(pair[0]);
        }
    }
    neighbors
}

/// Returns the range in which a cell can move while its neighbors stay.
fn free_interval(layers: &CellLayers, beside: &RowNeighbors, cell: CellIndex, x: &[f64]) -> (f64, f64) {
    let (left, right) = beside[cell];
    let least = left.map_or(f64::NEG_INFINITY, |left| x[left] + min_distance(layers, left, cell));
    let most = right.map_or(f64::INFINITY, |right| x[right] - min_distance(layers, cell, right));
    (least, most)
}

/// Aligns consecutive bends of an edge vertically if their rows have space.
fn straighten(layers: &CellLayers, x: &mut [f64]) {
    let beside = row_neighbors(layers);
    let free = |cell: CellIndex, x: &[f64]| free_interval(layers, &beside, cell, x);
    // An edge may meet a box anywhere along the box.
    let meets = |cell: CellIndex, x: &[f64]| {
        let reach = (layers.cells[cell].left - PORT_MARGIN).max(0.0);
        (x[cell] - reach, x[cell] + reach)
    };
    for chain in &layers.chains {
        let Some((upper, lower)) = chain.first().zip(chain.last()) else { continue };
        let inner = &chain[1..chain.len() - 1];
        if inner.iter().any(|cell| layers.cells[*cell].is_on_main_path) {
            continue;
        }
        let mut start = 0;
        while start < inner.len() {
            let (mut least, mut most) = free(inner[start], x);
            if start == 0 {
                narrow_interval(&mut least, &mut most, meets(*upper, x));
            }
            let mut end = start + 1;
            while end < inner.len() {
                let (low, high) = free(inner[end], x);
                if low.max(least) > high.min(most) {
                    break;
                }
                least = least.max(low);
                most = most.min(high);
                end += 1;
            }
            if end == inner.len() {
                narrow_interval(&mut least, &mut most, meets(*lower, x));
            }
            if least <= most {
                let mut sum = 0.0;
                let mut count = 0.0;
                for cell in &inner[start..end] {
                    sum += x[*cell];
                    count += 1.0;
                }
                let at = (sum / count).min(most).max(least);
                for cell in &inner[start..end] {
                    x[*cell] = at;
                }
            }
            start = end;
        }
    }
}

/// Aligns the first and last straight piece of an edge with its ports if their rows have space. A line that is straight
/// except for two pixels looks like a mistake.
fn align_to_ports(layers: &CellLayers, x: &mut [f64], ports: &[(f64, f64)]) {
    let beside = row_neighbors(layers);
    for (chain, ends) in layers.chains.iter().zip(ports) {
        let inner: Vec<CellIndex> = chain[1..chain.len() - 1].to_vec();
        let backwards: Vec<CellIndex> = inner.iter().rev().copied().collect();
        for (cells, port) in [(inner, ends.0), (backwards, ends.1)] {
            let Some(first) = cells.first().map(|cell| x[*cell]) else { continue };
            let run: Vec<CellIndex> = cells.into_iter().take_while(|cell| (x[*cell] - first).abs() < 0.01).collect();
            let fits = |cell: &CellIndex| {
                let (least, most) = free_interval(layers, &beside, *cell, x);
                !layers.cells[*cell].is_on_main_path && least <= port && port <= most
            };
            if run.iter().all(fits) {
                for cell in run {
                    x[cell] = port;
                }
            }
        }
    }
}

fn narrow_interval(least: &mut f64, most: &mut f64, to: (f64, f64)) {
    if to.0.max(*least) <= to.1.min(*most) {
        *least = least.max(to.0);
        *most = most.min(to.1);
    }
}

/// Returns the ports of each edge: in line with its next cell if the box is wide enough.
fn port_positions(layers: &CellLayers, x: &[f64]) -> Vec<(f64, f64)> {
    let mut positions = vec![0; layers.cells.len()];
    for row in &layers.rows {
        for (position, cell) in row.iter().enumerate() {
            positions[*cell] = position;
        }
    }
    // By state cell: the edges at its lower and at its upper side.
    let mut lower: Vec<Vec<usize>> = vec![Vec::new(); layers.cells.len()];
    let mut upper: Vec<Vec<usize>> = vec![Vec::new(); layers.cells.len()];
    for (edge, chain) in layers.chains.iter().enumerate() {
        lower[chain[0]].push(edge);
        upper[chain[chain.len() - 1]].push(edge);
    }
    let mut ports = vec![(0.0, 0.0); layers.chains.len()];
    for cell in 0..layers.cells.len() {
        for (edges, below) in [(&mut lower[cell], true), (&mut upper[cell], false)] {
            let next = |edge: usize| {
                let chain = &layers.chains[edge];
                if below { chain[1] } else { chain[chain.len() - 2] }
            };
            edges.sort_by_key(|edge| positions[next(*edge)]);
            let reach = (layers.cells[cell].left - PORT_MARGIN).max(0.0);
            let wishes: Vec<(f64, f64)> = edges
                .iter()
                .map(|edge| {
                    let next = next(*edge);
                    (x[next], if layers.cells[next].is_on_main_path { PINNED_WEIGHT } else { 1.0 })
                })
                .collect();
            let mut steps = 0.0;
            for _ in 1..edges.len() {
                steps += 1.0;
            }
            let gap = if steps > 0.0 { PORT_GAP.min(2.0 * reach / steps) } else { 0.0 };
            let rooms = vec![gap; edges.len().saturating_sub(1)];
            let solved = solve_positions(&wishes, &rooms, Some((x[cell] - reach, x[cell] + reach)));
            for (edge, met) in edges.iter().zip(solved) {
                if below {
                    ports[*edge].0 = met;
                } else {
                    ports[*edge].1 = met;
                }
            }
        }
    }
    ports
}

fn row_extents(layers: &CellLayers, x: &[f64], ports: &[(f64, f64)]) -> (Vec<f64>, Vec<f64>) {
    let mut row_of = vec![0; layers.cells.len()];
    for (row, cells) in layers.rows.iter().enumerate() {
        for cell in cells {
            row_of[*cell] = row;
        }
    }
    let mut aside = vec![0.0_f64; layers.rows.len()];
    for (chain, ends) in layers.chains.iter().zip(ports) {
        for (ix, pair) in chain.windows(2).enumerate() {
            let from = if ix == 0 { ends.0 } else { x[pair[0]] };
            let to = if ix + 2 == chain.len() { ends.1 } else { x[pair[1]] };
            let row = row_of[pair[0]];
            aside[row] = aside[row].max((from - to).abs());
        }
    }
    let (mut top, mut bottom) = (Vec::new(), Vec::new());
    let mut y = 0.0;
    for (row, cells) in layers.rows.iter().enumerate() {
        top.push(y);
        y += cells.iter().map(|cell| layers.cells[*cell].height).fold(0.0, f64::max);
        bottom.push(y);
        y += (MIN_ROW_GAP + aside[row] * 0.12).min(MAX_ROW_GAP);
    }
    (top, bottom)
}
