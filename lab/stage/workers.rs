//! Worker processes at the engine of a play: the test carries their words, as a server will.

use onceward_core::decide::Call;
use onceward_core::record::Token;
use onceward_core::value::RecordId;
use onceward_engine::Leased;
use serde_json::json;

use super::play::Play;
use super::process::Process;

impl Play {
    /// The process asks for work and gets what there is.
    pub(crate) async fn serve_lease(
        &self,
        process: &mut Process,
        who: &str,
        lifecycle: &str,
        seconds: i64,
        kind: &str,
    ) -> Option<Leased> {
        process.must_say("lease");
        let held = self.lease(who, lifecycle, seconds).await;
        match &held {
            Some(held) => process.say(&format!("job {} {} {kind}", held.record.id.0, held.token.0)),
            None => process.say("none"),
        }
        held
    }

    /// The process commits: what it was told, which it repeats.
    pub(crate) async fn serve_commit(&self, process: &mut Process, who: &str) -> String {
        let words = process.hear().expect("it lives");
        let words: Vec<&str> = words.split(' ').collect();
        let ["commit", id, token, result] = words[..] else { panic!("{words:?} is no commit") };
        let record = RecordId(id.parse().expect("an id"));
        let (token, result) = (Token(token.parse().expect("a number")), json!(result));
        let told = self.report(who, Call::Commit { record, token, result, finish: false }).await;
        process.say(&told);
        process.must_say(&format!("told {told}"));
        told
    }
}
