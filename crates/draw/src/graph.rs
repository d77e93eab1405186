//! Builds the nodes and edges of a diagram and the texts in and on them.

use std::collections::BTreeMap;

use crate::labels::{TransitionLabel, TriggerKind, transition_label};
use onceward_core::model::{EventDef, EventKind, Lifecycle, StateIndex};

/// Index of a node. 0 is the start marker; the node of a state is the state's index plus 1.
pub(crate) type NodeIndex = usize;
pub(crate) const START_NODE: NodeIndex = 0;

/// Readers cannot follow more edges, and the cost of the layout grows with them. Further transitions are listed in the
/// box of the state they leave.
const MAX_EDGES: usize = 120;
/// Maximum transitions listed on one edge. The rest is counted.
pub(crate) const MAX_TRANSITIONS_ON_EDGE: usize = 8;
/// Maximum transitions listed in one box. The rest is counted.
pub(crate) const MAX_TRANSITIONS_IN_BOX: usize = 16;

#[derive(Debug)]
pub(crate) struct StateGraph {
    /// By node. The start marker has no contents.
    pub(crate) box_contents: Vec<BoxContents>,
    pub(crate) edges: Vec<StateEdge>,
    /// Edges that a record takes if nothing fails, in order.
    pub(crate) main_path: Vec<usize>,
}

/// The transitions listed in a state's box.
#[derive(Debug, Default)]
pub(crate) struct BoxContents {
    pub(crate) transitions: Vec<BoxTransition>,
    pub(crate) omitted: usize,
}

#[derive(Debug)]
pub(crate) struct BoxTransition {
    pub(crate) label: TransitionLabel,
    /// Target state, if the transition re-enters the state, or leaves it and has no edge because of [`MAX_EDGES`].
    pub(crate) to: Option<StateIndex>,
}

/// All transitions from one state to another.
#[derive(Debug)]
pub(crate) struct StateEdge {
    pub(crate) from: NodeIndex,
    pub(crate) to: NodeIndex,
    pub(crate) labels: Vec<TransitionLabel>,
    pub(crate) omitted: usize,
    /// Rank of the edge as a part of the main path. Lower is better.
    main_path_rank: (u8, usize),
}

impl StateEdge {
    /// Returns the trigger of the transitions, or `None` if they differ.
    pub(crate) fn trigger(&self) -> Option<TriggerKind> {
        let first = self.labels.first()?.trigger;
        self.labels.iter().all(|row| row.trigger == first).then_some(first)
    }
}

pub(crate) fn state_node(state: StateIndex) -> NodeIndex {
    usize::from(state) + 1
}

pub(crate) fn build_graph(lifecycle: &Lifecycle) -> StateGraph {
    let mut graph = StateGraph {
        box_contents: std::iter::repeat_with(BoxContents::default).take(lifecycle.states.len() + 1).collect(),
        edges: Vec::new(),
        main_path: Vec::new(),
    };
    let mut by_ends = BTreeMap::new();
    let mut count = 0;
    for event in &lifecycle.events {
        for index in 0..event.transitions.len() {
            count += 1;
            graph.add_transition(lifecycle, event, index, count, &mut by_ends);
        }
    }
    graph.main_path = graph.find_main_path(lifecycle);
    graph
}

impl StateGraph {
    fn add_transition(
        &mut self,
        lifecycle: &Lifecycle,
        event: &EventDef,
        index: usize,
        order: usize,
        by_ends: &mut BTreeMap<(NodeIndex, NodeIndex), usize>,
    ) {
        let row = &event.transitions[index];
        let exists = |state: &StateIndex| usize::from(*state) < lifecycle.states.len();
        let to = row.to.filter(exists);
        let mut from: Vec<Option<StateIndex>> = row.from.iter().filter(exists).map(Some).collect();
        if from.is_empty() && event.kind == EventKind::Create {
            from.push(None);
        }
        for from in from {
            let start = from.map_or(START_NODE, state_node);
            let target = to.filter(|to| Some(*to) != from);
            let edge = target.map(|to| (start, state_node(to))).filter(|ends| {
                // Creation always gets an edge, because the start marker has no box to list it in.
                by_ends.contains_key(ends) || by_ends.len() < MAX_EDGES || start == START_NODE
            });
            if let Some((from_node, to_node)) = edge {
                let standing = (event_rank(event.kind), order);
                let edges = &mut self.edges;
                let ix = *by_ends.entry((from_node, to_node)).or_insert_with(|| {
                    edges.push(StateEdge {
                        from: from_node,
                        to: to_node,
                        labels: Vec::new(),
                        omitted: 0,
                        main_path_rank: standing,
                    });
                    edges.len() - 1
                });
                let edge = &mut edges[ix];
                edge.main_path_rank = edge.main_path_rank.min(standing);
                if edge.labels.len() < MAX_TRANSITIONS_ON_EDGE {
                    edge.labels.push(transition_label(lifecycle, event, index, from));
                } else {
                    edge.omitted += 1;
                }
            } else {
                let inside = &mut self.box_contents[start];
                if inside.transitions.len() < MAX_TRANSITIONS_IN_BOX {
                    inside
                        .transitions
                        .push(BoxTransition { label: transition_label(lifecycle, event, index, from), to });
                } else {
                    inside.omitted += 1;
                }
            }
        }
    }

    /// Follows the best edge from the start until a state has none or was already visited.
    fn find_main_path(&self, lifecycle: &Lifecycle) -> Vec<usize> {
        let mut seen = vec![false; self.box_contents.len()];
        let mut at = START_NODE;
        let mut path = Vec::new();
        loop {
            seen[at] = true;
            let next = self
                .edges
                .iter()
                .enumerate()
                .filter(|(_, edge)| edge.from == at && !seen[edge.to])
                .min_by_key(|(_, edge)| edge.main_path_rank);
            let Some((ix, edge)) = next else { return path };
            path.push(ix);
            at = edge.to;
            if lifecycle.states[at - 1].is_final {
                return path;
            }
        }
    }
}

fn event_rank(kind: EventKind) -> u8 {
    match kind {
        EventKind::Create | EventKind::Lease => 0,
        EventKind::Commit => 1,
        EventKind::Finish => 2,
        EventKind::Called => 3,
        EventKind::Time | EventKind::Enter => 4,
        EventKind::Fail => 5,
    }
}
