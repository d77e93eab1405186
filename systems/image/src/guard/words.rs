//! A list of words, and whether a prompt has one of them. Words are looked for as words, so that Scunthorpe and grapes are left in peace; and in
//! the ways in which people hide them: letters apart, marks between them, digits in their place.

use std::collections::HashSet;

use super::fold::forms;

/// What every list begins with, unless one's own is given in its place.
const BUILT_IN: &str = include_str!("words.txt");

/// Words of a phrase at most.
const LONGEST: usize = 8;

/// Words and phrases that no prompt may have.
#[derive(Clone, Debug)]
pub struct Words {
    /// How many words the longest phrase has.
    longest: usize,
    /// As folded words with one space between them.
    whole: HashSet<String>,
    /// Those that end in a star: whatever goes on after them is meant, too.
    beginnings: Vec<String>,
}

/// A line that is no word.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfit {
    pub line: usize,
    pub reason: &'static str,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Unfit {}

impl Default for Words {
    fn default() -> Self {
        // Read by a test.
        Self::read(BUILT_IN).unwrap_or_else(|_| Self::none())
    }
}

impl Words {
    fn none() -> Self {
        Self { longest: 0, whole: HashSet::new(), beginnings: Vec::new() }
    }

    /// One word or phrase a line; a star at its end stands for any ending, and a line that begins with `#` says something to people.
    pub fn read(text: &str) -> Result<Self, Unfit> {
        let mut words = Self::none();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (text, goes_on) = line.strip_suffix('*').map_or((line, false), |rest| (rest, true));
            for form in forms(text) {
                let phrase = apart(&form).collect::<Vec<_>>();
                let reason = match phrase.len() {
                    0 => "there is no letter in it",
                    1..=LONGEST => "",
                    _ => "a phrase has at most eight words",
                };
                if !reason.is_empty() {
                    return Err(Unfit { line: number, reason });
                }
                words.longest = words.longest.max(phrase.len());
                let phrase = phrase.join(" ");
                if goes_on {
                    words.beginnings.push(phrase);
                } else {
                    words.whole.insert(phrase);
                }
            }
        }
        Ok(words)
    }

    /// Whether one of them is in a text.
    pub(super) fn are_in(&self, text: &str) -> bool {
        forms(text).iter().flat_map(|form| spellings(form)).any(|spelled| {
            let spelled = &spelled;
            self.are_among(&apart(spelled).collect::<Vec<_>>())
                || self.are_among(&together(spelled).iter().map(String::as_str).collect::<Vec<_>>())
                || self.are_spelled_out(spelled)
        })
    }

    fn are_among(&self, words: &[&str]) -> bool {
        (0..words.len()).any(|first| {
            let longest = self.longest.min(words.len() - first);
            (1..=longest).any(|length| self.has(&words[first..first + length].join(" ")))
        })
    }

    fn has(&self, phrase: &str) -> bool {
        self.whole.contains(phrase) || self.beginnings.iter().any(|beginning| phrase.starts_with(&**beginning))
    }

    /// Letter by letter, with anything between them.
    fn are_spelled_out(&self, text: &str) -> bool {
        let mut run = String::new();
        let mut runs = Vec::new();
        for word in apart(text) {
            let mut letters = word.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) => run.push(letter),
                _ => runs.push(std::mem::take(&mut run)),
            }
        }
        runs.push(run);
        // Nobody knows where such a word begins.
        let all = || self.whole.iter().chain(&self.beginnings).filter(|word| word.chars().count() > 2);
        runs.iter().filter(|run| run.len() > 2).any(|run| all().any(|word| run.contains(&**word)))
    }
}

/// Words as they stand between whatever is no letter and no digit.
fn apart(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Words as they stand between spaces, without the marks inside them.
fn together(text: &str) -> Vec<String> {
    let bare = |word: &str| word.chars().filter(|letter| letter.is_alphanumeric()).collect::<String>();
    text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

/// As it is, and with the letters that digits and signs stand for.
fn spellings(text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned()];
    if text.contains(|letter: char| letter.is_ascii_digit() || "@$!|".contains(letter)) {
        for one in ['i', 'l'] {
            let letter = |own: char| match own {
                '0' => 'o',
                '1' | '!' | '|' => one,
                '3' => 'e',
                '4' | '@' => 'a',
                '5' | '$' => 's',
                '7' => 't',
                other => other,
            };
            all.push(text.chars().map(letter).collect());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words::read(text).unwrap()
    }

    #[test]
    fn the_built_in_list_can_be_read() {
        let words = words(BUILT_IN);
        assert!(words.whole.len() + words.beginnings.len() > 10);
        for harmless in [
            "a lighthouse at dusk",
            "a pom pom and some grapes",
            "Scunthorpe",
            "the naked mole rat",
            "children at play 🇫🇷🇩🇪",
            "cockerels",
            "Essex",
        ] {
            assert!(!words.are_in(harmless), "{harmless}");
        }
        for harmful in ["🅿🅾🆁🅽", "🇵🇴🇷🇳", "pr0n", "children nude", "a nude of a child", "nude children"]
        {
            assert!(words.are_in(harmful), "{harmful}");
        }
    }

    /// IMG-15: however it is written, it is the word; and what only has its letters is not.
    #[test]
    fn a_word_is_found_however_it_is_written() {
        let words = words("# of the house\nοδός\nrude\nbad  Thing\nugl*\n");
        for text in [
            "rude",
            "so RUDE!",
            "ｒｕｄｅ",
            "ru\u{200d}de",
            "rudе",
            "r\u{fc}de",
            "r.u.d.e",
            "r u d e",
            "a r-u-d-e cat",
            "ru-de",
            "rud3",
            "𝓻𝓾𝓭𝓮",
            "a bad thing",
            "bad\nthing",
            "b4d th1ng",
            "ugly",
            "uglier",
            "ug.ly",
            "r*u*d*e",
            "🆁🆄🅳🅴",
            "🇷🇺🇩🇪",
            "rude🇫🇷",
        ] {
            assert!(words.are_in(text), "{text}");
        }
        for text in ["crude", "rudeness", "bad", "a thing bad", "a snuggly cat", "", "r u there", "3 4 5"] {
            assert!(!words.are_in(text), "{text}");
        }
    }

    #[test]
    fn a_line_without_a_word_is_told() {
        assert_eq!(Words::read("good\n***\n").unwrap_err().line, 2);
        assert_eq!(Words::read(&"a ".repeat(9)).unwrap_err().to_string(), "line 1: a phrase has at most eight words");
        assert!(!words("").are_in("anything"));
    }
}
