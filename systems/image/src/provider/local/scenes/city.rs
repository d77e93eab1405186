//! Scene: houses against the sky, with their lights reflected in the water.

use super::super::canvas::{Canvas, CanvasRect};
use super::super::color::OklabColor;
use super::super::noise::GradientNoise;
use super::super::palette::SkyPalette;
use super::super::portable_math::{lerp, smoothstep};
use super::super::rng::PromptRng;
use super::sky::{self, SunPosition};

pub(super) fn paint(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng) {
    let shore = rng.range(0.70, 0.78);
    let sun = SunPosition { x: rng.range(0.2, 0.8), y: rng.range(0.18, 0.36), radius: rng.range(0.05, 0.10) };
    sky::paint(canvas, sky, rng, shore, sun);
    let middle = rng.range(0.3, 0.7);
    for row in 0..4 {
        paint_house_row(canvas, sky, rng, f64::from(row) / 3.0, shore, middle);
    }
    let ripples = GradientNoise::new(rng);
    canvas.paint_reflection(shore, sky.near.mix(sky.middle, 0.35), |x, depth| {
        ripples.fractal(x * 7.0, 0.6 / (depth + 0.04) * 5.0, 3)
    });
    let quay = CanvasRect { left: 0.0, top: shore - 0.004, right: 1.0, bottom: shore + 0.004 };
    canvas.fill_rect(quay, sky.near.lighten(-0.03), 1.0);
}

/// Paints a row of houses, highest around the middle of the city.
fn paint_house_row(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, near: f64, shore: f64, middle: f64) {
    let outline = GradientNoise::new(rng);
    let shift = rng.range(0.0, 50.0);
    let body = sky.land_color(0.10 + 0.80 * near);
    let mut x = -rng.range(0.0, 0.05);
    while x < 1.0 {
        let width = rng.range(0.035, 0.075) * lerp(0.8, 1.25, near);
        let off = (x + width / 2.0 - middle).abs();
        let centre = 1.0 - smoothstep(0.0, 0.6, off);
        let rise = 0.5 + 0.5 * outline.sample(x * 7.0, shift);
        let high = lerp(0.16, 0.09, near) + (0.10 + 0.30 * centre) * rise * lerp(1.0, 0.42, near);
        let area = CanvasRect { left: x, top: shore - high, right: x + width, bottom: shore };
        let color = body.lighten(rng.range(-0.025, 0.025));
        paint_house(canvas, sky, rng, area, near, color);
        x += width + if rng.one_in(4) { rng.range(0.0, 0.03) } else { 0.0 };
    }
}

fn paint_house(
    canvas: &mut Canvas,
    sky: &SkyPalette,
    rng: &mut PromptRng,
    area: CanvasRect,
    near: f64,
    color: OklabColor,
) {
    let width = area.right - area.left;
    let middle = f64::midpoint(area.left, area.right);
    match rng.next_below(6) {
        // A gable.
        0 => canvas
            .fill_triangle([(middle, area.top - width * 0.5), (area.right, area.top), (area.left, area.top)], color),
        // A mast.
        1 => canvas.draw_stroke((middle, area.top - width * 1.1), (middle, area.top), (0.0012, 0.002), color, 1.0),
        // A smaller story on top.
        2 => {
            let inset = width * 0.22;
            let upper =
                CanvasRect { left: area.left + inset, right: area.right - inset, top: area.top - width * 0.4, ..area };
            canvas.fill_rect(upper, color, 1.0);
        }
        _ => {}
    }
    let bottom = sky.bottom;
    let edge = canvas.edge_smoothing();
    let high = area.bottom - area.top;
    canvas.paint_rect(area, |x, y| {
        let cover =
            edge.coverage((area.left - x).max(x - area.right)) * edge.coverage((area.top - y).max(y - area.bottom));
        let misty = (0.5 - 0.42 * near) * smoothstep(0.2, 1.0, (y - area.top) / high);
        // Lighting one side is enough to make houses look solid.
        let lit = lerp(0.018, -0.018, (x - area.left) / width);
        (color.lighten(lit).mix(bottom, misty), cover)
    });
    if near > 0.3 {
        paint_windows(canvas, sky, rng, area, near);
    }
}

fn paint_windows(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, area: CanvasRect, near: f64) {
    let dark = sky.mood.is_dark();
    let lamp = sky.sun.mix(OklabColor { lightness: 0.86, a: 0.03, b: 0.13 }, 0.75);
    let pane = sky.land_color(0.10 + 0.80 * near).mix(sky.middle, 0.35);
    let columns = 2 + rng.next_below(3);
    let pitch = (area.right - area.left) / (columns as f64 + 0.5);
    let (wide, high) = (pitch * 0.46, pitch * 0.62);
    let lived_in = if dark { rng.range(0.25, 0.7) } else { 0.12 };
    let mut y = area.top + pitch * 0.7;
    while y + high < area.bottom - 0.012 {
        for column in 0..columns {
            let x = area.left + pitch * (column as f64 + 0.52);
            let window = CanvasRect { left: x, top: y, right: x + wide, bottom: y + high };
            let (lit, strength) = (rng.next_f64() < lived_in, rng.range(0.55, 1.0));
            match (lit, dark) {
                (true, _) => canvas.fill_rect(window, lamp, strength),
                (false, false) => canvas.fill_rect(window, pane, 0.6 * strength),
                (false, true) => {}
            }
        }
        y += pitch * 1.15;
    }
}
