//! Colours as eyes compare them: OKLab, in which equal steps look equal and mixtures stay clean.

use std::sync::LazyLock;

use super::exact::{cos, cube_root, mix, sin};

/// Lightness from 0 to 1, and how far the colour leans to red from green (`a`) and to yellow from blue (`b`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Colour {
    pub(super) light: f64,
    pub(super) a: f64,
    pub(super) b: f64,
}

/// A colour by lightness, strength and hue in degrees: how palettes are written down.
pub(super) const fn lch(light: f64, strength: f64, hue: f64) -> Lch {
    Lch { light, strength, hue }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lch {
    pub(super) light: f64,
    pub(super) strength: f64,
    pub(super) hue: f64,
}

impl Lch {
    pub(super) fn turned(self, degrees: f64) -> Self {
        Self { hue: self.hue + degrees, ..self }
    }

    pub(super) fn faded(self, part: f64) -> Self {
        Self { strength: self.strength * part, ..self }
    }

    pub(super) fn lit(self, light: f64) -> Self {
        Self { light: light.clamp(0.0, 1.0), ..self }
    }

    /// The same hue and lightness, as strong as a screen can show it.
    pub(super) fn colour(self) -> Colour {
        let (sine, cosine) = (sin(self.hue / 360.0), cos(self.hue / 360.0));
        let mut strength = self.strength;
        loop {
            let colour = Colour { light: self.light, a: strength * cosine, b: strength * sine };
            if strength < 0.002 || colour.linear().iter().all(|part| (-0.0005..=1.0005).contains(part)) {
                return colour;
            }
            strength *= 0.96;
        }
    }
}

impl Colour {
    pub(super) const BLACK: Self = Self { light: 0.0, a: 0.0, b: 0.0 };

    pub(super) fn mix(self, other: Self, part: f64) -> Self {
        Self { light: mix(self.light, other.light, part), a: mix(self.a, other.a, part), b: mix(self.b, other.b, part) }
    }

    pub(super) fn lighter(self, by: f64) -> Self {
        Self { light: (self.light + by).clamp(0.0, 1.0), ..self }
    }

    /// Red, green and blue in amounts of light; outside 0 to 1 no screen can show it.
    fn linear(self) -> [f64; 3] {
        let cubed = |x: f64| x * x * x;
        let l = cubed(self.light + 0.396_337_777_4 * self.a + 0.215_803_757_3 * self.b);
        let m = cubed(self.light - 0.105_561_345_8 * self.a - 0.063_854_172_8 * self.b);
        let s = cubed(self.light - 0.089_484_177_5 * self.a - 1.291_485_548_0 * self.b);
        [
            4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s,
            -1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s,
            -0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701_0 * s,
        ]
    }

    /// As a screen takes it. `threshold`, between 0 and 1, decides which way a value between two steps falls: taken from a
    /// pattern, it hides the steps of slow gradients.
    pub(super) fn screen(self, threshold: f64) -> [u8; 3] {
        self.linear().map(|part| {
            let at = part.clamp(0.0, 1.0) * TABLE_END;
            let step = at.floor();
            // In the table for sure: `part` is cut to 0 and 1, and one entry stands behind the end.
            let index = step as usize;
            let value = mix(SCREEN[index], SCREEN[index + 1], at - step);
            (value + threshold).floor().clamp(0.0, 255.0) as u8
        })
    }
}

/// Steps of the table from no light to full.
const TABLE_END: f64 = 8192.0;

/// Amounts of light as a screen's values from 0 to 255 (sRGB).
static SCREEN: LazyLock<Vec<f64>> = LazyLock::new(|| {
    (0..=8193u32)
        .map(|step| {
            let light = (f64::from(step) / TABLE_END).min(1.0);
            let value = if light <= 0.003_130_8 {
                12.92 * light
            } else {
                // To the power of 1/2.4 = 1/3 + 1/12.
                let third = cube_root(light);
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
    fn known_colours_come_out_right() {
        let near = |found: [u8; 3], wanted: [u8; 3]| found.iter().zip(wanted).all(|(a, b)| a.abs_diff(b) <= 1);
        let shown = |light, a, b| Colour { light, a, b }.screen(0.5);
        assert!(near(shown(0.0, 0.0, 0.0), [0, 0, 0]));
        assert!(near(shown(1.0, 0.0, 0.0), [255, 255, 255]), "{:?}", shown(1.0, 0.0, 0.0));
        assert!(near(shown(0.627_96, 0.224_86, 0.125_85), [255, 0, 0]), "{:?}", shown(0.627_96, 0.224_86, 0.125_85));
        assert!(near(shown(0.452_01, -0.032_46, -0.311_53), [0, 0, 255]));
        assert!(near(shown(0.599_87, 0.0, 0.0), [128, 128, 128]), "{:?}", shown(0.599_87, 0.0, 0.0));
    }

    #[test]
    fn no_colour_is_stronger_than_a_screen() {
        for hue in 0..36 {
            let colour = lch(0.7, 0.4, f64::from(hue) * 10.0).colour();
            assert!(colour.linear().iter().all(|part| (-0.001..=1.001).contains(part)), "{hue}: {colour:?}");
        }
    }
}
