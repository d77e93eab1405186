//! Connects worker processes to the lab's engine: the test forwards their calls, as a server would.

use onceward_core::decide::Call;
use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;
use onceward_engine::LeasedJob;
use serde_json::json;

use super::lab_engine::LabEngine;
use super::process::LabProcess;

impl LabEngine {
    /// Reads a lease request from the process and sends it the leased job.
    pub(crate) async fn serve_lease(
        &self,
        process: &mut LabProcess,
        worker_name: &str,
        lifecycle: &str,
        seconds: i64,
        job_kind: &str,
    ) -> Option<LeasedJob> {
        process.expect_line("lease");
        let held = self.lease(worker_name, lifecycle, seconds).await;
        match &held {
            Some(held) => process.send_line(&format!("job {} {} {job_kind}", held.record.id.0, held.token.0)),
            None => process.send_line("none"),
        }
        held
    }

    /// Reads a commit from the process, executes it and returns the reply, which the process repeats.
    pub(crate) async fn serve_commit(&self, process: &mut LabProcess, worker_name: &str) -> String {
        let words = process.next_line().expect("process is running");
        let words: Vec<&str> = words.split(' ').collect();
        let ["commit", id, token, result] = words[..] else { panic!("{words:?} is not a commit") };
        let record = RecordId(id.parse().expect("a valid id"));
        let (token, result) = (FencingToken(token.parse().expect("a number")), json!(result));
        let reply = self.report(worker_name, Call::Commit { record, token, result, finish: false }).await;
        process.send_line(&reply);
        process.expect_line(&format!("told {reply}"));
        reply
    }
}
