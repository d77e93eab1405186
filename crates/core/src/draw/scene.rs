//! The steps put together: the whole picture with title and legend, before it becomes text.

use std::collections::BTreeSet;

use super::graph::{Graph, graph};
use super::layers::{Layers, layers};
use super::legend::{Item, legend};
use super::order::order;
use super::place::{Places, places};
use super::plate::{Line, Plates, plates, stack, wrapped};
use super::rank::ranks;
use super::route::{Routed, round, route};
use crate::model::Lifecycle;

pub(super) const MARGIN: f64 = 28.0;
/// The title's lines may be this long, even above a narrow picture.
const TITLE_WIDTH: f64 = 560.0;
/// Widths for rows of words, each tried with several orders; the picture that is easiest to read is drawn. The narrower,
/// the more words stand away from the state that their edge leaves: that has its price.
const ROW_WIDTHS: [(f64, f64); 3] = [(900.0, 0.0), (450.0, 200.0), (250.0, 400.0)];
const BEFORE_LEGEND: f64 = 26.0;

/// The whole picture, with title and legend; everything lies within `width` and `height`.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) routed: Routed,
    pub(super) plates: Plates,
    pub(super) title: Vec<Line>,
    pub(super) legend: Vec<Item>,
    /// Where the drawing and the legend begin.
    pub(super) drawing: (f64, f64),
    pub(super) legend_top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) fn scene(lifecycle: &Lifecycle) -> Scene {
    let graph = graph(lifecycle);
    let plates = plates(lifecycle, &graph);
    let routed = routed(&graph, &plates);
    let mut title = wrapped("title", &lifecycle.name, TITLE_WIDTH, 2);
    title.extend(wrapped("intro", &lifecycle.about, TITLE_WIDTH.max(routed.width), 4));
    let title_end = stack(&mut title, MARGIN - 6.0);
    let title_width = title.iter().map(|line| line.width).fold(0.0, f64::max);
    let inner = routed.width.max(title_width).max(TITLE_WIDTH);
    let (legend, legend_height) = legend(lifecycle, &graph, inner);
    let top = title_end + 18.0;
    let legend_top = top + routed.height + BEFORE_LEGEND;
    Scene {
        drawing: (round(MARGIN + (inner - routed.width) / 2.0), round(top)),
        legend_top: round(legend_top),
        width: round(inner + 2.0 * MARGIN).ceil(),
        height: round(legend_top + legend_height + MARGIN - 8.0).ceil(),
        routed,
        plates,
        title,
        legend,
    }
}

fn routed(graph: &Graph, plates: &Plates) -> Routed {
    let box_widths: Vec<f64> = plates.boxes.iter().map(|plate| plate.width).collect();
    let label_widths: Vec<f64> = plates.labels.iter().map(|plate| plate.width).collect();
    let ranks = ranks(graph, &box_widths, &label_widths);
    let mut best: Option<(f64, Layers, Places)> = None;
    let mut tried: BTreeSet<(Vec<usize>, Vec<Vec<usize>>)> = BTreeSet::new();
    for (row_width, price) in ROW_WIDTHS {
        let layers = layers(graph, &ranks, plates, row_width);
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
            let crossings = order(&mut layers, attempt);
            if !tried.insert((label_rows.clone(), layers.rows.clone())) {
                continue;
            }
            layers.turn_labels_outward();
            let placed = places(&layers);
            let cost = price + placed.cost(&layers, crossings);
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, layers, placed));
            }
        }
    }
    best.map_or_else(Routed::default, |(_, layers, placed)| route(graph, &layers, &placed, plates, &ranks.back))
}
