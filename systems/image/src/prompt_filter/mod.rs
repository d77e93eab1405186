//! Prompt filter: answers the external check `prompt` of image jobs.
//!
//! | file | content |
//! | --- | --- |
//! | `text_normalization.rs` | folds lookalike spellings of a text to one form |
//! | `word_list.rs` | finds listed words and phrases in a prompt |

mod text_normalization;
mod word_list;

use std::sync::Arc;

use onceward_engine::{CheckError, CheckRegistry, CheckRequest};
use serde_json::{Map, Value as Json, json};
use tracing::info;

use crate::JOB_LIFECYCLE;
use crate::prompt_payload;
use crate::provider::{ImageRequest, ModerationClient};
pub(crate) use text_normalization::is_invisible;
pub use word_list::{WordList, WordListError};

/// Decides whether a prompt is allowed.
#[derive(Debug, Default)]
pub struct PromptFilter {
    pub word_list: WordList,
    /// Called for prompts that contain no listed word.
    pub moderation: Option<ModerationClient>,
}

/// Registers the filter as the check `prompt` of image jobs.
pub fn register_prompt_check(registry: CheckRegistry, filter: PromptFilter) -> CheckRegistry {
    let guard = Arc::new(filter);
    registry.register(JOB_LIFECYCLE, "prompt", move |request: CheckRequest| {
        let guard = Arc::clone(&guard);
        async move {
            let payload = request.payload.ok_or_else(|| CheckError("the job has no prompt".to_owned()))?;
            guard.evaluate(prompt_payload::parse_payload(&payload).as_ref()).await
        }
    })
}

impl PromptFilter {
    /// IMG-15: Returns the verdict and the prompt's hash. Neither the answer nor the log contains a flagged prompt or
    /// the reason; the hash identifies it. An unreadable payload does not pass, and the moderation service is not
    /// called.
    async fn evaluate(&self, order: Option<&ImageRequest>) -> Result<Map<String, Json>, CheckError> {
        let Some(order) = order else { return Ok(check_answer(false, false, &"0".repeat(64))) };
        let sha256 = prompt_payload::hash_request(order);
        let flagged_by =
            if self.word_list.is_found_in(&order.prompt) { Some("words") } else { self.moderate(order).await? };
        if let Some(by) = flagged_by {
            info!(sha256, by, "prompt filter flagged a prompt");
        }
        Ok(check_answer(true, flagged_by.is_none(), &sha256))
    }

    /// Calls the moderation service, if any. Its failure is an error, not a pass: the order is refused and can be
    /// retried.
    async fn moderate(&self, order: &ImageRequest) -> Result<Option<&'static str>, CheckError> {
        let Some(moderation) = &self.moderation else { return Ok(None) };
        let flagged = moderation.is_flagged(&order.prompt).await.map_err(CheckError)?;
        Ok(flagged.then_some("moderation"))
    }
}

fn check_answer(readable: bool, pass: bool, sha256: &str) -> Map<String, Json> {
    let answer = [("readable", json!(readable)), ("pass", json!(pass)), ("sha256", json!(sha256))];
    answer.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate_prompt(prompt: &str) -> Json {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime
            .block_on(PromptFilter::default().evaluate(prompt_payload::parse_payload(prompt.as_bytes()).as_ref()))
            .unwrap()
            .into()
    }

    /// IMG-15
    #[test]
    fn flagged_prompt_answer_contains_only_verdict_and_hash() {
        let bad = evaluate_prompt(r#"{"prompt":"hardcore p\u200born by the window"}"#);
        assert_eq!(bad["pass"], false);
        // printf '{"prompt":"hardcore p\xe2\x80\x8born by the window","size":"1024x1024"}' | sha256sum
        assert_eq!(bad["sha256"], "b07a7392b656f188545524b666f015f58a1db829a2028901b77f9ae04742b959");
        assert_eq!((&bad["readable"], bad.as_object().map(Map::len)), (&json!(true), Some(3)));
        assert_eq!(evaluate_prompt("a cat by the window")["pass"], true);
    }

    /// IMG-15
    #[test]
    fn unreadable_payload_does_not_pass() {
        for payload in
            [r#"{"text":"porn"}"#, r#"{"prompt":"x","prompt":"\u0070orn"}"#, r#"{"prompt":"a cat","n":1}"#, "\u{200b}"]
        {
            let judged = evaluate_prompt(payload);
            assert_eq!((&judged["readable"], &judged["pass"]), (&json!(false), &json!(false)), "{payload}");
        }
    }
}
