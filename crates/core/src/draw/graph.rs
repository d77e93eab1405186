//! Which nodes and edges a picture has, and what stands in and on them.

use std::collections::BTreeMap;

use super::words::{Said, Tone, said};
use crate::model::{Event, EventKind, Lifecycle, StateIx};

/// Number of a node: 0 is the start marker, a state is one more than its index.
pub(super) type NodeIx = usize;
pub(super) const START: NodeIx = 0;

/// More edges than this nobody can follow, and the work of the layout grows with them. What does not fit is told in
/// the box of the state that is left.
const EDGES: usize = 120;
/// Rows told on one edge; the rest is counted.
pub(super) const ROWS_ON_EDGE: usize = 8;
/// Rows told in one box; the rest is counted.
pub(super) const ROWS_IN_BOX: usize = 16;

#[derive(Debug)]
pub(super) struct Graph {
    /// By node; the start marker's is empty.
    pub(super) inside: Vec<Inside>,
    pub(super) edges: Vec<Edge>,
    /// Edges of the way that a record takes if all goes well, in order.
    pub(super) main: Vec<usize>,
}

/// The rows told in a state's box.
#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) rows: Vec<InsideRow>,
    pub(super) more: usize,
}

#[derive(Debug)]
pub(super) struct InsideRow {
    pub(super) said: Said,
    /// Where it goes, if it leaves the state after all (only where there are too many edges to draw) or enters it anew.
    pub(super) to: Option<StateIx>,
}

/// All rows from one state to another.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: NodeIx,
    pub(super) to: NodeIx,
    pub(super) rows: Vec<Said>,
    pub(super) more: usize,
    /// How well the edge fits the way on which all goes well; less is better.
    standing: (u8, usize),
}

impl Edge {
    /// The tone of its rows; `None` where there are several.
    pub(super) fn tone(&self) -> Option<Tone> {
        let first = self.rows.first()?.tone;
        self.rows.iter().all(|row| row.tone == first).then_some(first)
    }
}

pub(super) fn node(state: StateIx) -> NodeIx {
    usize::from(state) + 1
}

pub(super) fn graph(lifecycle: &Lifecycle) -> Graph {
    let mut graph = Graph {
        inside: std::iter::repeat_with(Inside::default).take(lifecycle.states.len() + 1).collect(),
        edges: Vec::new(),
        main: Vec::new(),
    };
    let mut by_ends = BTreeMap::new();
    let mut count = 0;
    for event in &lifecycle.events {
        for at in 0..event.rows.len() {
            count += 1;
            graph.add(lifecycle, event, at, count, &mut by_ends);
        }
    }
    graph.main = graph.main_way(lifecycle);
    graph
}

impl Graph {
    fn add(
        &mut self,
        lifecycle: &Lifecycle,
        event: &Event,
        at: usize,
        count: usize,
        by_ends: &mut BTreeMap<(NodeIx, NodeIx), usize>,
    ) {
        let row = &event.rows[at];
        let exists = |state: &StateIx| usize::from(*state) < lifecycle.states.len();
        let to = row.to.filter(exists);
        let mut from: Vec<Option<StateIx>> = row.from.iter().filter(exists).map(Some).collect();
        if from.is_empty() && event.kind == EventKind::Create {
            from.push(None);
        }
        for from in from {
            let start = from.map_or(START, node);
            let target = to.filter(|to| Some(*to) != from);
            let edge = target.map(|to| (start, node(to))).filter(|ends| {
                // Creation is always drawn: its start marker has no box to tell it in.
                by_ends.contains_key(ends) || by_ends.len() < EDGES || start == START
            });
            if let Some((from_node, to_node)) = edge {
                let standing = (standing(event.kind), count);
                let edges = &mut self.edges;
                let ix = *by_ends.entry((from_node, to_node)).or_insert_with(|| {
                    edges.push(Edge { from: from_node, to: to_node, rows: Vec::new(), more: 0, standing });
                    edges.len() - 1
                });
                let edge = &mut edges[ix];
                edge.standing = edge.standing.min(standing);
                if edge.rows.len() < ROWS_ON_EDGE {
                    edge.rows.push(said(lifecycle, event, at, from));
                } else {
                    edge.more += 1;
                }
            } else {
                let inside = &mut self.inside[start];
                if inside.rows.len() < ROWS_IN_BOX {
                    inside.rows.push(InsideRow { said: said(lifecycle, event, at, from), to });
                } else {
                    inside.more += 1;
                }
            }
        }
    }

    /// From the start by the best edge each time, until a state ends or was seen.
    fn main_way(&self, lifecycle: &Lifecycle) -> Vec<usize> {
        let mut seen = vec![false; self.inside.len()];
        let mut at = START;
        let mut way = Vec::new();
        loop {
            seen[at] = true;
            let next = self
                .edges
                .iter()
                .enumerate()
                .filter(|(_, edge)| edge.from == at && !seen[edge.to])
                .min_by_key(|(_, edge)| edge.standing);
            let Some((ix, edge)) = next else { return way };
            way.push(ix);
            at = edge.to;
            if lifecycle.states[at - 1].is_final {
                return way;
            }
        }
    }
}

fn standing(kind: EventKind) -> u8 {
    match kind {
        EventKind::Create | EventKind::Lease => 0,
        EventKind::Commit => 1,
        EventKind::Finish => 2,
        EventKind::Called => 3,
        EventKind::Time | EventKind::Enter => 4,
        EventKind::Fail => 5,
    }
}
