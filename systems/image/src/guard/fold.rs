//! A text as it looks to a reader. There are many ways to write what looks the same: other alphabets' letters, wide and ornate ones, marks above and
//! through them, characters that nobody sees. All of them come to one form here; a list of words is brought to it, too, and then compared.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

/// The forms that texts are compared in: small letters without marks; the same with each letter as the plainest that it can be taken for; and
/// with signs that are letters on a ground read as letters. Each for itself: what a letter looks like depends on its case, and in the second
/// form `Σ` and `σ` are not the same; and a flag after a word is no part of the word, though it is written with such signs.
pub(super) fn forms(text: &str) -> [String; 3] {
    let shown = |letter: &char| !is_unseen(*letter);
    let seen: String = text.chars().filter(shown).nfkc().filter(shown).collect();
    // Twice: of some letters only the capital looks like another, of others only the small one.
    let plain = bare(&plainest(&bare(&plainest(&seen))));
    let lettered: String = seen.chars().map(lettered).collect();
    [bare(&seen), plain, bare(&lettered)]
}

/// White letters on black, in circles and squares, and those that flags are written with. Unicode has no plain form for them.
fn lettered(sign: char) -> char {
    let first = match sign {
        '\u{1f150}'..='\u{1f169}' => 0x1f150,
        '\u{1f170}'..='\u{1f189}' => 0x1f170,
        '\u{1f1e6}'..='\u{1f1ff}' => 0x1f1e6,
        _ => return sign,
    };
    // One of 26 after the first: always a letter.
    char::from_u32(u32::from('a') + u32::from(sign) - first).unwrap_or(sign)
}

/// Characters that show nothing, or only how others are to be shown.
pub(crate) const fn is_unseen(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}')
}

/// Each foreign letter as the one that it can be taken for. Those of ASCII stay: to Unicode an `m` is an `rn`, which would make other
/// words of good ones.
fn plainest(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letter = [0; 4];
    for own in text.chars() {
        if own.is_ascii() {
            plain.push(own);
        } else {
            plain.extend(skeleton(own.encode_utf8(&mut letter)));
        }
    }
    plain
}

/// Small letters without marks. By way of the capitals: a sharp s is two, and a sigma is one wherever it stands.
fn bare(text: &str) -> String {
    let small = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    small.nfd().filter(|letter| !is_combining_mark(*letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::forms;

    fn looks(text: &str) -> String {
        forms(text)[1].clone()
    }

    /// IMG-15: all of these look like one word, and are.
    #[test]
    fn what_looks_the_same_is_the_same() {
        for text in [
            "Straße",
            "STRASSE",
            "ｓｔｒａｓｓｅ",
            "𝐒𝐭𝐫𝐚𝐬𝐬𝐞",
            "stras\u{200b}se",
            "s\u{ad}trasse",
            "strásśe",
            "s̶t̶r̶a̶s̶s̶e̶",
            "ѕtrаssе",
            "st\u{2060}rasse",
            "\u{202e}strasse",
        ] {
            assert_eq!(looks(text), "strasse", "{text}");
        }
        assert_eq!(looks("НАТ"), "hat", "capitals that are Cyrillic");
        assert_eq!(looks("pom"), "pom", "an m is an m");
    }

    /// IMG-15: so do letters that are drawn on a ground.
    #[test]
    fn letters_on_a_ground_are_letters() {
        for text in ["🅢🅣🅡🅐🅢🅢🅔", "🆂🆃🆁🅰🆂🆂🅴", "🇸🇹🇷🇦🇸🇸🇪", "🅂🅃🅁🄰🅂🅂🄴", "Ⓢⓣⓡⓐⓢⓢⓔ", "🇸\u{200b}tr🅰sse"]
        {
            assert_eq!(forms(text)[2], "strasse", "{text}");
        }
        assert_eq!(forms("straße🇫🇷")[1], "strasse🇫🇷", "a flag is no part of the word before it");
    }

    #[test]
    fn other_scripts_keep_what_they_say() {
        assert_eq!(forms("猫"), ["猫", "猫", "猫"]);
        assert_ne!(forms("кот")[0], forms("кит")[0]);
        assert_eq!(forms("ΟΔΟΣ")[0], forms("οδός")[0], "whatever the case");
        assert_eq!(forms(""), ["", "", ""]);
    }
}
