//! Nothing overlaps, nothing sticks out, edges keep clear of what is not theirs.

use super::sample::{random, shipped};
use crate::draw::legend::{SIGN, Sign};
use crate::draw::route::Rect;
use crate::draw::scene::{Scene, scene};
use crate::model::Lifecycle;

fn overlap(a: &Rect, b: &Rect) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

fn inside(inner: &Rect, width: f64, height: f64) -> bool {
    inner.x >= -0.1 && inner.y >= -0.1 && inner.x + inner.width <= width + 0.1 && inner.y + inner.height <= height + 0.1
}

/// What is wrong with a picture, in words.
fn faults(scene: &Scene) -> Vec<String> {
    let mut faults = Vec::new();
    let routed = &scene.routed;
    let mut taken: Vec<(String, Rect)> = Vec::new();
    taken.extend(routed.boxes.iter().map(|(node, rect)| (format!("box {node}"), *rect)));
    taken.extend(routed.labels.iter().map(|label| (format!("label {}", label.edge), label.rect)));
    for (ix, (name, rect)) in taken.iter().enumerate() {
        for (other, taken) in &taken[ix + 1..] {
            if overlap(rect, taken) {
                faults.push(format!("{name} overlaps {other}"));
            }
        }
        if !inside(rect, routed.width, routed.height) {
            faults.push(format!("{name} sticks out"));
        }
    }
    for (edge, wire) in routed.wires.iter().enumerate() {
        // Curves stay between the ends of the straight pieces they join.
        let mut pieces: Vec<Rect> = Vec::new();
        for (x, top, bottom) in wire.straights.iter().filter(|(_, top, bottom)| bottom - top > 0.4) {
            pieces.push(Rect { x: *x, y: top + 0.2, width: 0.0, height: (bottom - top - 0.4).max(0.0) });
        }
        for pair in wire.straights.windows(2) {
            let ((x, _, from), (to_x, to, _)) = (pair[0], pair[1]);
            if from > to + 0.1 {
                faults.push(format!("edge {edge} turns back"));
            }
            pieces.push(Rect {
                x: x.min(to_x),
                y: from + 0.2,
                width: (x - to_x).abs(),
                height: (to - from - 0.4).max(0.0),
            });
        }
        for piece in &pieces {
            for (name, rect) in &taken {
                if overlap(piece, rect) {
                    faults.push(format!("edge {edge} runs through {name}"));
                }
            }
            if !inside(piece, routed.width, routed.height) {
                faults.push(format!("edge {edge} sticks out"));
            }
        }
    }
    for label in &routed.labels {
        let wire = &routed.wires[label.edge];
        let side = if label.left_of_edge { label.rect.x + label.rect.width } else { label.rect.x };
        let near = wire.straights.iter().any(|(x, top, bottom)| {
            (x - side).abs() < 12.0 && *top <= label.rect.y + 0.1 && *bottom >= label.rect.y + label.rect.height - 0.1
        });
        if !near {
            faults.push(format!("label {} is away from its edge", label.edge));
        }
    }
    faults.extend(text_faults(scene));
    let (x, y) = scene.drawing;
    let drawing = Rect { x, y, width: routed.width, height: routed.height };
    if !inside(&drawing, scene.width, scene.legend_top) {
        faults.push("the drawing runs into the legend".to_owned());
    }
    for item in &scene.legend {
        let sign = if item.sign == Sign::Words { 0.0 } else { SIGN };
        let (x, y) = (28.0 + item.x, scene.legend_top + item.y);
        let rect = Rect { x, y, width: item.line.width + sign, height: 18.0 };
        if !inside(&rect, scene.width, scene.height) {
            faults.push("the legend sticks out".to_owned());
        }
    }
    faults
}

/// Words fit the room that was measured for them.
fn text_faults(scene: &Scene) -> Vec<String> {
    let mut faults = Vec::new();
    let plates =
        scene.plates.boxes.iter().map(|plate| (plate, 24.0)).chain(scene.plates.labels.iter().map(|p| (p, 0.0)));
    for (plate, padding) in plates {
        let lines = plate.head.iter().chain(plate.rows.iter().flat_map(|group| &group.lines));
        for line in lines {
            if line.width + padding > plate.width + 0.1 || line.baseline > plate.height {
                faults.push(format!("a line of {} does not fit {}: {:?}", line.width, plate.width, line.runs));
            }
        }
    }
    faults
}

fn assert_sound(name: &str, lifecycle: &Lifecycle) -> Scene {
    let scene = scene(lifecycle);
    let faults = faults(&scene);
    assert!(faults.is_empty(), "{name}: {faults:#?}");
    scene
}

#[test]
fn real_lifecycles_are_drawn_without_overlap_and_fit_a_page() {
    let mut large = Vec::new();
    for lifecycle in shipped() {
        let name = &lifecycle.name;
        let scene = assert_sound(name, &lifecycle);
        // Every state of a claim leads to nearly every other, and each arrow says who may.
        let (wide, high) = if **name == *"mesh.claim" { (1_850.0, 2_450.0) } else { (1_200.0, 1_400.0) };
        if scene.width > wide || scene.height > high {
            large.push(format!("{name}: {} wide, {} high", scene.width, scene.height));
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn the_main_way_runs_straight() {
    for lifecycle in shipped() {
        let name = &lifecycle.name;
        let graph = crate::draw::graph::graph(&lifecycle);
        let scene = scene(&lifecycle);
        let xs: Vec<f64> =
            graph.main.iter().flat_map(|edge| scene.routed.wires[*edge].straights.iter().map(|(x, ..)| *x)).collect();
        assert!(xs.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 0.2), "{name}: {xs:?}");
    }
}

#[test]
fn random_lifecycles_are_drawn_without_overlap() {
    for seed in 0..40 {
        let size = 1 + usize::try_from(seed).expect("small") % 14;
        assert_sound(&format!("seed {seed}"), &random(seed, size, size * 3));
    }
}

#[test]
fn the_largest_lifecycles_are_drawn_without_overlap() {
    for seed in 0..3 {
        assert_sound(&format!("seed {seed}"), &random(seed, 64, 1_000));
        assert_sound(&format!("seed {seed}"), &random(seed, 64, 100));
    }
}
