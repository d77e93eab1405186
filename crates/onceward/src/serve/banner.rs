//! What the server prints when it has started.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use onceward_engine::RetentionPolicy;
use onceward_store::PostgresScanner;

use super::lifecycles::StartupLifecycles;
use super::{ServeArgs, ServeDatabase};
use crate::database::DatabaseUrl;
use crate::doctor::format_size;
use crate::inactive_files::InactiveFile;

/// What the banner says beside the arguments.
pub(super) struct Banner<'a> {
    pub(super) address: SocketAddr,
    /// All lifecycles, including those that only the database has.
    pub(super) lifecycles: &'a BTreeSet<Arc<str>>,
    pub(super) startup_lifecycles: &'a StartupLifecycles,
    pub(super) inactive_files: &'a [InactiveFile],
    pub(super) retention: &'a RetentionPolicy,
    pub(super) database_bytes: Option<u64>,
    pub(super) requires_key: bool,
}

impl ServeArgs {
    /// Returns the size of the database; `None` if it is unknown.
    pub(super) async fn database_bytes(&self) -> Option<u64> {
        match &*self.db {
            ServeDatabase::Persistent(DatabaseUrl::Sqlite(path)) => Some(std::fs::metadata(path).ok()?.len()),
            ServeDatabase::Persistent(DatabaseUrl::Postgres(url)) => {
                Some(PostgresScanner::open(url).await.ok()?.status().await.ok()?.database_bytes)
            }
            ServeDatabase::Temporary => None,
        }
    }

    /// Describes the server, what it keeps, and the next commands.
    pub(super) fn startup_message(&self, banner: &Banner<'_>) -> String {
        let Banner { address, lifecycles, startup_lifecycles, requires_key, .. } = *banner;
        let version = env!("CARGO_PKG_VERSION");
        let server =
            if address.to_string() == "127.0.0.1:7171" { String::new() } else { format!("--server http://{address} ") };
        // Hide the engine's built-in lifecycles.
        let lifecycles: Vec<&str> =
            lifecycles.iter().map(|name| &**name).filter(|name| !name.starts_with("onceward.")).collect();
        let example = if lifecycles.contains(&"execution.job") { "execution.job" } else { "LIFECYCLE" };
        let lifecycles = lifecycles.join(", ");
        let access = if requires_key { "API key required" } else { "no API keys, local requests only" };
        let mut text = format!(
            "onceward {version} on {}, {access}\nlistening on http://{address}\n\nlifecycles: {lifecycles}\n",
            self.db
        );
        if !startup_lifecycles.replaced.is_empty() {
            text.extend(["replaced by your file: ", &startup_lifecycles.replaced.join(", "), "\n"]);
        }
        for skipped in &startup_lifecycles.skipped {
            text.extend(["not loaded: system ", skipped, "\n"]);
        }
        for file in banner.inactive_files {
            let _ = writeln!(text, "not active: {file}; to activate the file's version: {}", file.command());
        }
        let size = banner
            .database_bytes
            .map_or_else(String::new, |bytes| format!("; the database has {}", format_size(bytes)));
        let _ = writeln!(text, "kept: {}{size}", banner.retention);
        let key = if requires_key {
            "  export ONCEWARD_KEY=ow_…  # your API key; `onceward key create` creates one\n"
        } else {
            ""
        };
        let next_steps = format!(
            "\nTry in another terminal:\n{key}  onceward new {server}{example} --payload '{{\"hello\": \"world\"}}'\n  \
             onceward work {server}{example} -- cat\n\nPress Ctrl-C to stop.\n"
        );
        text.push_str(&next_steps);
        text
    }
}
