//! Races for relay's prize: many passing verdicts at once. The first one resolves the job, and all others must fail.

use anyhow::{Context as _, Result, bail, ensure};
use onceward_core::decide::Call;
use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;
use onceward_testkit::worker;
use serde_json::{Value as Json, json};

use crate::races::{RaceHarness, RelayPrize};
use crate::requests::{RequestOutcome, call_request, commit, create, fire};

/// Relay's limit per minute.
const MAX_SUBMISSIONS_PER_AGENT: usize = 10;

/// Sends a passing verdict for every submission at once.
pub(crate) fn race_for_prize(harness: &mut RaceHarness, round: usize) -> Result<()> {
    let caller_count = harness.caller_count();
    let agents: Vec<String> =
        (0..caller_count.div_ceil(MAX_SUBMISSIONS_PER_AGENT)).map(|number| format!("agent-{round}-{number}")).collect();
    let buyer = format!("buyer-{round}");
    let agent = |name: &String| create("relay.agent", name, json!({ "agent_id": name }));
    create_all(harness, agents.iter().chain([&buyer]).map(agent).collect())?;
    let fields = json!({ "title": "t", "description": "d", "price": 1_000_000, "max_submissions": 100, "max_retries": MAX_SUBMISSIONS_PER_AGENT });
    let job = create_all(harness, vec![create("relay.job", &buyer, fields)])?[0];
    let fund = fire(&buyer, job, "fund", json!({ "tx_hash": format!("0x{round:064x}") }));
    create_all(harness, vec![fund])?;
    create_all(harness, agents.iter().map(|name| fire(name, job, "claim", json!({}))).collect())?;
    let submission = |number: usize| {
        let mut question =
            create("relay.submission", &agents[number / MAX_SUBMISSIONS_PER_AGENT], json!({ "job": job }));
        question["bytes"] = json!(format!("answer {number}"));
        question
    };
    let submissions = create_all(harness, (0..caller_count).map(submission).collect())?;
    let oracle = worker("oracle");
    let lease = |record: &RecordId| {
        call_request(&oracle, &Call::Lease { record: *record, worker: "oracle".into(), lease: None, start: true })
    };
    let tokens = harness.request(submissions.iter().map(lease).collect())?;
    let tokens = tokens.into_iter().map(lease_token).collect::<Result<Vec<_>>>()?;
    let verdict = json!({ "score": 100, "steps": [] });
    let outcomes =
        harness.race(|number| commit("oracle", submissions[number], tokens[number], verdict.clone(), true))?;
    harness.counts.resolutions += 1;
    // A verdict is accepted, or fails because its submission was discarded. One of the accepted verdicts has won.
    ensure!(outcomes.iter().any(RequestOutcome::is_winner), "no submission was judged: {outcomes:?}");
    // Retry the verdicts that ended in a conflict: they have lost by now.
    let late = json!({ "score": 100, "steps": [] });
    let again = |number: usize| commit("oracle", submissions[number], tokens[number], late.clone(), true);
    harness.request((0..caller_count).map(again).collect())?;
    let claim = harness.request(vec![fire(&buyer, job, "cancel", json!({}))])?.pop().context("a reply")?;
    ensure!(matches!(claim, RequestOutcome::Refused(_)), "the job could be cancelled after it was won: {claim:?}");
    harness.prizes.push(RelayPrize { job, submissions });
    Ok(())
}

fn create_all(harness: &mut RaceHarness, requests: Vec<Json>) -> Result<Vec<RecordId>> {
    harness.request(requests)?.into_iter().map(RequestOutcome::into_created_id).collect()
}

fn lease_token(outcome: RequestOutcome) -> Result<FencingToken> {
    match outcome {
        RequestOutcome::Done { token: Some(token), .. } => Ok(token),
        other => bail!("no lease: {other:?}"),
    }
}
