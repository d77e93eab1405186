//! Messages posted by HTTP, with TLS in Rust and the roots that come with it.

use std::time::Duration;

use ureq::Agent;
use ureq::http::HeaderMap;

use crate::delivery::{Message, NotPosted, Post, Posted};

/// For a whole call, from the name's lookup to the end of the answer's head.
const WHOLE: Duration = Duration::from_secs(30);

/// Posts by HTTP/1.1. Follows no redirect, goes through no proxy, and reads no more of an answer than its head.
///
/// Each message carries `Idempotency-Key`, the same at every try, `Onceward-Source` and `Onceward-Attempt`; its body is JSON.
#[derive(Clone, Debug)]
pub struct Http {
    agent: Agent,
}

impl Default for Http {
    fn default() -> Self {
        Self::new(WHOLE)
    }
}

impl Http {
    /// Give up a call after so long.
    pub fn new(timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A message goes where its lifecycle said, or nowhere.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(timeout))
            // The body of an answer is not read, so no connection can be used again.
            .max_idle_connections(0)
            .user_agent("onceward")
            .build();
        Self { agent: config.new_agent() }
    }

    fn send(&self, message: &Message) -> Result<Posted, NotPosted> {
        if !["http://", "https://"].iter().any(|scheme| message.to.starts_with(scheme)) {
            return Err(NotPosted::Never("only http:// and https:// addresses can be posted to".to_owned()));
        }
        let request = self
            .agent
            .post(&*message.to)
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", &*message.key)
            .header("Onceward-Source", &*message.source)
            .header("Onceward-Attempt", message.attempt.to_string());
        match request.send(&message.body[..]) {
            Ok(response) => {
                let retry_after = retry_after(response.headers());
                Ok(Posted { status: response.status().as_u16(), retry_after })
            }
            Err(error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => Err(NotPosted::Never(error.to_string())),
            Err(error) => Err(NotPosted::NotNow(error.to_string())),
        }
    }
}

impl Post for Http {
    async fn post(&self, message: Message) -> Result<Posted, NotPosted> {
        let http = self.clone();
        // The client waits on its thread; how long is bounded above.
        let posted = tokio::task::spawn_blocking(move || http.send(&message)).await;
        posted.unwrap_or_else(|error| Err(NotPosted::NotNow(error.to_string())))
    }
}

/// In seconds; a date is not worth a clock of its own.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
