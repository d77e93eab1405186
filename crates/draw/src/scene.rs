//! Runs the layout steps and assembles the diagram with title and legend.

use std::collections::BTreeSet;

use crate::coordinates::{CellCoordinates, assign_coordinates};
use crate::graph::{StateGraph, build_graph};
use crate::layers::{CellLayers, build_layers};
use crate::legend::{LegendItem, layout_legend};
use crate::order::minimize_crossings;
use crate::rank::assign_ranks;
use crate::route::{RoutedGraph, round_to_tenth, route_edges};
use crate::text_block::{TextBlocks, TextLine, build_text_blocks, stack_lines, wrapped_lines};
use onceward_core::model::Lifecycle;

pub(crate) const SCENE_MARGIN: f64 = 28.0;
/// Maximum width of a title line, even above a narrower diagram.
const TITLE_WIDTH: f64 = 560.0;
/// Label row widths to try, each with its cost. The cheapest layout is drawn. Narrower rows push more labels away from
/// the state that their edge leaves, so they cost more.
const CANDIDATE_ROW_WIDTHS: [(f64, f64); 3] = [(900.0, 0.0), (450.0, 200.0), (250.0, 400.0)];
const LEGEND_GAP: f64 = 26.0;

/// The diagram with title and legend. Everything lies within `width` and `height`.
#[derive(Debug)]
pub(crate) struct DiagramScene {
    pub(crate) routed_graph: RoutedGraph,
    pub(crate) blocks: TextBlocks,
    pub(crate) title: Vec<TextLine>,
    pub(crate) legend: Vec<LegendItem>,
    pub(crate) drawing_origin: (f64, f64),
    pub(crate) legend_top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

pub(crate) fn build_scene(lifecycle: &Lifecycle) -> DiagramScene {
    let graph = build_graph(lifecycle);
    let blocks = build_text_blocks(lifecycle, &graph);
    let routed = choose_layout(&graph, &blocks);
    let mut title = wrapped_lines("title", &lifecycle.name, TITLE_WIDTH, 2);
    title.extend(wrapped_lines("intro", &lifecycle.about, TITLE_WIDTH.max(routed.width), 4));
    let title_end = stack_lines(&mut title, SCENE_MARGIN - 6.0);
    let title_width = title.iter().map(|line| line.width).fold(0.0, f64::max);
    let inner = routed.width.max(title_width).max(TITLE_WIDTH);
    let (legend, legend_height) = layout_legend(lifecycle, &graph, inner);
    let top = title_end + 18.0;
    let legend_top = top + routed.height + LEGEND_GAP;
    DiagramScene {
        drawing_origin: (round_to_tenth(SCENE_MARGIN + (inner - routed.width) / 2.0), round_to_tenth(top)),
        legend_top: round_to_tenth(legend_top),
        width: round_to_tenth(inner + 2.0 * SCENE_MARGIN).ceil(),
        height: round_to_tenth(legend_top + legend_height + SCENE_MARGIN - 8.0).ceil(),
        routed_graph: routed,
        blocks,
        title,
        legend,
    }
}

fn choose_layout(graph: &StateGraph, blocks: &TextBlocks) -> RoutedGraph {
    let box_widths: Vec<f64> = blocks.boxes.iter().map(|plate| plate.width).collect();
    let label_widths: Vec<f64> = blocks.labels.iter().map(|plate| plate.width).collect();
    let ranks = assign_ranks(graph, &box_widths, &label_widths);
    let mut best: Option<(f64, CellLayers, CellCoordinates)> = None;
    let mut tried: BTreeSet<(Vec<usize>, Vec<Vec<usize>>)> = BTreeSet::new();
    for (row_width, penalty) in CANDIDATE_ROW_WIDTHS {
        let layers = build_layers(graph, &ranks, blocks, row_width);
        let label_rows = layers.label_rows();
        if tried.iter().any(|(rows, _)| *rows == label_rows) {
            continue;
        }
        let orders = match layers.cells.len() {
            0..=150 => 36,
            151..=600 => 3,
            _ => 1,
        };
        for attempt in 0..orders {
            let mut layers = layers.clone();
            let crossings = minimize_crossings(&mut layers, attempt);
            if !tried.insert((label_rows.clone(), layers.rows.clone())) {
                continue;
            }
            layers.turn_labels_outward();
            let coordinates = assign_coordinates(&layers);
            let cost = penalty + coordinates.cost(&layers, crossings);
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, layers, coordinates));
            }
        }
    }
    best.map_or_else(RoutedGraph::default, |(_, layers, placed)| {
        route_edges(graph, &layers, &placed, blocks, &ranks.is_back_edge)
    })
}
