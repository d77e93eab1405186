//! Recognizes words that steer the built-in generator. The rest of the prompt only affects its seed.

use super::palette::LightMood;
use super::scenes::SceneKind;

/// The recognized hints of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PromptHints {
    pub(super) scene: Option<SceneKind>,
    pub(super) mood: Option<LightMood>,
    /// The first color is the main one, the second its counterpart.
    pub(super) tints: Vec<ColorTint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ColorTint {
    /// In degrees of OKLCH.
    Hue(f64),
    Gray,
}

const SCENE_WORDS: [(SceneKind, &[&str]); 10] = [
    (
        SceneKind::Sea,
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
    (SceneKind::Mountains, &["mountain", "peak", "alp", "cliff", "glacier", "volcano", "summit", "fjord", "lake"]),
    (SceneKind::Forest, &["forest", "tree", "wood", "pine", "fir", "jungle", "bear", "wolf", "deer", "fox", "owl"]),
    (SceneKind::City, &["city", "town", "skyline", "street", "building", "tower", "skyscraper", "house", "castle"]),
    (
        SceneKind::Hills,
        &["hill", "valley", "meadow", "field", "country", "landscape", "dune", "desert", "horse", "farm"],
    ),
    (SceneKind::Bloom, &["flower", "rose", "petal", "bloom", "blossom", "garden", "lotus", "dahlia", "mandala", "bee"]),
    (SceneKind::Stars, &["star", "galaxy", "constellation", "cosmos", "universe", "nebula", "comet"]),
    (SceneKind::Planet, &["planet", "space", "astronaut", "rocket", "saturn", "jupiter", "mars", "world", "spaceship"]),
    (
        SceneKind::Flow,
        &["wind", "river", "dream", "smoke", "storm", "flow", "music", "dance", "fire", "abstract", "hair"],
    ),
    (
        SceneKind::Tiles,
        &["tile", "pattern", "mosaic", "quilt", "geometric", "carpet", "bauhaus", "puzzle", "robot", "machine"],
    ),
];

const MOOD_WORDS: [(LightMood, &[&str]); 8] = [
    (LightMood::Night, &["night", "midnight", "moon", "moonlight", "moonlit", "dark", "nocturnal"]),
    (LightMood::Sunset, &["sunset", "evening", "glowing", "romantic"]),
    (LightMood::Dusk, &["dusk", "twilight", "neon", "cyberpunk", "gloomy"]),
    (LightMood::Dawn, &["dawn", "sunrise", "morning", "mist", "misty", "fog", "foggy", "pastel"]),
    (LightMood::Winter, &["winter", "snow", "snowy", "ice", "icy", "frozen", "arctic", "cold", "frost"]),
    (LightMood::Autumn, &["autumn", "fall", "october", "harvest", "rustic"]),
    (LightMood::Desert, &["desert", "dune", "sand", "sahara", "canyon", "savanna"]),
    (LightMood::Day, &["day", "noon", "sunny", "summer", "spring", "bright", "sky"]),
];

const TINT_WORDS: [(ColorTint, &[&str]); 10] = [
    (ColorTint::Hue(25.0), &["red", "crimson", "scarlet", "ruby"]),
    (ColorTint::Hue(55.0), &["orange", "copper", "rust", "tangerine", "peach"]),
    (ColorTint::Hue(90.0), &["yellow", "gold", "golden", "amber", "honey", "lemon"]),
    (ColorTint::Hue(145.0), &["green", "emerald", "olive", "mint", "jade"]),
    (ColorTint::Hue(195.0), &["teal", "turquoise", "cyan", "aqua"]),
    (ColorTint::Hue(255.0), &["blue", "azure", "navy", "cobalt", "indigo", "sapphire"]),
    (ColorTint::Hue(305.0), &["purple", "violet", "lavender", "lilac", "plum"]),
    (ColorTint::Hue(355.0), &["pink", "magenta", "fuchsia", "rosy", "coral"]),
    (ColorTint::Hue(60.0), &["brown", "sepia", "chocolate"]),
    (ColorTint::Gray, &["black", "white", "grey", "gray", "silver", "monochrome"]),
];

impl PromptHints {
    pub(super) fn parse(prompt: &str) -> Self {
        let mut hints = Self::default();
        let lower = prompt.to_lowercase();
        for word in lower.split(|letter: char| !letter.is_alphanumeric()) {
            let matches_any = |words: &[&str]| words.iter().any(|known| matches_word(word, known));
            if hints.scene.is_none() {
                hints.scene = SCENE_WORDS.iter().find(|(_, words)| matches_any(words)).map(|(scene, _)| *scene);
            }
            if hints.mood.is_none() {
                hints.mood = MOOD_WORDS.iter().find(|(_, words)| matches_any(words)).map(|(mood, _)| *mood);
            }
            if let Some((tint, _)) = TINT_WORDS.iter().find(|(_, words)| matches_any(words))
                && hints.tints.len() < 2
                && !hints.tints.contains(tint)
            {
                hints.tints.push(*tint);
            }
        }
        hints
    }
}

/// Returns whether `word` is `known` or its plural.
fn matches_word(word: &str, known: &str) -> bool {
    word.strip_prefix(known).is_some_and(|rest| matches!(rest, "" | "s" | "es"))
        || known.strip_suffix('y').is_some_and(|stem| word.strip_prefix(stem) == Some("ies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_set_hints_and_others_do_not() {
        let hints = PromptHints::parse("Two golden CITIES at midnight, red sky");
        assert_eq!(hints.scene, Some(SceneKind::City));
        assert_eq!(hints.mood, Some(LightMood::Night));
        assert_eq!(hints.tints, [ColorTint::Hue(90.0), ColorTint::Hue(25.0)]);
        assert_eq!(PromptHints::parse("season of redemption, knightly"), PromptHints::default());
    }
}
