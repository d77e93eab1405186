//! Hand-picked color palettes in OKLCH; the random generator only rotates their hues slightly.

use super::color::{OklabColor, OklchColor, oklch};
use super::portable_math::lerp;
use super::prompt_hints::ColorTint;
use super::rng::PromptRng;

/// Time of day or season.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LightMood {
    Dawn,
    Day,
    Sunset,
    Dusk,
    Night,
    Winter,
    Autumn,
    Desert,
}

/// Moods that suit any scene; the random generator chooses one if the prompt names none.
pub(super) const DEFAULT_MOODS: [LightMood; 6] =
    [LightMood::Dawn, LightMood::Day, LightMood::Sunset, LightMood::Dusk, LightMood::Night, LightMood::Autumn];

impl LightMood {
    pub(super) fn is_dark(self) -> bool {
        matches!(self, Self::Dusk | Self::Night)
    }

    /// Returns the colors of the top, middle and bottom of the sky, the sun or moon, the far land and the near land.
    fn palette(self) -> [OklchColor; 6] {
        match self {
            Self::Dawn => [
                oklch(0.66, 0.085, 262.0),
                oklch(0.83, 0.075, 345.0),
                oklch(0.94, 0.065, 75.0),
                oklch(0.985, 0.04, 90.0),
                oklch(0.75, 0.06, 310.0),
                oklch(0.33, 0.065, 285.0),
            ],
            Self::Day => [
                oklch(0.64, 0.115, 243.0),
                oklch(0.80, 0.075, 228.0),
                oklch(0.95, 0.03, 205.0),
                oklch(0.99, 0.05, 100.0),
                oklch(0.76, 0.055, 215.0),
                oklch(0.40, 0.09, 150.0),
            ],
            Self::Sunset => [
                oklch(0.42, 0.11, 297.0),
                oklch(0.68, 0.16, 22.0),
                oklch(0.89, 0.12, 75.0),
                oklch(0.95, 0.10, 88.0),
                oklch(0.60, 0.13, 5.0),
                oklch(0.22, 0.06, 305.0),
            ],
            Self::Dusk => [
                oklch(0.27, 0.075, 275.0),
                oklch(0.47, 0.11, 312.0),
                oklch(0.76, 0.115, 38.0),
                oklch(0.95, 0.04, 85.0),
                oklch(0.46, 0.085, 305.0),
                oklch(0.17, 0.04, 282.0),
            ],
            Self::Night => [
                oklch(0.16, 0.05, 272.0),
                oklch(0.27, 0.07, 262.0),
                oklch(0.46, 0.07, 232.0),
                oklch(0.96, 0.03, 95.0),
                oklch(0.38, 0.06, 250.0),
                oklch(0.13, 0.03, 265.0),
            ],
            Self::Winter => [
                oklch(0.72, 0.055, 248.0),
                oklch(0.86, 0.03, 238.0),
                oklch(0.965, 0.02, 60.0),
                oklch(0.99, 0.025, 90.0),
                oklch(0.84, 0.03, 240.0),
                oklch(0.44, 0.055, 252.0),
            ],
            Self::Autumn => [
                oklch(0.72, 0.06, 232.0),
                oklch(0.87, 0.045, 90.0),
                oklch(0.95, 0.055, 82.0),
                oklch(0.985, 0.05, 92.0),
                oklch(0.75, 0.085, 60.0),
                oklch(0.36, 0.09, 38.0),
            ],
            Self::Desert => [
                oklch(0.68, 0.095, 238.0),
                oklch(0.86, 0.05, 85.0),
                oklch(0.94, 0.06, 72.0),
                oklch(0.985, 0.05, 92.0),
                oklch(0.78, 0.085, 55.0),
                oklch(0.46, 0.11, 42.0),
            ],
        }
    }
}

/// Colors of a landscape in its light.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkyPalette {
    pub(super) mood: LightMood,
    pub(super) top: OklabColor,
    pub(super) middle: OklabColor,
    pub(super) bottom: OklabColor,
    pub(super) sun: OklabColor,
    pub(super) far: OklabColor,
    pub(super) near: OklabColor,
}

impl SkyPalette {
    /// Creates the palette. The first tint is for the land and the sun, the second for the sky.
    pub(super) fn new(mood: LightMood, tints: &[ColorTint], rng: &mut PromptRng) -> Self {
        let hue_shift = rng.range(-14.0, 14.0);
        let mut colors = mood.palette().map(|colour| colour.rotate_hue(hue_shift));
        let (land, sky) = (tints.first(), tints.get(1).or(tints.first()));
        if let Some(tint) = land {
            colors[4] = apply_tint(colors[4], *tint, 1.0, 0.09);
            colors[5] = apply_tint(colors[5], *tint, 1.0, 0.08);
        }
        if let Some(tint) = sky {
            colors[1] = apply_tint(colors[1], *tint, 0.75, 0.09);
            colors[2] = apply_tint(colors[2], *tint, 0.9, 0.07);
            if tints.len() > 1 || *tint == ColorTint::Gray {
                colors[0] = apply_tint(colors[0], *tint, 0.9, 0.09);
            }
        }
        let [top, middle, foot, sun, far, near] = colors.map(OklchColor::to_oklab);
        Self { mood, top, middle, bottom: foot, sun, far, near }
    }

    /// Returns the palette for a city, where near colors are walls instead of meadows.
    pub(super) fn for_city(self) -> Self {
        let near = if self.mood == LightMood::Day { self.near.mix(self.top.lighten(-0.26), 0.8) } else { self.near };
        Self { near, ..self }
    }

    /// Returns the land's color at a distance: 0 is far, 1 is near.
    pub(super) fn land_color(&self, near: f64) -> OklabColor {
        self.far.mix(self.near, near)
    }
}

fn apply_tint(color: OklchColor, tint: ColorTint, weight: f64, min_chroma: f64) -> OklchColor {
    match tint {
        ColorTint::Gray => color.scale_chroma(0.12),
        ColorTint::Hue(hue) => {
            // Rotate the shorter way around.
            let hue_distance = (hue - color.hue + 540.0).rem_euclid(360.0) - 180.0;
            OklchColor { chroma: color.chroma.max(min_chroma), ..color.rotate_hue(hue_distance * weight) }
        }
    }
}

/// Ordered from darkest to lightest, except for the last color, the accent.
const INK_PALETTES: [[OklchColor; 5]; 10] = [
    // Harbor.
    [
        oklch(0.30, 0.07, 255.0),
        oklch(0.56, 0.10, 205.0),
        oklch(0.76, 0.09, 190.0),
        oklch(0.94, 0.035, 88.0),
        oklch(0.70, 0.165, 35.0),
    ],
    // Orchard.
    [
        oklch(0.33, 0.07, 150.0),
        oklch(0.58, 0.12, 138.0),
        oklch(0.82, 0.13, 112.0),
        oklch(0.95, 0.035, 100.0),
        oklch(0.66, 0.19, 35.0),
    ],
    // Plum.
    [
        oklch(0.28, 0.09, 322.0),
        oklch(0.50, 0.16, 352.0),
        oklch(0.74, 0.14, 22.0),
        oklch(0.95, 0.03, 65.0),
        oklch(0.83, 0.13, 75.0),
    ],
    // Glacier.
    [
        oklch(0.31, 0.065, 265.0),
        oklch(0.53, 0.105, 248.0),
        oklch(0.76, 0.085, 220.0),
        oklch(0.95, 0.02, 200.0),
        oklch(0.84, 0.13, 88.0),
    ],
    // Terracotta.
    [
        oklch(0.33, 0.055, 45.0),
        oklch(0.57, 0.125, 42.0),
        oklch(0.77, 0.105, 65.0),
        oklch(0.94, 0.035, 85.0),
        oklch(0.58, 0.08, 195.0),
    ],
    // Moss and rose.
    [
        oklch(0.35, 0.055, 165.0),
        oklch(0.60, 0.08, 160.0),
        oklch(0.78, 0.10, 10.0),
        oklch(0.95, 0.025, 30.0),
        oklch(0.58, 0.18, 8.0),
    ],
    // Carnival.
    [
        oklch(0.27, 0.10, 285.0),
        oklch(0.52, 0.20, 292.0),
        oklch(0.72, 0.17, 345.0),
        oklch(0.95, 0.04, 105.0),
        oklch(0.80, 0.13, 195.0),
    ],
    // Honey.
    [
        oklch(0.31, 0.05, 65.0),
        oklch(0.60, 0.125, 62.0),
        oklch(0.82, 0.15, 85.0),
        oklch(0.95, 0.05, 98.0),
        oklch(0.48, 0.09, 245.0),
    ],
    // Newspaper.
    [
        oklch(0.25, 0.02, 260.0),
        oklch(0.46, 0.035, 250.0),
        oklch(0.74, 0.025, 240.0),
        oklch(0.95, 0.012, 90.0),
        oklch(0.64, 0.20, 30.0),
    ],
    // Lagoon.
    [
        oklch(0.29, 0.06, 225.0),
        oklch(0.54, 0.105, 190.0),
        oklch(0.78, 0.12, 165.0),
        oklch(0.95, 0.03, 120.0),
        oklch(0.73, 0.17, 5.0),
    ],
];

/// Colors of an abstract image.
#[derive(Clone, Debug)]
pub(super) struct InkPalette {
    /// Background color.
    pub(super) paper: OklabColor,
    /// Foreground colors, ordered by lightness, except for the last, the accent.
    pub(super) colors: Vec<OklabColor>,
    pub(super) is_dark: bool,
}

impl InkPalette {
    pub(super) fn new(mood: Option<LightMood>, tints: &[ColorTint], rng: &mut PromptRng) -> Self {
        let mut inks = *rng.pick(&INK_PALETTES);
        let is_dark = rng.one_in(2);
        let mut hue_shift = rng.range(-10.0, 10.0);
        if let Some(ColorTint::Hue(hue)) = tints.first() {
            hue_shift += hue - inks[1].hue;
        }
        for ink in &mut inks {
            *ink = ink.rotate_hue(hue_shift);
            if tints.first() == Some(&ColorTint::Gray) {
                *ink = ink.scale_chroma(0.1);
            }
        }
        if let Some(ColorTint::Hue(hue)) = tints.first() {
            // Dark yellow looks brown, which does not match a prompt that says gold.
            let lift = if (70.0..=115.0).contains(hue) { 0.5 } else { 0.0 };
            for ink in &mut inks[..3] {
                *ink = ink.with_lightness(lerp(ink.lightness, 0.9, lift));
                ink.chroma = ink.chroma.max(0.085 + 0.06 * lift);
            }
        }
        match tints.get(1) {
            Some(ColorTint::Hue(hue)) => {
                inks[4] = OklchColor { hue: *hue, chroma: inks[4].chroma.max(0.13), ..inks[4] }
            }
            Some(ColorTint::Gray) => inks[4] = inks[4].scale_chroma(0.1),
            None => {}
        }
        let is_dark = mood.map_or(is_dark, LightMood::is_dark);
        let [first, second, third, fourth, fifth] = inks;
        if is_dark {
            let paper = first.with_lightness(first.lightness * 0.68).scale_chroma(0.8).to_oklab();
            let colors = [second, third, fourth, fifth].map(OklchColor::to_oklab).to_vec();
            return Self { paper, colors, is_dark };
        }
        let paper = fourth.with_lightness(0.965).scale_chroma(0.8).to_oklab();
        Self { paper, colors: [first, second, third, fifth].map(OklchColor::to_oklab).to_vec(), is_dark }
    }

    /// Returns the accent color.
    pub(super) fn accent(&self) -> OklabColor {
        // The list always has four colors.
        self.colors[3]
    }

    /// Returns the color at `fraction`, from 0 to 1, of the gradient through the ordered colors.
    pub(super) fn gradient(&self, fraction: f64) -> OklabColor {
        let position = fraction.clamp(0.0, 1.0) * 2.0;
        let step = usize::from(position >= 1.0);
        self.colors[step].mix(self.colors[step + 1], position - step as f64)
    }
}
