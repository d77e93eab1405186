//! Tests that nothing overlaps or leaves the canvas, and that edges avoid foreign boxes and labels.

use super::lifecycles::{random_lifecycle, shipped_lifecycles};
use crate::legend::{LegendSymbol, SYMBOL_WIDTH};
use crate::route::PixelRect;
use crate::scene::{DiagramScene, build_scene};
use onceward_core::model::Lifecycle;

fn overlaps(a: &PixelRect, b: &PixelRect) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

fn is_inside(inner: &PixelRect, width: f64, height: f64) -> bool {
    inner.x >= -0.1 && inner.y >= -0.1 && inner.x + inner.width <= width + 0.1 && inner.y + inner.height <= height + 0.1
}

/// Returns the layout faults of a diagram.
fn layout_faults(scene: &DiagramScene) -> Vec<String> {
    let mut faults = Vec::new();
    let routed = &scene.routed_graph;
    let mut taken: Vec<(String, PixelRect)> = Vec::new();
    taken.extend(routed.boxes.iter().map(|(node, rect)| (format!("box {node}"), *rect)));
    taken.extend(routed.labels.iter().map(|label| (format!("label {}", label.edge), label.rect)));
    for (ix, (name, rect)) in taken.iter().enumerate() {
        for (other, taken) in &taken[ix + 1..] {
            if overlaps(rect, taken) {
                faults.push(format!("{name} overlaps {other}"));
            }
        }
        if !is_inside(rect, routed.width, routed.height) {
            faults.push(format!("{name} sticks out"));
        }
    }
    for (edge, wire) in routed.edge_paths.iter().enumerate() {
        // Curves stay between the ends of the straight pieces they join.
        let mut pieces: Vec<PixelRect> = Vec::new();
        for (x, top, bottom) in wire.straights.iter().filter(|(_, top, bottom)| bottom - top > 0.4) {
            pieces.push(PixelRect { x: *x, y: top + 0.2, width: 0.0, height: (bottom - top - 0.4).max(0.0) });
        }
        for pair in wire.straights.windows(2) {
            let ((x, _, from), (to_x, to, _)) = (pair[0], pair[1]);
            if from > to + 0.1 {
                faults.push(format!("edge {edge} turns back"));
            }
            pieces.push(PixelRect {
                x: x.min(to_x),
                y: from + 0.2,
                width: (x - to_x).abs(),
                height: (to - from - 0.4).max(0.0),
            });
        }
        for piece in &pieces {
            for (name, rect) in &taken {
                if overlaps(piece, rect) {
                    faults.push(format!("edge {edge} runs through {name}"));
                }
            }
            if !is_inside(piece, routed.width, routed.height) {
                faults.push(format!("edge {edge} sticks out"));
            }
        }
    }
    for label in &routed.labels {
        let wire = &routed.edge_paths[label.edge];
        let side = if label.left_of_edge { label.rect.x + label.rect.width } else { label.rect.x };
        let near = wire.straights.iter().any(|(x, top, bottom)| {
            (x - side).abs() < 12.0 && *top <= label.rect.y + 0.1 && *bottom >= label.rect.y + label.rect.height - 0.1
        });
        if !near {
            faults.push(format!("label {} is away from its edge", label.edge));
        }
    }
    faults.extend(text_overflow_faults(scene));
    let (x, y) = scene.drawing_origin;
    let drawing = PixelRect { x, y, width: routed.width, height: routed.height };
    if !is_inside(&drawing, scene.width, scene.legend_top) {
        faults.push("the drawing runs into the legend".to_owned());
    }
    for item in &scene.legend {
        let sign = if item.symbol == LegendSymbol::TextOnly { 0.0 } else { SYMBOL_WIDTH };
        let (x, y) = (28.0 + item.x, scene.legend_top + item.y);
        let rect = PixelRect { x, y, width: item.line.width + sign, height: 18.0 };
        if !is_inside(&rect, scene.width, scene.height) {
            faults.push("the legend sticks out".to_owned());
        }
    }
    faults
}

/// Returns the lines that exceed their block.
fn text_overflow_faults(scene: &DiagramScene) -> Vec<String> {
    let mut faults = Vec::new();
    let plates =
        scene.blocks.boxes.iter().map(|plate| (plate, 24.0)).chain(scene.blocks.labels.iter().map(|p| (p, 0.0)));
    for (plate, padding) in plates {
        let lines = plate.head.iter().chain(plate.groups.iter().flat_map(|group| &group.lines));
        for line in lines {
            if line.width + padding > plate.width + 0.1 || line.baseline > plate.height {
                faults.push(format!("a line of {} does not fit {}: {:?}", line.width, plate.width, line.runs));
            }
        }
    }
    faults
}

fn assert_no_layout_faults(name: &str, lifecycle: &Lifecycle) -> DiagramScene {
    let scene = build_scene(lifecycle);
    let faults = layout_faults(&scene);
    assert!(faults.is_empty(), "{name}: {faults:#?}");
    scene
}

#[test]
fn shipped_lifecycles_have_no_overlap_and_fit_page() {
    let mut large = Vec::new();
    for lifecycle in shipped_lifecycles() {
        let name = &lifecycle.name;
        let scene = assert_no_layout_faults(name, &lifecycle);
        // Almost every state of a claim leads to every other, and each edge names its callers.
        let (wide, high) = if **name == *"mesh.claim" { (1_850.0, 2_450.0) } else { (1_200.0, 1_400.0) };
        if scene.width > wide || scene.height > high {
            large.push(format!("{name}: {} wide, {} high", scene.width, scene.height));
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn main_path_is_drawn_straight() {
    for lifecycle in shipped_lifecycles() {
        let name = &lifecycle.name;
        let graph = crate::graph::build_graph(&lifecycle);
        let scene = build_scene(&lifecycle);
        let xs: Vec<f64> = graph
            .main_path
            .iter()
            .flat_map(|edge| scene.routed_graph.edge_paths[*edge].straights.iter().map(|(x, ..)| *x))
            .collect();
        assert!(xs.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 0.2), "{name}: {xs:?}");
    }
}

#[test]
fn random_lifecycles_have_no_layout_faults() {
    for seed in 0..40 {
        let size = 1 + usize::try_from(seed).expect("small") % 14;
        assert_no_layout_faults(&format!("seed {seed}"), &random_lifecycle(seed, size, size * 3));
    }
}

#[test]
fn largest_lifecycles_have_no_layout_faults() {
    for seed in 0..3 {
        assert_no_layout_faults(&format!("seed {seed}"), &random_lifecycle(seed, 64, 1_000));
        assert_no_layout_faults(&format!("seed {seed}"), &random_lifecycle(seed, 64, 100));
    }
}
