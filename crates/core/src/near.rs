//! "Did you mean": the known name that is closest to an unknown one.

use crate::bounds;

/// A file may hold thousands of unknown names: what is tried for each of them is bounded.
const LONGEST: usize = 40;
const CANDIDATES: usize = 100;
/// Names listed where none is near.
const LISTED: usize = 20;

/// The candidate that differs least, if it differs little enough to be a slip of the pen.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let allowed = (length / 3).clamp(1, 3);
    if length > LONGEST {
        return None;
    }
    candidates
        .into_iter()
        .take(CANDIDATES)
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= allowed)
        .map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// As `nearest`, while there are few messages yet: nobody reads the guesses of a thousand.
pub(crate) fn guessed<'a>(told: usize, name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if told < bounds::GUESSES { nearest(name, candidates) } else { None }
}

/// A sentence that proposes the nearest name, or else lists what there is; `told` counts the messages so far.
pub(crate) fn advice<'a>(
    told: usize,
    name: &str,
    what: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    if let Some(near) = guessed(told, name, candidates.clone()) {
        return format!("did you mean `{near}`?");
    }
    let mut names: Vec<String> = candidates.into_iter().take(LISTED + 1).map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return format!("there are no {what}");
    }
    if names.len() > LISTED {
        names[LISTED] = "…".into();
    }
    format!("the {what}: {}", names.join(", "))
}

/// The candidate that is one slip away at most, whatever the case of the letters.
pub(crate) fn slip_of<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.chars().count() > LONGEST {
        return None;
    }
    candidates.into_iter().take(CANDIDATES).find(|candidate| distance(&name.to_lowercase(), candidate) <= 1)
}

/// Letters to insert, delete, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
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
    fn slips_are_found_and_strangers_are_not() {
        assert_eq!(nearest("RUNING", ["QUEUED", "RUNNING"]), Some("RUNNING"));
        assert_eq!(nearest("hwen", ["when", "go"]), Some("when"));
        assert_eq!(nearest("banana", ["when", "go"]), None);
        assert_eq!(nearest("retyCount", ["retryCount", "maxRetries"]), Some("retryCount"));
        assert_eq!(nearest("runing", ["RUNNING", "FAILED"]), Some("RUNNING"));
        assert_eq!(nearest("xyz", ["state"]), None);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(advice(0, "x", "states", []), "there are no states");
    }
}
