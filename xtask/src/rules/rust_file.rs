//! Finds the rules that a Rust file cites. Reads line by line and relies on rustfmt: a module's closing brace has the
//! module's indentation.

use super::id::{self, RuleId};

/// A line of code without its comment.
pub(crate) struct CodeLine<'a> {
    pub(crate) number: usize,
    pub(crate) code: &'a str,
    pub(crate) comment: &'a str,
}

/// A test function and the rules that its doc comment names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestFunction {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) rules: Vec<RuleId>,
}

/// Returns whether the whole file is tests: in the lab, in a `tests` folder, or a module with such a name.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.starts_with("assurance/lab/")
        || path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

/// Returns the lines outside of `#[cfg(test)]` modules.
pub(crate) fn code_outside_tests<'a>(path: &str, text: &'a str) -> Vec<CodeLine<'a>> {
    if is_test_file(path) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut closing: Option<String> = None;
    let mut test_item_follows = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(brace) = &closing {
            if line == brace {
                closing = None;
            }
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "#[cfg(test)]" {
            test_item_follows = true;
            continue;
        }
        if test_item_follows {
            if line.trim_start().starts_with("#[") {
                continue;
            }
            test_item_follows = false;
            if line.trim_end().ends_with('{') {
                closing = Some(format!("{indent}}}"));
            }
            continue;
        }
        let (code, comment) = split_comment(line);
        lines.push(CodeLine { number: number + 1, code, comment });
    }
    lines
}

/// Splits at the first `//` that is not inside a string. `://` in a URL does not count.
fn split_comment(line: &str) -> (&str, &str) {
    let mut in_string = false;
    let mut previous = ' ';
    for (at, c) in line.char_indices() {
        if c == '"' && previous != '\\' && previous != '\'' {
            in_string = !in_string;
        }
        if !in_string && c == '/' && line[at + 1..].starts_with('/') {
            return line.split_at(at);
        }
        previous = c;
    }
    (line, "")
}

/// Returns the rules that comments outside of tests name. An id in backticks is an example, not a citation.
pub(crate) fn citations(path: &str, text: &str) -> Vec<(usize, Vec<RuleId>)> {
    code_outside_tests(path, text)
        .iter()
        .map(|line| (line.number, line.comment.split('`').step_by(2).flat_map(id::find_rule_ids).collect::<Vec<_>>()))
        .filter(|(_, rules)| !rules.is_empty())
        .collect()
}

/// Returns the test functions with the rules named in their doc comments.
pub(crate) fn test_functions(path: &str, text: &str) -> Vec<TestFunction> {
    let mut tests = Vec::new();
    let (mut rules, mut is_test) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("//") {
            rules.extend(id::find_rule_ids(comment));
        } else if line.starts_with("#[") {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        } else {
            let line = line.trim_start_matches("pub ").trim_start_matches("async ");
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
            if let (true, Some(name)) = (is_test, name) {
                let rules = std::mem::take(&mut rules);
                tests.push(TestFunction { path: path.into(), line: number + 1, name: name.into(), rules });
            }
            rules.clear();
            is_test = false;
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_SOURCE: &str = "\
// EXE-8: the token guards it.
fn guard() -> &'static str { \"http://x // DOC-1\" } // EXE-9

#[cfg(test)]
mod tests {
    // EXE-10 is not a citation here.
    /// EXE-8, EXE-9: refused.
    #[test]
    fn refuses() {}

    #[tokio::test]
    async fn cites_nothing() {}
}

// INV-1, as in `INV-2`
";

    #[test]
    fn comments_outside_tests_are_citations() {
        let found = citations("crates/core/src/x.rs", SAMPLE_SOURCE);
        assert!(found.iter().all(|(_, rules)| rules.len() == 1), "{found:?}");
        let found: Vec<String> = found.iter().map(|(line, rules)| format!("{line} {}", rules[0])).collect();
        assert_eq!(found, ["1 EXE-8", "2 EXE-9", "15 INV-1"]);
        assert!(citations("crates/core/tests/x.rs", SAMPLE_SOURCE).is_empty());
    }

    #[test]
    fn test_function_has_rules_of_its_comment() {
        let found = super::test_functions("crates/core/src/x.rs", SAMPLE_SOURCE);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].name.as_str(), found[0].rules.len()), ("refuses", 3));
        assert!(found[1].rules.is_empty());
    }
}
