//! Compares the catalog of error codes with the codes and statuses in the source.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use super::ErrorCatalog;
use crate::tree;

/// Files with a `fn code` and a `fn status` that match over the same enum.
const ERROR_ENUM_FILES: [&str; 3] =
    ["crates/engine/src/error.rs", "crates/store/src/error.rs", "crates/engine/src/objects/mod.rs"];

/// Where a code directly follows its status, as in `Problem::new(404, "not_found", …)`.
const LITERAL_FOLDERS: [&str; 4] = ["crates/core/src/decide/", "crates/engine/src/", "crates/server/src/", "systems/"];

/// Builds its refusal field by field.
const CHECK_UNAVAILABLE: (&str, u16) = ("check_unavailable", 503);

/// The outcome of a delivery. It goes into the delivery's record, not into a response.
const DELIVERY_OUTCOME: &str = "not_acknowledged";

type CodeStatuses = BTreeSet<(String, u16)>;

/// Collects codes that follow a status: `409, "lease_lost"`.
fn collect_literals(text: &str, found: &mut CodeStatuses) {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    for pair in words.windows(2) {
        let status = pair[0].strip_suffix(',').unwrap_or_default();
        let status = status.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let code = pair[1].strip_prefix('"').and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if let (true, Ok(status @ 400..600)) = (is_code, status.parse::<u16>()) {
            found.insert((code.to_owned(), status));
        }
    }
}

/// Joins the arms of `fn code` and `fn status` by their patterns. An arm without a literal passes to another error.
fn collect_enum(source: &str, found: &mut CodeStatuses) -> Result<()> {
    let codes = match_arms(source, "fn code(")?;
    let statuses = match_arms(source, "fn status(")?;
    for (pattern, code) in &codes {
        let Some(code) = code.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { continue };
        let status = statuses.get(pattern).with_context(|| format!("`fn status` has no arm `{pattern}`"))?;
        found.insert((code.to_owned(), status.parse().with_context(|| format!("the status of `{pattern}`"))?));
    }
    Ok(())
}

/// Returns the alternatives of a function's `match self` and the text of their arms.
fn match_arms(source: &str, function: &str) -> Result<BTreeMap<String, String>> {
    let (_, body) = source.split_once(function).with_context(|| format!("no `{function}`"))?;
    let (_, arms) = body.split_once("match self {").with_context(|| format!("`{function}` does not match"))?;
    let (arms, _) = arms.split_once("\n        }").with_context(|| format!("`{function}` does not end"))?;
    let mut found = BTreeMap::new();
    for arm in arms.split(",\n").filter(|arm| !arm.trim().is_empty()) {
        let (patterns, value) = arm.split_once("=>").with_context(|| format!("no arm: {arm}"))?;
        for pattern in patterns.split('|') {
            found.insert(pattern.trim().to_owned(), value.trim().trim_end_matches(',').to_owned());
        }
    }
    Ok(found)
}

fn collect_from_source() -> Result<CodeStatuses> {
    let mut found = BTreeSet::from([(CHECK_UNAVAILABLE.0.to_owned(), CHECK_UNAVAILABLE.1)]);
    let is_source = |path: &str| {
        LITERAL_FOLDERS.iter().any(|folder| path.starts_with(folder))
            && path.contains("/src/")
            && tree::has_extension(path, "rs")
    };
    for source in tree::sources(is_source)? {
        collect_literals(&source.text, &mut found);
    }
    for file in ERROR_ENUM_FILES {
        collect_enum(&std::fs::read_to_string(tree::root().join(file))?, &mut found).context(file)?;
    }
    found.retain(|(code, _)| code != DELIVERY_OUTCOME);
    Ok(found)
}

#[test]
fn catalog_has_the_codes_and_statuses_of_the_source() -> Result<()> {
    let catalog = ErrorCatalog::read()?;
    let documented: CodeStatuses = catalog.errors.iter().map(|entry| (entry.code.clone(), entry.status)).collect();
    let source = collect_from_source()?;
    let missing: Vec<_> = source.difference(&documented).collect();
    let unused: Vec<_> = documented.difference(&source).collect();
    if missing.is_empty() && unused.is_empty() {
        return Ok(());
    }
    bail!("only in the source: {missing:?}; only in {}: {unused:?}", super::CATALOG_FILE)
}

#[test]
fn literals_and_enum_arms_are_found_with_their_status() -> Result<()> {
    let mut found = BTreeSet::new();
    collect_literals("Problem::new(404, \"not_found\", x); f(10, \"no\"); refuse(409,\n \"stuck\", y)", &mut found);
    let source = "fn status(&self) -> u16 {\n        match self {\n            Self::A\n            | Self::B(_) => 503,\n            Self::C(c) => c.status(),\n        }\n    }\n    fn code(&self) -> &str {\n        match self {\n            Self::A => \"a\",\n            Self::B(_) => \"b\",\n            Self::C(c) => c.code(),\n        }\n    }";
    collect_enum(source, &mut found)?;
    let expected = [("a", 503), ("b", 503), ("not_found", 404), ("stuck", 409)];
    assert_eq!(found, expected.map(|(code, status)| (code.to_owned(), status)).into());
    assert!(collect_enum(&source.replace("Self::B(_) => 503", "Self::D => 503"), &mut found).is_err());
    Ok(())
}
