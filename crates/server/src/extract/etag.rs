//! Entity tags in `If-Match` and `If-None-Match` (RFC 9110, 8.8.3 and 13.1).

use axum::http::{HeaderMap, HeaderName, header};

use crate::problem::Problem;

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ETagCondition<'a> {
    /// `*`: any version.
    Any,
    AnyOf(Vec<EntityTag<'a>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntityTag<'a> {
    text: &'a str,
    /// Marked with `W/`: equivalent, but perhaps not byte for byte identical.
    is_weak: bool,
}

impl EntityTag<'_> {
    /// Returns the record version of a tag that the server wrote, `None` for other tags.
    fn version(self) -> Option<u64> {
        let version: u64 = self.text.parse().ok()?;
        (version.to_string() == self.text).then_some(version)
    }
}

/// Returns the versions that `If-Match` accepts, or `None` if it accepts all. Weak and unknown tags match nothing,
/// so the list may be empty.
pub(crate) fn parse_if_match(headers: &HeaderMap) -> Result<Option<Vec<u64>>, Problem> {
    let Some(line) = joined_header(headers, &header::IF_MATCH) else { return Ok(None) };
    match parse_etags(&line) {
        Some(ETagCondition::Any) => Ok(None),
        Some(ETagCondition::AnyOf(tags)) => {
            let strong = tags.into_iter().filter(|tag| !tag.is_weak);
            let mut versions: Vec<u64> = strong.filter_map(EntityTag::version).collect();
            versions.sort_unstable();
            versions.dedup();
            Ok(Some(versions))
        }
        None => Err(Problem::invalid_input("`If-Match` must be `*` or a list of ETags of records, such as `\"3\"`")),
    }
}

/// Returns whether `If-None-Match` contains this version, as a strong or weak tag. A malformed header contains
/// none.
pub(crate) fn if_none_match_contains(headers: &HeaderMap, version: u64) -> bool {
    let Some(line) = joined_header(headers, &header::IF_NONE_MATCH) else { return false };
    match parse_etags(&line) {
        Some(ETagCondition::Any) => true,
        Some(ETagCondition::AnyOf(tags)) => tags.into_iter().any(|tag| tag.version() == Some(version)),
        None => false,
    }
}

/// Joins all lines of a header. Invalid UTF-8 is replaced, so it matches no tag of ours.
fn joined_header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// Parses a list of tags; `None` if malformed. A tag may contain commas, and list items may be empty.
fn parse_etags(line: &str) -> Option<ETagCondition<'_>> {
    let is_separator = |letter: char| matches!(letter, ' ' | '\t' | ',');
    let mut rest = line.trim_matches(is_separator);
    if rest == "*" {
        return Some(ETagCondition::Any);
    }
    let mut tags = Vec::new();
    while !rest.is_empty() {
        let (is_weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
        let (text, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if text.chars().any(|letter| letter <= ' ' || letter == '\x7f') {
            return None;
        }
        tags.push(EntityTag { text, is_weak });
        rest = after.trim_start_matches(is_separator);
        if !after.is_empty() && !after.trim_start_matches([' ', '\t']).starts_with(',') {
            return None;
        }
    }
    (!tags.is_empty()).then_some(ETagCondition::AnyOf(tags))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers_with(name: &HeaderName, lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn if_match_accepts_any_listed_strong_version() {
        let parsed_versions =
            |lines: &[&'static str]| parse_if_match(&headers_with(&header::IF_MATCH, lines)).map_err(|_| ());
        assert_eq!(parsed_versions(&[]), Ok(None));
        assert_eq!(parsed_versions(&["*"]), Ok(None));
        assert_eq!(parsed_versions(&[" * "]), Ok(None));
        assert_eq!(parsed_versions(&["\"3\""]), Ok(Some(vec![3])));
        assert_eq!(parsed_versions(&["\"3\", \"5\",\"3\""]), Ok(Some(vec![3, 5])));
        assert_eq!(parsed_versions(&["\"3\"", "\"5\""]), Ok(Some(vec![3, 5])), "two header lines");
        assert_eq!(parsed_versions(&[" , \"3\" ,, \"5\" ,"]), Ok(Some(vec![3, 5])), "an empty list element is ignored");
        // Well-formed, but not versions.
        for none in ["W/\"3\"", "\"abc\"", "\"\"", "\"03\"", "\"3,4\"", "\"+3\"", "\"18446744073709551616\""] {
            assert_eq!(parsed_versions(&[none]), Ok(Some(Vec::new())), "{none}");
        }
        assert_eq!(parsed_versions(&["W/\"3\", \"4\""]), Ok(Some(vec![4])));
        for wrong in [
            "",
            ",",
            "3",
            "\"3",
            "3\"",
            "w/\"3\"",
            "\"3\" \"4\"",
            "\"3\"4",
            "*, \"3\"",
            "\"3\", *",
            "\"3\", 4",
            "\"a b\"",
        ] {
            assert_eq!(parsed_versions(&[wrong]), Err(()), "{wrong}");
        }
    }

    #[test]
    fn if_none_match_compares_versions_weakly() {
        let contains = |line: &'static str| if_none_match_contains(&headers_with(&header::IF_NONE_MATCH, &[line]), 3);
        for yes in ["*", "\"3\"", "W/\"3\"", "\"2\", W/\"3\", \"4\"", "\"a,b\",\"3\""] {
            assert!(contains(yes), "{yes}");
        }
        for no in ["\"2\"", "W/\"2\"", "\"abc\"", "3", "\"3", "", "\"03\"", "\"2,3\""] {
            assert!(!contains(no), "{no}");
        }
        assert!(!if_none_match_contains(&HeaderMap::new(), 3));
    }
}
