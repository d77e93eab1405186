//! The sky of a scene: a gradient, the sun or the moon, clouds by day and stars by night.

use super::super::canvas::{Canvas, CanvasRect};
use super::super::color::OklabColor;
use super::super::noise::GradientNoise;
use super::super::palette::{LightMood, SkyPalette};
use super::super::portable_math::smoothstep;
use super::super::rng::PromptRng;

/// Position and size of the sun or moon.
#[derive(Clone, Copy, Debug)]
pub(super) struct SunPosition {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) radius: f64,
}

/// Paints the whole canvas as sky down to the horizon; the rest of the scene is painted over it.
pub(super) fn paint(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, horizon: f64, sun: SunPosition) {
    let clouds = GradientNoise::new(rng);
    let cover = if sky.mood.is_dark() { rng.range(0.05, 0.2) } else { rng.range(0.2, 0.6) };
    let lowest = rng.range(-0.05, 0.2);
    let bright = sky.bottom.mix(sky.sun, 0.5);
    canvas.fill(|x, y| {
        let mut color = gradient_color(sky, y / horizon);
        let (dx, dy) = (x - sun.x, y - sun.y);
        let away = (dx * dx + dy * dy).sqrt();
        let near = 1.0 / (1.0 + (away / 0.16) * (away / 0.16));
        color = color.mix(sky.sun, near * if sky.mood.is_dark() { 0.22 } else { 0.45 });
        // Clouds are wider than high, and thin out toward the horizon.
        let cloud = clouds.fractal(x * 2.4 + y * 0.8, y * 9.0, 5);
        let there = smoothstep(lowest, lowest + 0.55, cloud) * cover * smoothstep(0.0, 0.35, horizon - y);
        color.mix(bright, there)
    });
    if sky.mood.is_dark() {
        paint_stars(canvas, sky, rng, horizon);
    }
    paint_sun(canvas, sky, rng, sun);
}

/// Returns the sky's color from the top, 0, to the bottom, 1.
pub(super) fn gradient_color(sky: &SkyPalette, fraction: f64) -> OklabColor {
    let part = fraction.clamp(0.0, 1.0);
    if part < 0.55 {
        sky.top.mix(sky.middle, smoothstep(0.0, 0.62, part) * 1.02)
    } else {
        lower_gradient_color(sky, part)
    }
}

fn lower_gradient_color(sky: &SkyPalette, fraction: f64) -> OklabColor {
    let start = sky.top.mix(sky.middle, smoothstep(0.0, 0.62, 0.55) * 1.02);
    start.mix(sky.bottom, smoothstep(0.50, 1.0, fraction).max((fraction - 0.55) / 0.45 * 0.6))
}

fn paint_stars(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, horizon: f64) {
    let count = if sky.mood == LightMood::Night { 170 } else { 60 };
    for _ in 0..count {
        let (x, y) = (rng.next_f64(), rng.next_f64() * horizon);
        let (size, light) = (rng.next_f64(), rng.range(0.35, 1.0));
        let fade = 1.0 - smoothstep(0.3, 1.0, y / horizon);
        canvas.fill_disc((x, y), 0.0009 + 0.0016 * size * size * size, sky.sun, light * fade);
    }
}

fn paint_sun(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, sun: SunPosition) {
    let center = (sun.x, sun.y);
    canvas.paint_glow(center, sun.radius * 5.0, sky.sun, 0.55);
    // Half of the moons are crescents.
    let crescent = sky.mood == LightMood::Night && rng.one_in(2);
    let bite = (sun.x + sun.radius * rng.range(0.35, 0.6), sun.y - sun.radius * 0.25);
    let edge = canvas.edge_smoothing();
    let behind = canvas.clone();
    canvas.paint_rect(CanvasRect::square_around(sun.x, sun.y, sun.radius), |x, y| {
        let away = |(cx, cy): (f64, f64)| ((x - cx) * (x - cx) + (y - cy) * (y - cy)).sqrt();
        let full = edge.coverage(away(center) - sun.radius);
        let dark = if crescent { edge.coverage(away(bite) - sun.radius * 0.92) } else { 0.0 };
        (sky.sun.mix(behind.sample(x, y), dark), full)
    });
}
