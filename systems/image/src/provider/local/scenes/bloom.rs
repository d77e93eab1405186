//! Pattern: one large flower, or a bouquet.

use super::super::canvas::{Canvas, CanvasRect};
use super::super::color::{OklabColor, oklch};
use super::super::palette::InkPalette;
use super::super::portable_math::{cos, lerp, sin, smoothstep};
use super::super::rng::PromptRng;

/// Golden angle, the fraction of a turn between successive seeds in a flower's center.
const GOLDEN_TURN: f64 = 0.381_966;

/// Colors of a flower: its petals from dark to light, and its center.
#[derive(Clone, Copy, Debug)]
struct FlowerColors {
    petals: [OklabColor; 3],
    center: OklabColor,
}

impl FlowerColors {
    /// Chooses the colors from the palette or, if the prompt names no color, as shades of the accent. Shades are never
    /// as green as leaves.
    fn new(inks: &InkPalette, is_free: bool, rng: &mut PromptRng) -> Self {
        let [dark, middle, light, bright] = [0, 1, 2, 3].map(|index| inks.colors[index]);
        let is_leafy = |colour: OklabColor| colour.a < -0.03 && colour.b > -0.02;
        let plain = Self { petals: [dark, middle, light], center: bright };
        let showy = Self {
            petals: [bright.lighten(-0.20), bright, bright.lighten(0.14)],
            center: if is_leafy(light) { oklch(0.86, 0.13, 88.0).to_oklab() } else { light },
        };
        if is_free && (is_leafy(middle) || (!is_leafy(bright) && rng.one_in(2))) { showy } else { plain }
    }

    fn gradient(self, fraction: f64) -> OklabColor {
        let place = fraction.clamp(0.0, 1.0) * 2.0;
        let [dark, middle, light] = self.petals;
        if place < 1.0 { dark.mix(middle, place) } else { middle.mix(light, place - 1.0) }
    }
}

/// Paints the pattern. `is_free` means that the prompt names no color.
pub(super) fn paint(canvas: &mut Canvas, inks: &InkPalette, is_free: bool, rng: &mut PromptRng) {
    let deep = inks.paper.lighten(if inks.is_dark { 0.09 } else { -0.06 }).mix(inks.colors[1], 0.08);
    canvas.fill(|x, y| {
        let (dx, dy) = (x - 0.5, y - 0.5);
        deep.mix(inks.paper, smoothstep(0.05, 0.7, (dx * dx + dy * dy).sqrt()))
    });
    if rng.one_in(2) {
        paint_wreath(canvas, inks, rng);
        let rings = 5 + rng.next_below(3);
        let flower_colors = FlowerColors::new(inks, is_free, rng);
        paint_flower(canvas, flower_colors, rng, (0.5, 0.5), 0.36, rings);
    } else {
        paint_bouquet(canvas, inks, is_free, rng);
    }
}

/// Paints dots and arcs around a single flower.
fn paint_wreath(canvas: &mut Canvas, inks: &InkPalette, rng: &mut PromptRng) {
    let count = 36 + 12 * rng.next_below(3);
    let color = inks.paper.mix(inks.gradient(0.5), 0.65);
    for index in 0..count {
        let turns = index as f64 / count as f64;
        let large = index % 3 == 0;
        let (away, radius) = if large { (0.435, 0.0065) } else { (0.435, 0.0032) };
        let place = (0.5 + away * cos(turns), 0.5 + away * sin(turns));
        canvas.fill_disc(place, radius, if large { inks.accent() } else { color }, 1.0);
    }
    let edge = canvas.edge_smoothing();
    for (radius, width) in [(0.462, 0.0012), (0.408, 0.0012)] {
        canvas.paint_rect(CanvasRect::FULL, |x, y| {
            let away = ((x - 0.5) * (x - 0.5) + (y - 0.5) * (y - 0.5)).sqrt();
            (color, edge.coverage((away - radius).abs() - width))
        });
    }
}

/// Paints several flowers that hardly overlap, large ones first, on stems that come from below.
fn paint_bouquet(canvas: &mut Canvas, inks: &InkPalette, is_free: bool, rng: &mut PromptRng) {
    let mut placed: Vec<(f64, f64, f64)> = Vec::new();
    for round in 0..90 {
        let radius = lerp(0.23, 0.07, f64::from(round) / 90.0) * rng.range(0.85, 1.1);
        let (x, y) = (rng.range(0.08, 0.92), rng.range(0.10, 0.78));
        let apart = |other: &(f64, f64, f64)| {
            let (dx, dy) = (x - other.0, y - other.1);
            (dx * dx + dy * dy).sqrt() > (radius + other.2) * 0.93
        };
        if placed.iter().all(apart) && placed.len() < 9 {
            placed.push((x, y, radius));
        }
    }
    let stem = oklch(if inks.is_dark { 0.48 } else { 0.58 }, 0.085, 150.0).to_oklab();
    for (x, y, radius) in &placed {
        paint_stalk(canvas, rng, (*x, *y), *radius, stem);
    }
    placed.sort_by(|one, other| one.1.total_cmp(&other.1));
    for (x, y, radius) in placed {
        let rings = if radius > 0.14 { 5 } else { 3 };
        let flower_colors = FlowerColors::new(inks, is_free, rng);
        paint_flower(canvas, flower_colors, rng, (x, y), radius, rings);
    }
}

fn paint_stalk(canvas: &mut Canvas, rng: &mut PromptRng, head: (f64, f64), radius: f64, color: OklabColor) {
    let foot = (0.5 + (head.0 - 0.5) * 0.35, 1.05);
    let bend = rng.range(-0.05, 0.05);
    let at = |part: f64| {
        let bow = 4.0 * part * (1.0 - part) * bend;
        (lerp(head.0, foot.0, part * part * 0.6 + part * 0.4) + bow, lerp(head.1, foot.1, part))
    };
    for piece in 0..24 {
        let (from, to) = (f64::from(piece) / 24.0, f64::from(piece + 1) / 24.0);
        canvas.draw_stroke(at(from), at(to), (0.0035, 0.0035), color, 1.0);
    }
    for side in [-1.0, 1.0] {
        let part = rng.range(0.35, 0.7);
        let base = at(part);
        let turns = 0.75 + side * rng.range(0.09, 0.15);
        let leaf = PetalShape { base, turns, length: radius * 0.5 + 0.05, half_width: radius * 0.07 + 0.008 };
        paint_petal(canvas, leaf, color.lighten(-0.03), color.lighten(0.05));
    }
}

/// Paints rings of petals from the outside in; each ring is offset by half a petal.
fn paint_flower(
    canvas: &mut Canvas,
    flower_colors: FlowerColors,
    rng: &mut PromptRng,
    center: (f64, f64),
    radius: f64,
    rings: usize,
) {
    let count = [8, 10, 12, 16][rng.next_below(4)];
    let slender = rng.range(0.85, 1.25);
    let inward = rng.one_in(2);
    let start = rng.next_f64();
    let (heart, rim) = if inward { (0.05, 0.95) } else { (0.95, 0.05) };
    for ring in 0..rings {
        let part = ring as f64 / rings as f64;
        let outer = radius * (1.0 - 0.72 * part);
        let length = outer * 0.80;
        let half = outer * std::f64::consts::PI / f64::from(count) * 0.62 * slender;
        let tone = lerp(rim, heart, part);
        let (base, tip) = (flower_colors.gradient(tone).lighten(-0.10), flower_colors.gradient(tone).lighten(0.05));
        let shift = if ring % 2 == 0 { 0.0 } else { 0.5 };
        // Every other petal lies on top of its neighbors.
        for lot in 0..2 {
            for index in (lot..count).step_by(2) {
                let turns = start + (f64::from(index) + shift) / f64::from(count);
                let inner = outer - length;
                let foot = (center.0 + inner * cos(turns), center.1 + inner * sin(turns));
                paint_petal(canvas, PetalShape { base: foot, turns, length, half_width: half }, base, tip);
            }
        }
    }
    paint_seeds(canvas, flower_colors.center, center, radius * 0.21);
}

fn paint_seeds(canvas: &mut Canvas, color: OklabColor, center: (f64, f64), radius: f64) {
    let ground = color.lighten(-0.16);
    canvas.paint_glow(center, radius * 1.6, ground.lighten(-0.2), 0.5);
    canvas.fill_disc(center, radius, ground, 1.0);
    let count = 70;
    for index in 0..count {
        let part = (f64::from(index) + 0.5) / f64::from(count);
        let (turns, away) = (f64::from(index) * GOLDEN_TURN, radius * 0.93 * part.sqrt());
        let place = (center.0 + away * cos(turns), center.1 + away * sin(turns));
        canvas.fill_disc(place, radius * 0.075, color.lighten(0.08 - 0.08 * part), 1.0);
    }
}

/// Base point, direction, length and half width of a petal.
#[derive(Clone, Copy, Debug)]
struct PetalShape {
    base: (f64, f64),
    turns: f64,
    length: f64,
    half_width: f64,
}

/// Paints a petal: the lens between two arcs, lighter toward its tip, with a shadow around it.
fn paint_petal(canvas: &mut Canvas, petal: PetalShape, base: OklabColor, tip: OklabColor) {
    let edge = canvas.edge_smoothing();
    let reach = petal.length / 2.0;
    let (sine, cosine) = (sin(petal.turns), cos(petal.turns));
    let middle = (petal.base.0 + reach * cosine, petal.base.1 + reach * sine);
    let half = petal.half_width.min(reach * 0.98);
    let arc = (reach * reach + half * half) / (2.0 * half);
    let off = arc - half;
    let shadow = base.lighten(-0.22);
    let soft = half * 0.35;
    canvas.paint_rect(CanvasRect::square_around(middle.0, middle.1, reach + soft), |x, y| {
        let (dx, dy) = (x - middle.0, y - middle.1);
        let (along, across) = (dx * cosine + dy * sine, (dy * cosine - dx * sine).abs());
        // Widest beyond the middle, so that the base is elongated.
        let even = along - reach * 0.16 * (1.0 - (along / reach) * (along / reach));
        let outside = if (even.abs() - reach) * off > across * reach {
            (across * across + (even.abs() - reach) * (even.abs() - reach)).sqrt()
        } else {
            ((across + off) * (across + off) + even * even).sqrt() - arc
        };
        if outside > soft {
            return (shadow, 0.0);
        }
        let cover = edge.coverage(outside);
        let part = ((along + reach) / petal.length).clamp(0.0, 1.0);
        let vein = 1.0 - smoothstep(0.0, half * 0.16, across);
        let rim = smoothstep(-half * 0.22, 0.0, outside);
        let color = base.mix(tip, part).lighten(-0.05 * vein * (1.0 - part) + 0.045 * rim);
        if cover >= 1.0 {
            return (color, 1.0);
        }
        let shade = 0.30 * (1.0 - smoothstep(0.0, soft, outside));
        (shadow.mix(color, cover), cover + (1.0 - cover) * shade)
    });
}
