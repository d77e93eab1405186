//! Colours that go together, picked by hand in OKLCH; chance only turns them a little.

use super::chance::Chance;
use super::colour::{Colour, Lch, lch};
use super::exact::mix;
use super::words::Tint;

/// The light of a day or a season.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Dawn,
    Day,
    Sunset,
    Dusk,
    Night,
    Winter,
    Autumn,
    Desert,
}

/// Without a word for it, chance picks one of these: the ones that suit any place.
pub(super) const USUAL: [Mood; 6] = [Mood::Dawn, Mood::Day, Mood::Sunset, Mood::Dusk, Mood::Night, Mood::Autumn];

impl Mood {
    pub(super) fn is_dark(self) -> bool {
        matches!(self, Self::Dusk | Self::Night)
    }

    /// Top, middle and foot of the sky, what shines in it, the land far away and the land near by.
    fn colours(self) -> [Lch; 6] {
        match self {
            Self::Dawn => [
                lch(0.66, 0.085, 262.0),
                lch(0.83, 0.075, 345.0),
                lch(0.94, 0.065, 75.0),
                lch(0.985, 0.04, 90.0),
                lch(0.75, 0.06, 310.0),
                lch(0.33, 0.065, 285.0),
            ],
            Self::Day => [
                lch(0.64, 0.115, 243.0),
                lch(0.80, 0.075, 228.0),
                lch(0.95, 0.03, 205.0),
                lch(0.99, 0.05, 100.0),
                lch(0.76, 0.055, 215.0),
                lch(0.40, 0.09, 150.0),
            ],
            Self::Sunset => [
                lch(0.42, 0.11, 297.0),
                lch(0.68, 0.16, 22.0),
                lch(0.89, 0.12, 75.0),
                lch(0.95, 0.10, 88.0),
                lch(0.60, 0.13, 5.0),
                lch(0.22, 0.06, 305.0),
            ],
            Self::Dusk => [
                lch(0.27, 0.075, 275.0),
                lch(0.47, 0.11, 312.0),
                lch(0.76, 0.115, 38.0),
                lch(0.95, 0.04, 85.0),
                lch(0.46, 0.085, 305.0),
                lch(0.17, 0.04, 282.0),
            ],
            Self::Night => [
                lch(0.16, 0.05, 272.0),
                lch(0.27, 0.07, 262.0),
                lch(0.46, 0.07, 232.0),
                lch(0.96, 0.03, 95.0),
                lch(0.38, 0.06, 250.0),
                lch(0.13, 0.03, 265.0),
            ],
            Self::Winter => [
                lch(0.72, 0.055, 248.0),
                lch(0.86, 0.03, 238.0),
                lch(0.965, 0.02, 60.0),
                lch(0.99, 0.025, 90.0),
                lch(0.84, 0.03, 240.0),
                lch(0.44, 0.055, 252.0),
            ],
            Self::Autumn => [
                lch(0.72, 0.06, 232.0),
                lch(0.87, 0.045, 90.0),
                lch(0.95, 0.055, 82.0),
                lch(0.985, 0.05, 92.0),
                lch(0.75, 0.085, 60.0),
                lch(0.36, 0.09, 38.0),
            ],
            Self::Desert => [
                lch(0.68, 0.095, 238.0),
                lch(0.86, 0.05, 85.0),
                lch(0.94, 0.06, 72.0),
                lch(0.985, 0.05, 92.0),
                lch(0.78, 0.085, 55.0),
                lch(0.46, 0.11, 42.0),
            ],
        }
    }
}

/// The colours of a place in its light.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sky {
    pub(super) mood: Mood,
    pub(super) top: Colour,
    pub(super) middle: Colour,
    pub(super) foot: Colour,
    pub(super) sun: Colour,
    pub(super) far: Colour,
    pub(super) near: Colour,
}

impl Sky {
    /// The first tint is for the land and what shines on it, the second for the sky.
    pub(super) fn new(mood: Mood, tints: &[Tint], chance: &mut Chance) -> Self {
        let turn = chance.within(-14.0, 14.0);
        let mut colours = mood.colours().map(|colour| colour.turned(turn));
        let (land, heaven) = (tints.first(), tints.get(1).or(tints.first()));
        if let Some(tint) = land {
            colours[4] = tinted(colours[4], *tint, 1.0, 0.09);
            colours[5] = tinted(colours[5], *tint, 1.0, 0.08);
        }
        if let Some(tint) = heaven {
            colours[1] = tinted(colours[1], *tint, 0.75, 0.09);
            colours[2] = tinted(colours[2], *tint, 0.9, 0.07);
            if tints.len() > 1 || *tint == Tint::Grey {
                colours[0] = tinted(colours[0], *tint, 0.9, 0.09);
            }
        }
        let [top, middle, foot, sun, far, near] = colours.map(Lch::colour);
        Self { mood, top, middle, foot, sun, far, near }
    }

    /// The same light on a town, whose walls are no meadows.
    pub(super) fn of_a_town(self) -> Self {
        let near = if self.mood == Mood::Day { self.near.mix(self.top.lighter(-0.26), 0.8) } else { self.near };
        Self { near, ..self }
    }

    /// The land's colour at a distance: 0 is far away, 1 near by.
    pub(super) fn land(&self, near: f64) -> Colour {
        self.far.mix(self.near, near)
    }
}

fn tinted(colour: Lch, tint: Tint, part: f64, strength: f64) -> Lch {
    match tint {
        Tint::Grey => colour.faded(0.12),
        Tint::Hue(hue) => {
            // The shorter way around.
            let way = (hue - colour.hue + 540.0).rem_euclid(360.0) - 180.0;
            Lch { strength: colour.strength.max(strength), ..colour.turned(way * part) }
        }
    }
}

/// From the darkest to the lightest, but for the last, which stands out.
const INKS: [[Lch; 5]; 10] = [
    // Harbour.
    [
        lch(0.30, 0.07, 255.0),
        lch(0.56, 0.10, 205.0),
        lch(0.76, 0.09, 190.0),
        lch(0.94, 0.035, 88.0),
        lch(0.70, 0.165, 35.0),
    ],
    // Orchard.
    [
        lch(0.33, 0.07, 150.0),
        lch(0.58, 0.12, 138.0),
        lch(0.82, 0.13, 112.0),
        lch(0.95, 0.035, 100.0),
        lch(0.66, 0.19, 35.0),
    ],
    // Plum.
    [
        lch(0.28, 0.09, 322.0),
        lch(0.50, 0.16, 352.0),
        lch(0.74, 0.14, 22.0),
        lch(0.95, 0.03, 65.0),
        lch(0.83, 0.13, 75.0),
    ],
    // Glacier.
    [
        lch(0.31, 0.065, 265.0),
        lch(0.53, 0.105, 248.0),
        lch(0.76, 0.085, 220.0),
        lch(0.95, 0.02, 200.0),
        lch(0.84, 0.13, 88.0),
    ],
    // Terracotta.
    [
        lch(0.33, 0.055, 45.0),
        lch(0.57, 0.125, 42.0),
        lch(0.77, 0.105, 65.0),
        lch(0.94, 0.035, 85.0),
        lch(0.58, 0.08, 195.0),
    ],
    // Moss and rose.
    [
        lch(0.35, 0.055, 165.0),
        lch(0.60, 0.08, 160.0),
        lch(0.78, 0.10, 10.0),
        lch(0.95, 0.025, 30.0),
        lch(0.58, 0.18, 8.0),
    ],
    // Carnival.
    [
        lch(0.27, 0.10, 285.0),
        lch(0.52, 0.20, 292.0),
        lch(0.72, 0.17, 345.0),
        lch(0.95, 0.04, 105.0),
        lch(0.80, 0.13, 195.0),
    ],
    // Honey.
    [
        lch(0.31, 0.05, 65.0),
        lch(0.60, 0.125, 62.0),
        lch(0.82, 0.15, 85.0),
        lch(0.95, 0.05, 98.0),
        lch(0.48, 0.09, 245.0),
    ],
    // Newspaper.
    [
        lch(0.25, 0.02, 260.0),
        lch(0.46, 0.035, 250.0),
        lch(0.74, 0.025, 240.0),
        lch(0.95, 0.012, 90.0),
        lch(0.64, 0.20, 30.0),
    ],
    // Lagoon.
    [
        lch(0.29, 0.06, 225.0),
        lch(0.54, 0.105, 190.0),
        lch(0.78, 0.12, 165.0),
        lch(0.95, 0.03, 120.0),
        lch(0.73, 0.17, 5.0),
    ],
];

/// The colours of a picture that shows no place.
#[derive(Clone, Debug)]
pub(super) struct Inks {
    /// What it is drawn on.
    pub(super) paper: Colour,
    /// What is drawn on it, in the order of their lightness, but for the last, which stands out.
    pub(super) colours: Vec<Colour>,
    pub(super) dark: bool,
}

impl Inks {
    pub(super) fn new(mood: Option<Mood>, tints: &[Tint], chance: &mut Chance) -> Self {
        let mut inks = *chance.pick(&INKS);
        let dark = chance.one_in(2);
        let mut turn = chance.within(-10.0, 10.0);
        if let Some(Tint::Hue(hue)) = tints.first() {
            turn += hue - inks[1].hue;
        }
        for ink in &mut inks {
            *ink = ink.turned(turn);
            if tints.first() == Some(&Tint::Grey) {
                *ink = ink.faded(0.1);
            }
        }
        if let Some(Tint::Hue(hue)) = tints.first() {
            // Dark yellow is brown, and not what somebody means who says gold.
            let lift = if (70.0..=115.0).contains(hue) { 0.5 } else { 0.0 };
            for ink in &mut inks[..3] {
                *ink = ink.lit(mix(ink.light, 0.9, lift));
                ink.strength = ink.strength.max(0.085 + 0.06 * lift);
            }
        }
        match tints.get(1) {
            Some(Tint::Hue(hue)) => inks[4] = Lch { hue: *hue, strength: inks[4].strength.max(0.13), ..inks[4] },
            Some(Tint::Grey) => inks[4] = inks[4].faded(0.1),
            None => {}
        }
        let dark = mood.map_or(dark, Mood::is_dark);
        let [first, second, third, fourth, fifth] = inks;
        if dark {
            let paper = first.lit(first.light * 0.68).faded(0.8).colour();
            let colours = [second, third, fourth, fifth].map(Lch::colour).to_vec();
            return Self { paper, colours, dark };
        }
        let paper = fourth.lit(0.965).faded(0.8).colour();
        Self { paper, colours: [first, second, third, fifth].map(Lch::colour).to_vec(), dark }
    }

    /// The one that stands out.
    pub(super) fn accent(&self) -> Colour {
        // There are always four.
        self.colours[3]
    }

    /// A colour between those in order, as `part` goes from 0 to 1.
    pub(super) fn along(&self, part: f64) -> Colour {
        let place = part.clamp(0.0, 1.0) * 2.0;
        let step = usize::from(place >= 1.0);
        self.colours[step].mix(self.colours[step + 1], place - step as f64)
    }
}
