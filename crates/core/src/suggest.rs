//! "Did you mean" suggestions: the known name closest to an unknown one.

use crate::bounds;

/// A file may have thousands of unknown names, so the work for each is bounded.
const MAX_NAME_CHARS: usize = 40;
const MAX_CANDIDATES: usize = 100;
/// Names listed if no name is close enough.
const MAX_LISTED_NAMES: usize = 20;

/// Returns the candidate with the smallest edit distance, if the distance is small enough for a typo.
pub fn closest_name<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let max_distance = (length / 3).clamp(1, 3);
    if length > MAX_NAME_CHARS {
        return None;
    }
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= max_distance)
        .map(|candidate| (edit_distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Like [`closest_name`], but returns `None` after [`bounds::MAX_SUGGESTIONS`] diagnostics.
pub(crate) fn suggest_name<'a>(
    reported_diagnostics: usize,
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if reported_diagnostics < bounds::MAX_SUGGESTIONS { closest_name(name, candidates) } else { None }
}

/// Returns a sentence that suggests the closest name, or else lists the candidates.
pub(crate) fn suggestion_text<'a>(
    reported_diagnostics: usize,
    name: &str,
    noun: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    if let Some(suggestion) = suggest_name(reported_diagnostics, name, candidates.clone()) {
        return format!("did you mean `{suggestion}`?");
    }
    let mut names: Vec<String> =
        candidates.into_iter().take(MAX_LISTED_NAMES + 1).map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return format!("there are no {noun}");
    }
    if names.len() > MAX_LISTED_NAMES {
        names[MAX_LISTED_NAMES] = "…".into();
    }
    format!("{noun}: {}", names.join(", "))
}

/// Returns the candidate with an edit distance of at most one, ignoring case.
pub(crate) fn find_single_typo<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.chars().count() > MAX_NAME_CHARS {
        return None;
    }
    candidates.into_iter().take(MAX_CANDIDATES).find(|candidate| edit_distance(&name.to_lowercase(), candidate) <= 1)
}

/// Edits: insert, delete or replace a letter, or swap two neighbors.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_name_finds_typos_and_rejects_unrelated_names() {
        assert_eq!(closest_name("RUNING", ["QUEUED", "RUNNING"]), Some("RUNNING"));
        assert_eq!(closest_name("hwen", ["when", "go"]), Some("when"));
        assert_eq!(closest_name("banana", ["when", "go"]), None);
        assert_eq!(closest_name("retyCount", ["retryCount", "maxRetries"]), Some("retryCount"));
        assert_eq!(closest_name("runing", ["RUNNING", "FAILED"]), Some("RUNNING"));
        assert_eq!(closest_name("xyz", ["state"]), None);
        assert_eq!(edit_distance("ab", "ba"), 1);
        assert_eq!(suggestion_text(0, "x", "states", []), "there are no states");
    }
}
