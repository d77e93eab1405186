//! Folds spellings that look alike to one form: letters of other alphabets, wide and ornate letters, combining marks,
//! invisible characters. Prompts and word lists are compared in this form.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

/// Returns the three forms in which texts are compared: lower case without marks; the same after mapping each letter to
/// the plainest one that it looks like; lower case without marks with enclosed signs read as letters.
///
/// The forms are separate because lookalikes depend on case, so the second form distinguishes `Σ` and `σ`, and because
/// a flag emoji after a word is written with enclosed signs but does not belong to the word.
pub(super) fn comparison_forms(text: &str) -> [String; 3] {
    let is_visible = |letter: &char| !is_invisible(*letter);
    let visible: String = text.chars().filter(is_visible).nfkc().filter(is_visible).collect();
    // Run twice: of some letters only the capital looks like another letter, of others only the lower-case one.
    let confusables_mapped = fold_case_and_marks(&map_confusables(&fold_case_and_marks(&map_confusables(&visible))));
    let with_letters: String = visible.chars().map(enclosed_sign_to_letter).collect();
    [fold_case_and_marks(&visible), confusables_mapped, fold_case_and_marks(&with_letters)]
}

/// Maps white-on-black, circled, squared and regional-indicator letters to plain ones. NFKC leaves them unchanged.
fn enclosed_sign_to_letter(symbol: char) -> char {
    let first = match symbol {
        '\u{1f150}'..='\u{1f169}' => 0x1f150,
        '\u{1f170}'..='\u{1f189}' => 0x1f170,
        '\u{1f1e6}'..='\u{1f1ff}' => 0x1f1e6,
        _ => return symbol,
    };
    // An offset below 26 from `a` is always a letter.
    char::from_u32(u32::from('a') + u32::from(symbol) - first).unwrap_or(symbol)
}

/// Returns whether a character is invisible or only formats others.
pub(crate) const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}')
}

/// Maps each non-ASCII letter to the one that it looks like. ASCII letters stay: Unicode maps `m` to `rn`, which would
/// turn harmless words into others.
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

/// Folds to lower case without marks. It goes through upper case, which turns `ß` into `SS` and unifies both sigmas.
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

    /// IMG-15
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
        assert_eq!(confusable_form("НАТ"), "hat", "Cyrillic capitals");
        assert_eq!(confusable_form("pom"), "pom", "ASCII letters stay");
    }

    /// IMG-15
    #[test]
    fn enclosed_letters_fold_to_letters() {
        for text in ["🅢🅣🅡🅐🅢🅢🅔", "🆂🆃🆁🅰🆂🆂🅴", "🇸🇹🇷🇦🇸🇸🇪", "🅂🅃🅁🄰🅂🅂🄴", "Ⓢⓣⓡⓐⓢⓢⓔ", "🇸\u{200b}tr🅰sse"]
        {
            assert_eq!(comparison_forms(text)[2], "strasse", "{text}");
        }
        assert_eq!(comparison_forms("straße🇫🇷")[1], "strasse🇫🇷", "a flag after a word does not belong to it");
    }

    #[test]
    fn other_scripts_stay_distinct() {
        assert_eq!(comparison_forms("猫"), ["猫", "猫", "猫"]);
        assert_ne!(comparison_forms("кот")[0], comparison_forms("кит")[0]);
        assert_eq!(comparison_forms("ΟΔΟΣ")[0], comparison_forms("οδός")[0], "case is ignored");
        assert_eq!(comparison_forms(""), ["", "", ""]);
    }
}
