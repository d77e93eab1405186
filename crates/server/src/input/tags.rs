//! Entity tags: which versions a caller knows, or asks for (RFC 9110, 8.8.3 and 13.1).

use axum::http::{HeaderMap, HeaderName, header};

use crate::problem::Problem;

/// What stands in `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags<'a> {
    /// `*`: whatever there is.
    Any,
    Of(Vec<Tag<'a>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag<'a> {
    text: &'a str,
    /// Of one that is as good as the other, but not the same byte for byte.
    is_weak: bool,
}

impl Tag<'_> {
    /// A version's, as we write it. Tags that others made up are of no version.
    fn version(self) -> Option<u64> {
        let version: u64 = self.text.parse().ok()?;
        (version.to_string() == self.text).then_some(version)
    }
}

/// The versions that `If-Match` asks for, any of which will do; `None` where there need be none in particular. A weak tag matches nothing
/// there, and neither does one that is not ours: none is an empty list.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<Vec<u64>>, Problem> {
    let Some(line) = line(headers, &header::IF_MATCH) else { return Ok(None) };
    match parse(&line) {
        Some(Tags::Any) => Ok(None),
        Some(Tags::Of(tags)) => {
            let strong = tags.into_iter().filter(|tag| !tag.is_weak);
            let mut versions: Vec<u64> = strong.filter_map(Tag::version).collect();
            versions.sort_unstable();
            versions.dedup();
            Ok(Some(versions))
        }
        None => Err(Problem::bad_input("If-Match is `*`, or ETags as records' answers gave them, such as \"3\"")),
    }
}

/// Whether `If-None-Match` names this version, weakly or not. What cannot be read names nothing.
pub(crate) fn is_known(headers: &HeaderMap, version: u64) -> bool {
    let Some(line) = line(headers, &header::IF_NONE_MATCH) else { return false };
    match parse(&line) {
        Some(Tags::Any) => true,
        Some(Tags::Of(tags)) => tags.into_iter().any(|tag| tag.version() == Some(version)),
        None => false,
    }
}

/// However many lines it came in, as one. Bytes that are no text are no tag of ours, and stand for what they are: something else.
fn line(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// `None` where it is not well-formed. There may be commas inside of a tag, and nothing between two commas.
fn parse(line: &str) -> Option<Tags<'_>> {
    let is_between = |letter: char| matches!(letter, ' ' | '\t' | ',');
    let mut rest = line.trim_matches(is_between);
    if rest == "*" {
        return Some(Tags::Any);
    }
    let mut tags = Vec::new();
    while !rest.is_empty() {
        let (is_weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
        let (text, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if text.chars().any(|letter| letter <= ' ' || letter == '\x7f') {
            return None;
        }
        tags.push(Tag { text, is_weak });
        rest = after.trim_start_matches(is_between);
        if !after.is_empty() && !after.trim_start_matches([' ', '\t']).starts_with(',') {
            return None;
        }
    }
    (!tags.is_empty()).then_some(Tags::Of(tags))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: &HeaderName, lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn any_of_a_list_will_do() {
        let asked = |lines: &[&'static str]| if_match(&with(&header::IF_MATCH, lines)).map_err(|_| ());
        assert_eq!(asked(&[]), Ok(None));
        assert_eq!(asked(&["*"]), Ok(None));
        assert_eq!(asked(&[" * "]), Ok(None));
        assert_eq!(asked(&["\"3\""]), Ok(Some(vec![3])));
        assert_eq!(asked(&["\"3\", \"5\",\"3\""]), Ok(Some(vec![3, 5])));
        assert_eq!(asked(&["\"3\"", "\"5\""]), Ok(Some(vec![3, 5])), "on two lines");
        assert_eq!(asked(&[" , \"3\" ,, \"5\" ,"]), Ok(Some(vec![3, 5])), "nothing between two commas");
        // Well-formed, and of no version.
        for none in ["W/\"3\"", "\"abc\"", "\"\"", "\"03\"", "\"3,4\"", "\"+3\"", "\"18446744073709551616\""] {
            assert_eq!(asked(&[none]), Ok(Some(Vec::new())), "{none}");
        }
        assert_eq!(asked(&["W/\"3\", \"4\""]), Ok(Some(vec![4])));
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
            assert_eq!(asked(&[wrong]), Err(()), "{wrong}");
        }
    }

    #[test]
    fn whoever_knows_the_version_is_told_so() {
        let known = |line: &'static str| is_known(&with(&header::IF_NONE_MATCH, &[line]), 3);
        for yes in ["*", "\"3\"", "W/\"3\"", "\"2\", W/\"3\", \"4\"", "\"a,b\",\"3\""] {
            assert!(known(yes), "{yes}");
        }
        for no in ["\"2\"", "W/\"2\"", "\"abc\"", "3", "\"3", "", "\"03\"", "\"2,3\""] {
            assert!(!known(no), "{no}");
        }
        assert!(!is_known(&HeaderMap::new(), 3));
    }
}
