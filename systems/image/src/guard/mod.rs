//! The prompt guard: who answers the check `prompt` of an order.
//!
//! | file | duty |
//! | --- | --- |
//! | `fold.rs` | a text as it looks to a reader: one form for all the ways to write it |
//! | `words.rs` | the list of words, and whether a prompt has one of them |

mod fold;
mod words;

use std::sync::Arc;

use onceward_engine::{Asked, Checks, Unanswered};
use serde_json::{Map, Value as Json, json};
use tracing::info;

use crate::JOB;
use crate::order;
use crate::provider::{Moderation, Order};
pub(crate) use fold::is_unseen;
pub use words::{Unfit, Words};

/// What a prompt must pass.
#[derive(Debug, Default)]
pub struct Guard {
    pub words: Words,
    /// Asked about what has none of the words.
    pub moderation: Option<Moderation>,
}

/// Let a guard answer for orders.
pub fn checks(checks: Checks, guard: Guard) -> Checks {
    let guard = Arc::new(guard);
    checks.on(JOB, "prompt", move |asked: Asked| {
        let guard = Arc::clone(&guard);
        async move {
            let payload = asked.content.ok_or_else(|| Unanswered("the prompt is not there".to_owned()))?;
            guard.judge(order::read(&payload).as_ref()).await
        }
    })
}

impl Guard {
    /// IMG-15: whether a prompt passes, and the hash by which it is known from here on. A prompt that does not is named by nothing
    /// else, here or in any log; nor is what is wrong with it. What is no order has no prompt: nobody is asked about it, and it does not pass.
    async fn judge(&self, order: Option<&Order>) -> Result<Map<String, Json>, Unanswered> {
        let Some(order) = order else { return Ok(verdict(false, false, &"0".repeat(64))) };
        let sha256 = order::sha256(order);
        let by = if self.words.are_in(&order.prompt) { Some("words") } else { self.moderated(order).await? };
        if let Some(by) = by {
            info!(sha256, by, "a prompt was flagged");
        }
        Ok(verdict(true, by.is_none(), &sha256))
    }

    /// No answer is no consent: the order is refused for now, and can be sent again.
    async fn moderated(&self, order: &Order) -> Result<Option<&'static str>, Unanswered> {
        let Some(moderation) = &self.moderation else { return Ok(None) };
        let flagged = moderation.flagged(&order.prompt).await.map_err(Unanswered)?;
        Ok(flagged.then_some("moderation"))
    }
}

fn verdict(readable: bool, pass: bool, sha256: &str) -> Map<String, Json> {
    let answer = [("readable", json!(readable)), ("pass", json!(pass)), ("sha256", json!(sha256))];
    answer.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(prompt: &str) -> Json {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Guard::default().judge(order::read(prompt.as_bytes()).as_ref())).unwrap().into()
    }

    /// IMG-15: a verdict and a hash, nothing of the prompt.
    #[test]
    fn a_prompt_is_judged_and_named_by_its_hash() {
        let bad = judged(r#"{"prompt":"hardcore p\u200born by the window"}"#);
        assert_eq!(bad["pass"], false);
        // printf '{"prompt":"hardcore p\xe2\x80\x8born by the window","size":"1024x1024"}' | sha256sum
        assert_eq!(bad["sha256"], "b07a7392b656f188545524b666f015f58a1db829a2028901b77f9ae04742b959");
        assert_eq!((&bad["readable"], bad.as_object().map(Map::len)), (&json!(true), Some(3)));
        assert_eq!(judged("a cat by the window")["pass"], true);
    }

    /// IMG-15: what is no order does not pass, whatever stands in it.
    #[test]
    fn nothing_is_passed_unread() {
        for payload in
            [r#"{"text":"porn"}"#, r#"{"prompt":"x","prompt":"\u0070orn"}"#, r#"{"prompt":"a cat","n":1}"#, "\u{200b}"]
        {
            let judged = judged(payload);
            assert_eq!((&judged["readable"], &judged["pass"]), (&json!(false), &json!(false)), "{payload}");
        }
    }
}
