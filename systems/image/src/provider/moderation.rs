//! A service that says whether a prompt may be drawn, by OpenAI's protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::failure::Trouble;
use super::line::{ConfigError, Line};
use super::openai::OpenAiConfig;

/// Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Moderation {
    line: Line,
    model: String,
    time: Duration,
    most_bytes: usize,
}

#[derive(Serialize)]
struct Call<'a> {
    input: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
}

#[derive(Deserialize)]
struct Judged {
    results: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    flagged: bool,
}

impl Moderation {
    /// Configured as a service that draws is; an empty model leaves the choice to the service.
    pub fn open(config: OpenAiConfig) -> Result<Self, ConfigError> {
        let line = Line::open(&config.url, config.key.as_deref())?;
        let time = config.bounded_time();
        let OpenAiConfig { model, most_bytes, .. } = config;
        Ok(Self { line, model, time, most_bytes })
    }

    /// Whether the service objects. An error is no verdict: it says in our words why there is none, and nothing of the prompt.
    pub async fn flagged(&self, prompt: &str) -> Result<bool, String> {
        let judged = self.ask(prompt).await;
        if let Err(reason) = &judged {
            tracing::warn!(service = ?self.line, "no verdict: {reason}");
        }
        judged
    }

    async fn ask(&self, prompt: &str) -> Result<bool, String> {
        let until = Instant::now() + self.time;
        let call = Call { input: prompt, model: &self.model };
        // Strings: always JSON.
        let body = serde_json::to_vec(&call).unwrap_or_default();
        let answered = self.line.post("/moderations", body, until, self.most_bytes).await.map_err(said)?;
        if !answered.status.is_success() {
            return Err(format!("the moderation service answers {}", answered.status.as_u16()));
        }
        let judged: Judged = serde_json::from_slice(&answered.body).map_err(|_| said(Trouble::Broken))?;
        // IMG-15: any objection is one; no verdict at all is an error, not a pass.
        if judged.results.is_empty() {
            return Err(said(Trouble::Broken));
        }
        Ok(judged.results.iter().any(|verdict| verdict.flagged))
    }
}

fn said(trouble: Trouble) -> String {
    let what = match trouble {
        Trouble::TimeOut => "takes too long",
        Trouble::Unreachable => "cannot be reached",
        _ => "gives an answer that cannot be read",
    };
    format!("the moderation service {what}")
}
