//! The words that steer the artist. Whatever else a prompt says only decides by its hash.

use super::palette::Mood;
use super::scenes::Scene;

/// What a prompt asks for, as far as it is understood.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hints {
    pub(super) scene: Option<Scene>,
    pub(super) mood: Option<Mood>,
    /// The first colour is the picture's, the second its counterpart.
    pub(super) tints: Vec<Tint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tint {
    /// In degrees, as palettes count them.
    Hue(f64),
    Grey,
}

const SCENES: [(Scene, &[&str]); 10] = [
    (
        Scene::Sea,
        &[
            "sea",
            "ocean",
            "beach",
            "wave",
            "coast",
            "boat",
            "ship",
            "sail",
            "island",
            "harbour",
            "harbor",
            "lighthouse",
        ],
    ),
    (Scene::Mountains, &["mountain", "peak", "alp", "cliff", "glacier", "volcano", "summit", "fjord", "lake"]),
    (Scene::Forest, &["forest", "tree", "wood", "pine", "fir", "jungle", "bear", "wolf", "deer", "fox", "owl"]),
    (Scene::City, &["city", "town", "skyline", "street", "building", "tower", "skyscraper", "house", "castle"]),
    (Scene::Hills, &["hill", "valley", "meadow", "field", "country", "landscape", "dune", "desert", "horse", "farm"]),
    (Scene::Bloom, &["flower", "rose", "petal", "bloom", "blossom", "garden", "lotus", "dahlia", "mandala", "bee"]),
    (Scene::Stars, &["star", "galaxy", "constellation", "cosmos", "universe", "nebula", "comet"]),
    (Scene::Planet, &["planet", "space", "astronaut", "rocket", "saturn", "jupiter", "mars", "world", "spaceship"]),
    (Scene::Flow, &["wind", "river", "dream", "smoke", "storm", "flow", "music", "dance", "fire", "abstract", "hair"]),
    (
        Scene::Tiles,
        &["tile", "pattern", "mosaic", "quilt", "geometric", "carpet", "bauhaus", "puzzle", "robot", "machine"],
    ),
];

const MOODS: [(Mood, &[&str]); 8] = [
    (Mood::Night, &["night", "midnight", "moon", "moonlight", "moonlit", "dark", "nocturnal"]),
    (Mood::Sunset, &["sunset", "evening", "glowing", "romantic"]),
    (Mood::Dusk, &["dusk", "twilight", "neon", "cyberpunk", "gloomy"]),
    (Mood::Dawn, &["dawn", "sunrise", "morning", "mist", "misty", "fog", "foggy", "pastel"]),
    (Mood::Winter, &["winter", "snow", "snowy", "ice", "icy", "frozen", "arctic", "cold", "frost"]),
    (Mood::Autumn, &["autumn", "fall", "october", "harvest", "rustic"]),
    (Mood::Desert, &["desert", "dune", "sand", "sahara", "canyon", "savanna"]),
    (Mood::Day, &["day", "noon", "sunny", "summer", "spring", "bright", "sky"]),
];

const TINTS: [(Tint, &[&str]); 10] = [
    (Tint::Hue(25.0), &["red", "crimson", "scarlet", "ruby"]),
    (Tint::Hue(55.0), &["orange", "copper", "rust", "tangerine", "peach"]),
    (Tint::Hue(90.0), &["yellow", "gold", "golden", "amber", "honey", "lemon"]),
    (Tint::Hue(145.0), &["green", "emerald", "olive", "mint", "jade"]),
    (Tint::Hue(195.0), &["teal", "turquoise", "cyan", "aqua"]),
    (Tint::Hue(255.0), &["blue", "azure", "navy", "cobalt", "indigo", "sapphire"]),
    (Tint::Hue(305.0), &["purple", "violet", "lavender", "lilac", "plum"]),
    (Tint::Hue(355.0), &["pink", "magenta", "fuchsia", "rosy", "coral"]),
    (Tint::Hue(60.0), &["brown", "sepia", "chocolate"]),
    (Tint::Grey, &["black", "white", "grey", "gray", "silver", "monochrome"]),
];

impl Hints {
    pub(super) fn of(prompt: &str) -> Self {
        let mut hints = Self::default();
        let lower = prompt.to_lowercase();
        for word in lower.split(|letter: char| !letter.is_alphanumeric()) {
            let known = |words: &[&str]| words.iter().any(|known| is(word, known));
            if hints.scene.is_none() {
                hints.scene = SCENES.iter().find(|(_, words)| known(words)).map(|(scene, _)| *scene);
            }
            if hints.mood.is_none() {
                hints.mood = MOODS.iter().find(|(_, words)| known(words)).map(|(mood, _)| *mood);
            }
            if let Some((tint, _)) = TINTS.iter().find(|(_, words)| known(words))
                && hints.tints.len() < 2
                && !hints.tints.contains(tint)
            {
                hints.tints.push(*tint);
            }
        }
        hints
    }
}

/// The word, or more than one of it.
fn is(word: &str, known: &str) -> bool {
    word.strip_prefix(known).is_some_and(|rest| matches!(rest, "" | "s" | "es"))
        || known.strip_suffix('y').is_some_and(|stem| word.strip_prefix(stem) == Some("ies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_steer_and_others_do_not() {
        let hints = Hints::of("Two golden CITIES at midnight, red sky");
        assert_eq!(hints.scene, Some(Scene::City));
        assert_eq!(hints.mood, Some(Mood::Night));
        assert_eq!(hints.tints, [Tint::Hue(90.0), Tint::Hue(25.0)]);
        assert_eq!(Hints::of("season of redemption, knightly"), Hints::default());
    }
}
