//! Suggests known names for an unknown one.

pub(super) use crate::suggest::suggest_name;

/// Returns the help for an unknown name: the closest known name, or a list of the known names. `diagnostic_count`
/// counts earlier diagnostics.
pub(super) fn suggestion_help<'a>(
    diagnostic_count: usize,
    unknown_name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    const MAX_LISTED_NAMES: usize = 12;
    let known: Vec<&str> = known.into_iter().collect();
    match suggest_name(diagnostic_count, unknown_name, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "none is declared: declare it in the file first".to_owned(),
        None => {
            let names: Vec<String> = known.iter().take(MAX_LISTED_NAMES).map(|name| format!("`{name}`")).collect();
            format!("known names: {}{}", names.join(", "), if known.len() > MAX_LISTED_NAMES { ", …" } else { "" })
        }
    }
}
