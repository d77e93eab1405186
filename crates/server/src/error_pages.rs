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
    use super::*;

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
    fn every_page_has_an_index_line() {
        let listed = ERROR_INDEX.match_indices("| [`").map(|(at, _)| ERROR_INDEX[at + 4..].split('`').next().unwrap());
        assert_eq!(listed.collect::<Vec<_>>(), ERROR_PAGES.iter().map(|(code, _)| *code).collect::<Vec<_>>());
        for (code, page) in ERROR_PAGES {
            assert!(page.starts_with(&format!("# `{code}`\n")), "{code}");
        }
    }
}
