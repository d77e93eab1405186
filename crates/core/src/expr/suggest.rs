//! Did you mean …?

/// The known name nearest to the one written, if it is near enough to be a slip.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let reach = (written.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (distance(&written.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// What to do about an unknown name: the nearest known one, or all of them where they are few.
pub(super) fn help<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 12;
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(written, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => {
            let names: Vec<String> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
            format!("known are {}{}", names.join(", "), if known.len() > SHOWN { ", …" } else { "" })
        }
    }
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one to the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("retyCount", ["retryCount", "maxRetries"]), Some("retryCount"));
        assert_eq!(nearest("runing", ["RUNNING", "FAILED"]), Some("RUNNING"));
        assert_eq!(nearest("stata", ["state"]), Some("state"));
        assert_eq!(nearest("xyz", ["state"]), None);
        assert_eq!(distance("ab", "ba"), 1);
    }
}
