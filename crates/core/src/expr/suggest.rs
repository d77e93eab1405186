//! Did you mean …?

pub(super) use crate::near::guessed;

/// What to do about an unknown name: the nearest known one, or all of them where they are few. `told` counts the messages so
/// far.
pub(super) fn help<'a>(told: usize, written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 12;
    let known: Vec<&str> = known.into_iter().collect();
    match guessed(told, written, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "none is declared: declare it in this file first".to_owned(),
        None => {
            let names: Vec<String> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
            format!("known are {}{}", names.join(", "), if known.len() > SHOWN { ", …" } else { "" })
        }
    }
}
