//! Colors in OKLab, where equal steps look equal and mixtures stay clean.

use std::sync::LazyLock;

use super::portable_math::{cos, cube_root, lerp, sin};

/// Lightness from 0 to 1, and the green-red (`a`) and blue-yellow (`b`) axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OklabColor {
    pub(super) lightness: f64,
    pub(super) a: f64,
    pub(super) b: f64,
}

/// Creates a color from lightness, chroma and hue in degrees, the notation of the palettes.
pub(super) const fn oklch(lightness: f64, chroma: f64, hue: f64) -> OklchColor {
    OklchColor { lightness, chroma, hue }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OklchColor {
    pub(super) lightness: f64,
    pub(super) chroma: f64,
    pub(super) hue: f64,
}

impl OklchColor {
    pub(super) fn rotate_hue(self, degrees: f64) -> Self {
        Self { hue: self.hue + degrees, ..self }
    }

    pub(super) fn scale_chroma(self, factor: f64) -> Self {
        Self { chroma: self.chroma * factor, ..self }
    }

    pub(super) fn with_lightness(self, lightness: f64) -> Self {
        Self { lightness: lightness.clamp(0.0, 1.0), ..self }
    }

    /// Converts to OKLab, with the chroma reduced to what a screen can show.
    pub(super) fn to_oklab(self) -> OklabColor {
        let (sine, cosine) = (sin(self.hue / 360.0), cos(self.hue / 360.0));
        let mut chroma = self.chroma;
        loop {
            let color = OklabColor { lightness: self.lightness, a: chroma * cosine, b: chroma * sine };
            if chroma < 0.002 || color.to_linear_rgb().iter().all(|part| (-0.0005..=1.0005).contains(part)) {
                return color;
            }
            chroma *= 0.96;
        }
    }
}

impl OklabColor {
    pub(super) const BLACK: Self = Self { lightness: 0.0, a: 0.0, b: 0.0 };

    pub(super) fn mix(self, other: Self, fraction: f64) -> Self {
        Self {
            lightness: lerp(self.lightness, other.lightness, fraction),
            a: lerp(self.a, other.a, fraction),
            b: lerp(self.b, other.b, fraction),
        }
    }

    pub(super) fn lighten(self, amount: f64) -> Self {
        Self { lightness: (self.lightness + amount).clamp(0.0, 1.0), ..self }
    }

    /// Returns linear red, green and blue. A screen cannot show values outside 0 to 1.
    fn to_linear_rgb(self) -> [f64; 3] {
        let cubed = |x: f64| x * x * x;
        let l = cubed(self.lightness + 0.396_337_777_4 * self.a + 0.215_803_757_3 * self.b);
        let m = cubed(self.lightness - 0.105_561_345_8 * self.a - 0.063_854_172_8 * self.b);
        let s = cubed(self.lightness - 0.089_484_177_5 * self.a - 1.291_485_548_0 * self.b);
        [
            4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s,
            -1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s,
            -0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701_0 * s,
        ]
    }

    /// Converts to 8-bit sRGB. `threshold`, between 0 and 1, decides how a value between two steps is rounded: taken
    /// from a dither pattern, it hides the steps of slow gradients.
    pub(super) fn to_srgb(self, threshold: f64) -> [u8; 3] {
        self.to_linear_rgb().map(|part| {
            let at = part.clamp(0.0, 1.0) * SRGB_TABLE_STEPS;
            let step = at.floor();
            // Always in the table: `part` is clamped to 0 and 1, and the table has one entry more than steps.
            let index = step as usize;
            let value = lerp(SRGB_TABLE[index], SRGB_TABLE[index + 1], at - step);
            (value + threshold).floor().clamp(0.0, 255.0) as u8
        })
    }
}

/// Number of table steps from no light to full light.
const SRGB_TABLE_STEPS: f64 = 8192.0;

/// Maps linear light to sRGB values from 0 to 255.
static SRGB_TABLE: LazyLock<Vec<f64>> = LazyLock::new(|| {
    (0..=8193u32)
        .map(|step| {
            let intensity = (f64::from(step) / SRGB_TABLE_STEPS).min(1.0);
            let value = if intensity <= 0.003_130_8 {
                12.92 * intensity
            } else {
                // The power 1/2.4 is 1/3 + 1/12.
                let third = cube_root(intensity);
                1.055 * third * third.sqrt().sqrt() - 0.055
            };
            value * 255.0
        })
        .collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_oklab_colors_convert_to_srgb() {
        let near = |found: [u8; 3], wanted: [u8; 3]| found.iter().zip(wanted).all(|(a, b)| a.abs_diff(b) <= 1);
        let to_srgb = |light, a, b| OklabColor { lightness: light, a, b }.to_srgb(0.5);
        assert!(near(to_srgb(0.0, 0.0, 0.0), [0, 0, 0]));
        assert!(near(to_srgb(1.0, 0.0, 0.0), [255, 255, 255]), "{:?}", to_srgb(1.0, 0.0, 0.0));
        assert!(
            near(to_srgb(0.627_96, 0.224_86, 0.125_85), [255, 0, 0]),
            "{:?}",
            to_srgb(0.627_96, 0.224_86, 0.125_85)
        );
        assert!(near(to_srgb(0.452_01, -0.032_46, -0.311_53), [0, 0, 255]));
        assert!(near(to_srgb(0.599_87, 0.0, 0.0), [128, 128, 128]), "{:?}", to_srgb(0.599_87, 0.0, 0.0));
    }

    #[test]
    fn oklch_chroma_is_reduced_to_srgb_gamut() {
        for hue in 0..36 {
            let color = oklch(0.7, 0.4, f64::from(hue) * 10.0).to_oklab();
            assert!(color.to_linear_rgb().iter().all(|part| (-0.001..=1.001).contains(part)), "{hue}: {color:?}");
        }
    }
}
