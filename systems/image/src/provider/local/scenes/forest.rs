//! Scene: firs on misty slopes.

use super::super::canvas::{Canvas, CanvasRect};
use super::super::color::OklabColor;
use super::super::palette::{LightMood, SkyPalette};
use super::super::portable_math::smoothstep;
use super::super::rng::PromptRng;
use super::hills::{HillRidge, RidgeShape};
use super::sky::{self, SunPosition};

pub(super) fn paint(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng) {
    let horizon = rng.range(0.46, 0.54);
    let sun = SunPosition { x: rng.range(0.2, 0.8), y: rng.range(0.18, 0.36), radius: rng.range(0.05, 0.09) };
    sky::paint(canvas, sky, rng, horizon + 0.12, sun);
    let rows = 5;
    for row in 0..rows {
        let near = f64::from(row) / f64::from(rows - 1);
        let shape = RidgeShape { near, horizon, hills_per_width: 1.9 - 0.6 * near, height: 0.05 + 0.035 * near };
        let slope = HillRidge::new(shape, sky, rng);
        let high = 0.05 + 0.19 * near * near;
        let mut x = -high * rng.next_f64();
        while x < 1.04 {
            let size = high * rng.range(0.6, 1.15);
            let color = tree_color(sky, near, rng);
            paint_fir(canvas, (x, slope.top_at(x) + high * 0.08), size, color, sky.mood == LightMood::Winter);
            // Leave a clearing now and then.
            x += size * rng.range(0.16, 0.40) + if rng.one_in(9) { size * 0.7 } else { 0.0 };
        }
        // The slope hides the base of its trees.
        slope.paint(canvas, sky);
    }
}

fn tree_color(sky: &SkyPalette, near: f64, rng: &mut PromptRng) -> OklabColor {
    sky.land_color(near).lighten(rng.range(-0.018, 0.03))
}

/// Paints a fir from its base up: boughs in tiers, each wider than the one above.
fn paint_fir(canvas: &mut Canvas, (x, foot): (f64, f64), size: f64, color: OklabColor, is_snowy: bool) {
    let top = foot - size;
    let half = size * 0.21;
    let edge = canvas.edge_smoothing();
    let tiers = 5.0;
    let area = CanvasRect { left: x - half, top, right: x + half, bottom: foot };
    let white = color.lighten(0.42);
    canvas.paint_rect(area, |px, py| {
        let down = ((py - top) / size).clamp(0.0, 1.0);
        let tier = down * tiers;
        let within = tier - tier.floor();
        let width = half * (0.08 + 0.92 * down) * (0.58 + 0.42 * within);
        let away = (px - x).abs();
        // Snow lies on the upper part of each tier and thins out toward the ends of the boughs.
        let snow = if is_snowy {
            0.75 * (1.0 - smoothstep(0.0, 0.6, within)) * smoothstep(0.0, 0.5, away / width + 0.2)
        } else {
            0.0
        };
        let bough = color.mix(white, snow);
        // One side is slightly lighter.
        (bough.lighten(if px < x { 0.012 } else { -0.012 }), edge.coverage((away - width) * 0.9))
    });
}
