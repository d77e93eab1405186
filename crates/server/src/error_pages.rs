//! The documentation page of each error code, embedded in the binary and served at a problem's `type`.

/// Error codes and their pages, sorted by code. `build.rs` generates the list from `docs/errors`.
const ERROR_PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Returns all error codes with their pages.
pub fn error_pages() -> &'static [(&'static str, &'static str)] {
    ERROR_PAGES
}

/// The index of all error codes.
const ERROR_INDEX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/README.md"));

pub(crate) fn has_page(code: &str) -> bool {
    find_page(code).is_some()
}

/// Returns the page of a code with links resolved for serving.
pub(crate) fn render_page(code: &str) -> Option<String> {
    find_page(code).map(resolve_links)
}

/// Returns the index with links resolved for serving.
pub(crate) fn render_index() -> String {
    resolve_links(ERROR_INDEX)
}

fn find_page(code: &str) -> Option<&'static str> {
    ERROR_PAGES.binary_search_by_key(&code, |(code, _)| code).ok().map(|at| ERROR_PAGES[at].1)
}

/// Rewrites the relative links of a page. Links to other error pages point to their served path; links to other
/// documents become the file's path in the repository, because the server does not serve those.
fn resolve_links(page: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(page.len()), page);
    while let Some((before, after)) = rest.split_once("](")
        && let (Some(open), Some((target, behind))) = (before.rfind('['), after.split_once(')'))
    {
        let (before, label) = (&before[..open], &before[open + 1..]);
        text.push_str(before);
        text.push_str(&resolve_link(label, target));
        rest = behind;
    }
    text + rest
}

fn resolve_link(label: &str, target: &str) -> String {
    let file = target.split('#').next().unwrap_or_default();
    match file.strip_prefix("../") {
        Some(file) if file == label || file.strip_suffix(".md") == Some(label) => format!("`docs/{file}`"),
        Some(file) => format!("{label} (`docs/{file}`)"),
        None => match file.strip_suffix(".md") {
            Some("README") => format!("[{label}](/errors)"),
            Some(code) => format!("[{label}](/errors/{code})"),
            None => format!("[{label}]({target})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn collect_rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect_rust_files(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }

    /// Collects codes that follow a status in source text: `409, "lease_lost"`.
    fn collect_codes_after_status(text: &str, codes: &mut BTreeSet<String>) {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let status = pair[0].strip_suffix(',').unwrap_or_default();
            let status = &status[status.len().saturating_sub(3)..];
            let code = pair[1].strip_prefix('"').and_then(|rest| rest.split('"').next()).unwrap_or_default();
            let is_status = status.parse().is_ok_and(|status: u16| (400..600).contains(&status));
            if is_status && !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                codes.insert(code.to_owned());
            }
        }
    }

    /// Collects the codes that `fn code` of this source returns.
    fn collect_codes_of_code_fn(source: &str, codes: &mut BTreeSet<String>) {
        let from = source.find("fn code(").expect("it has one");
        let lines = source[from..].lines().take_while(|line| *line != "    }");
        codes.extend(lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned));
    }

    #[test]
    fn links_to_pages_are_served_and_other_links_become_file_names() {
        let page = "a [b](c.md) d ([auth.md](../auth.md)), [backup](../backup.md); the [inbox](../postgres.md#the-inbox)\n\n\
                    [Below](#below), [all](README.md), a list[0] (not a link)\n";
        assert_eq!(
            resolve_links(page),
            "a [b](/errors/c) d (`docs/auth.md`), `docs/backup.md`; the inbox (`docs/postgres.md`)\n\n\
             [Below](#below), [all](/errors), a list[0] (not a link)\n"
        );
    }

    #[test]
    fn every_error_code_has_a_page_and_an_index_line() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut codes = BTreeSet::new();
        let systems =
            std::fs::read_dir(crates.join("../systems")).unwrap().map(|entry| entry.unwrap().path().join("src"));
        let source_folders = ["core/src/decide", "server/src", "engine/src"].map(|folder| crates.join(folder));
        for folder in source_folders.into_iter().chain(systems.filter(|folder| folder.is_dir())) {
            let mut files = Vec::new();
            collect_rust_files(&folder, &mut files);
            for file in &files {
                collect_codes_after_status(&std::fs::read_to_string(file).unwrap(), &mut codes);
            }
        }
        // The outcome of a delivery goes into its record, not into a response.
        codes.remove("not_acknowledged");
        collect_codes_of_code_fn(include_str!("../../engine/src/error.rs"), &mut codes);
        collect_codes_of_code_fn(include_str!("../../store/src/error.rs"), &mut codes);
        collect_codes_of_code_fn(include_str!("../../engine/src/objects/mod.rs"), &mut codes);
        // The engine composes the first itself; the server writes the second before it reads a request.
        codes.extend(["check_unavailable", "too_many_connections"].map(str::to_owned));
        let documented: BTreeSet<String> = ERROR_PAGES.iter().map(|(code, _)| (*code).to_owned()).collect();
        assert_eq!(documented, codes);
        let listed = ERROR_INDEX
            .match_indices("| [`")
            .map(|(at, _)| ERROR_INDEX[at + 4..].split('`').next().unwrap().to_owned());
        assert_eq!(listed.collect::<BTreeSet<_>>(), codes);
        for (code, page) in ERROR_PAGES {
            assert!(page.starts_with(&format!("# `{code}`\n")), "{code}");
        }
    }
}
