//! The home page, error pages and stream errors.

mod support;

use std::collections::BTreeSet;

use onceward_server::ServerConfig;
use support::with_sqlite_server;

/// After a restore from an older backup, a client's position may be beyond the log. It must get an error, not wait
/// silently.
#[test]
fn stream_after_end_of_log_returns_past_end_of_log() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let response = server.send(None, "GET", "/v1/stream?after=1000000", None);
        assert_eq!((response.status, response.problem_code().as_str()), (409, "past_end_of_log"));
        let last = response.json()["last"].as_u64().expect("`last` in the problem");
        let response = server.send(None, "GET", &format!("/v1/stream?after={last}&wait_ms=0"), None);
        assert_eq!(response.status, 200);
        server.close().await;
    });
}

#[test]
fn front_page_lists_lifecycles_only_for_valid_key() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let key = server.create_api_key("ann", &["viewer"], &[]).await;
        for (key, is_listed) in [(None, false), (Some("ow_no_such_key"), false), (Some(key.as_str()), true)] {
            let response = server.send(key, "GET", "/", None);
            assert_eq!((response.status, response.text().contains("house.job")), (200, is_listed), "{key:?}");
        }
        server.close().await;
    });
}

/// Returns link targets in Markdown and HTML.
fn links(page: &str) -> Vec<&str> {
    let targets_after = |mark: &str, end: char| -> Vec<&str> {
        page.match_indices(mark).filter_map(|(at, _)| page[at + mark.len()..].split(end).next()).collect()
    };
    [targets_after("](", ')'), targets_after("href=\"", '"')].concat()
}

/// Starts at a problem's `type`.
#[test]
fn every_link_on_served_pages_resolves() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let (mut queue, mut visited) = (vec!["/".to_owned()], BTreeSet::new());
        while let Some(path) = queue.pop() {
            if !visited.insert(path.clone()) {
                continue;
            }
            let response = server.send(None, "GET", &path, None);
            assert_eq!(response.status, 200, "{path}");
            let kind = response.header("content-type").unwrap_or_default();
            if !kind.starts_with("text/") {
                continue;
            }
            let page = response.text();
            for link in links(&page) {
                match link.strip_prefix('#') {
                    Some(part) => assert!(page.to_lowercase().contains(&format!("\n## {part}")), "{path}: {link}"),
                    // The stream never ends.
                    None if link.starts_with("/v1/stream") => {}
                    None => {
                        assert!(link.starts_with('/'), "{path}: {link} is not served");
                        queue.push(link.to_owned());
                    }
                }
            }
        }
        for (code, _) in onceward_server::error_pages() {
            assert!(visited.contains(&format!("/errors/{code}")), "no link to {code}");
        }
        server.close().await;
    });
}
