//! A text as it looks to a reader. There are many ways to write what looks the same: other alphabets' letters, wide and ornate ones, marks above and
//! through them, characters that nobody sees. All of them come to one form here; a list of words is brought to it, too, and then compared.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

/// The forms that texts are compared in: small letters without marks; the same with each letter as the plainest that it can be taken for; and
/// with signs that are letters on a ground read as letters. Each for itself: what a letter looks like depends on its case, and in the second
/// form `Σ` and `σ` are not the same; and a flag after a word is no part of the word, though it is written with such signs.
pub(super) fn comparison_forms(text: &str) -> [String; 3] {
    let is_visible = |letter: &char| !is_invisible(*letter);
    let visible: String = text.chars().filter(is_visible).nfkc().filter(is_visible).collect();
    // Twice: of some letters only the capital looks like another, of others only the small one.
    let confusables_mapped = fold_case_and_marks(&map_confusables(&fold_case_and_marks(&map_confusables(&visible))));
    let with_letters: String = visible.chars().map(enclosed_sign_to_letter).collect();
    [fold_case_and_marks(&visible), confusables_mapped, fold_case_and_marks(&with_letters)]
}

/// White letters on black, in circles and squares, and those that flags are written with. Unicode has no plain form for them.
fn enclosed_sign_to_letter(symbol: char) -> char {
    let first = match symbol {
        '\u{1f150}'..='\u{1f169}' => 0x1f150,
        '\u{1f170}'..='\u{1f189}' => 0x1f170,
        '\u{1f1e6}'..='\u{1f1ff}' => 0x1f1e6,
        _ => return symbol,
    };
    // One of 26 after the first: always a letter.
    char::from_u32(u32::from('a') + u32::from(symbol) - first).unwrap_or(symbol)
}

/// Characters that show nothing, or only how others are to be shown.
pub(crate) const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}')
}

/// Each foreign letter as the one that it can be taken for. Those of ASCII stay: to Unicode an `m` is an `rn`, which would make other
/// words of good ones.
fn map_confusables(text: &str) -> String {
    let mut mapped = String::with_capacity(text.len());
    let mut letter = [0; 4];
    for letter_in in text.chars() {
        if letter_in.is_ascii() {
            mapped.push(letter_in);
        } else {
            mapped.extend(skeleton(letter_in.encode_utf8(&mut letter)));
        }
    }
    mapped
}

/// Small letters without marks. By way of the capitals: a sharp s is two, and a sigma is one wherever it stands.
fn fold_case_and_marks(text: &str) -> String {
    let lowercase = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    lowercase.nfd().filter(|letter| !is_combining_mark(*letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::comparison_forms;

    fn confusable_form(text: &str) -> String {
        comparison_forms(text)[1].clone()
    }

    /// IMG-15: all of these look like one word, and are.
    #[test]
    fn lookalike_spellings_have_same_form() {
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
            assert_eq!(confusable_form(text), "strasse", "{text}");
        }
        assert_eq!(confusable_form("НАТ"), "hat", "capitals that are Cyrillic");
        assert_eq!(confusable_form("pom"), "pom", "an m is an m");
    }

    /// IMG-15: so do letters that are drawn on a ground.
    #[test]
    fn enclosed_letters_fold_to_letters() {
        for text in ["🅢🅣🅡🅐🅢🅢🅔", "🆂🆃🆁🅰🆂🆂🅴", "🇸🇹🇷🇦🇸🇸🇪", "🅂🅃🅁🄰🅂🅂🄴", "Ⓢⓣⓡⓐⓢⓢⓔ", "🇸\u{200b}tr🅰sse"]
        {
            assert_eq!(comparison_forms(text)[2], "strasse", "{text}");
        }
        assert_eq!(comparison_forms("straße🇫🇷")[1], "strasse🇫🇷", "a flag is no part of the word before it");
    }

    #[test]
    fn other_scripts_stay_distinct() {
        assert_eq!(comparison_forms("猫"), ["猫", "猫", "猫"]);
        assert_ne!(comparison_forms("кот")[0], comparison_forms("кит")[0]);
        assert_eq!(comparison_forms("ΟΔΟΣ")[0], comparison_forms("οδός")[0], "whatever the case");
        assert_eq!(comparison_forms(""), ["", "", ""]);
    }
}
