//! Assigns ranks to states: breaks cycles, then puts each state below its predecessors.

use crate::graph::{NodeIndex, START_NODE, StateGraph};

#[derive(Debug)]
pub(crate) struct NodeRanks {
    /// By node.
    pub(crate) ranks: Vec<usize>,
    /// By edge: whether it is drawn upward, against the flow.
    pub(crate) is_back_edge: Vec<bool>,
}

/// A wider row of boxes and labels does not fit a page. States without successors then move one row down.
const MAX_ROW_WIDTH: f64 = 1_120.0;

/// Assigns ranks. `box_width` is by node, `label_width` by edge.
pub(crate) fn assign_ranks(graph: &StateGraph, box_width: &[f64], label_width: &[f64]) -> NodeRanks {
    let back = find_back_edges(graph);
    let mut ranks = longest_path_ranks(graph, &back);
    lower_unentered_states(graph, &back, &mut ranks);
    spread_leaf_states(graph, &back, &mut ranks, box_width, label_width);
    NodeRanks { ranks, is_back_edge: back }
}

/// Finds the edges that close a cycle, by a depth-first search that follows the main path first.
fn find_back_edges(graph: &StateGraph) -> Vec<bool> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); graph.box_contents.len()];
    for (ix, edge) in graph.edges.iter().enumerate() {
        out[edge.from].push(ix);
    }
    for edges in &mut out {
        edges.sort_by_key(|edge| !graph.main_path.contains(edge));
    }
    let mut back = vec![false; graph.edges.len()];
    // 0: not visited, 1: on the current path, 2: done.
    let mut mark = vec![0_u8; graph.box_contents.len()];
    let mut without_entry: Vec<NodeIndex> = (0..graph.box_contents.len()).collect();
    without_entry.sort_by_key(|node| graph.edges.iter().any(|edge| edge.to == *node));
    for root in std::iter::once(START_NODE).chain(without_entry) {
        if mark[root] != 0 {
            continue;
        }
        mark[root] = 1;
        let mut way = vec![(root, 0)];
        while let Some((node, next)) = way.last_mut() {
            let Some(&ix) = out[*node].get(*next) else {
                mark[*node] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            let to = graph.edges[ix].to;
            match mark[to] {
                0 => {
                    mark[to] = 1;
                    way.push((to, 0));
                }
                1 => back[ix] = true,
                _ => {}
            }
        }
    }
    back
}

/// Returns the two ends of an edge, the upper one first.
pub(crate) fn edge_ends(graph: &StateGraph, back: &[bool], edge: usize) -> (NodeIndex, NodeIndex) {
    let Some(ends) = graph.edges.get(edge) else { return (START_NODE, START_NODE) };
    if back[edge] { (ends.to, ends.from) } else { (ends.from, ends.to) }
}

fn longest_path_ranks(graph: &StateGraph, back: &[bool]) -> Vec<usize> {
    let nodes = graph.box_contents.len();
    // Only the start marker is in the first row.
    let mut ranks: Vec<usize> = (0..nodes).map(|node| usize::from(node != START_NODE)).collect();
    // Without cycles, the longest path has fewer edges than nodes. The loop therefore converges.
    for _ in 0..nodes {
        let mut settled = true;
        for edge in 0..graph.edges.len() {
            let (upper, lower) = edge_ends(graph, back, edge);
            if ranks[lower] <= ranks[upper] {
                ranks[lower] = ranks[upper] + 1;
                settled = false;
            }
        }
        if settled {
            break;
        }
    }
    ranks
}

/// Moves a state without predecessors down to just above its successors.
fn lower_unentered_states(graph: &StateGraph, back: &[bool], ranks: &mut [usize]) {
    for node in 1..ranks.len() {
        let entered = (0..graph.edges.len()).any(|edge| edge_ends(graph, back, edge).1 == node);
        let below = (0..graph.edges.len())
            .map(|edge| edge_ends(graph, back, edge))
            .filter(|(upper, _)| *upper == node)
            .map(|(_, lower)| ranks[lower])
            .min();
        if let (false, Some(below)) = (entered, below) {
            ranks[node] = ranks[node].max(below - 1);
        }
    }
}

fn spread_leaf_states(graph: &StateGraph, back: &[bool], ranks: &mut [usize], box_width: &[f64], label_width: &[f64]) {
    let has_below: Vec<bool> = (0..ranks.len())
        .map(|node| (0..graph.edges.len()).any(|edge| edge_ends(graph, back, edge).0 == node))
        .collect();
    let labels_of = |node: NodeIndex| -> f64 {
        (0..graph.edges.len())
            .filter(|edge| edge_ends(graph, back, *edge).1 == node)
            .map(|edge| label_width[edge])
            .sum()
    };
    let wanted: Vec<f64> = (0..ranks.len()).map(|node| box_width[node].max(labels_of(node)) + 40.0).collect();
    // Each step moves the overflow of one row down, which may overflow the next row.
    let mut rank = 1;
    while rank <= 2 * ranks.len() {
        let mut used: f64 =
            (1..ranks.len()).filter(|node| ranks[*node] == rank && has_below[*node]).map(|node| wanted[node]).sum();
        let mut kept = used > 0.0;
        for node in 1..ranks.len() {
            if ranks[node] == rank && !has_below[node] {
                // Each row keeps at least one box; otherwise a box wider than the row would move down forever.
                if kept && used + wanted[node] > MAX_ROW_WIDTH {
                    ranks[node] += 1;
                } else {
                    used += wanted[node];
                    kept = true;
                }
            }
        }
        rank += 1;
    }
}
