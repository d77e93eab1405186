//! Relay's prize: many verdicts at once, each of which would win. The first that passes resolves the job; all others have failed.

use anyhow::{Context as _, Result, bail, ensure};
use onceward_core::decide::Call;
use onceward_core::record::Token;
use onceward_core::value::RecordId;
use onceward_testkit::worker;
use serde_json::{Value as Json, json};

use crate::questions::{Told, commit, create, fire, question};
use crate::races::{Field, Prize};

/// Submissions of one agent: relay takes no more in a minute.
const EACH: usize = 10;

/// A passing verdict for every submission, all at once.
pub(crate) fn race(field: &mut Field, round: usize) -> Result<()> {
    let runners = field.runners();
    let agents: Vec<String> = (0..runners.div_ceil(EACH)).map(|number| format!("agent-{round}-{number}")).collect();
    let buyer = format!("buyer-{round}");
    let agent = |name: &String| create("relay.agent", name, json!({ "agent_id": name }));
    made(field, agents.iter().chain([&buyer]).map(agent).collect())?;
    let fields =
        json!({ "title": "t", "description": "d", "price": 1_000_000, "max_submissions": 100, "max_retries": EACH });
    let job = made(field, vec![create("relay.job", &buyer, fields)])?[0];
    let fund = fire(&buyer, job, "fund", json!({ "tx_hash": format!("0x{round:064x}") }));
    made(field, vec![fund])?;
    made(field, agents.iter().map(|name| fire(name, job, "claim", json!({}))).collect())?;
    let submission = |number: usize| {
        let mut question = create("relay.submission", &agents[number / EACH], json!({ "job": job }));
        question["bytes"] = json!(format!("answer {number}"));
        question
    };
    let submissions = made(field, (0..runners).map(submission).collect())?;
    let oracle = worker("oracle");
    let lease = |record: &RecordId| {
        question(&oracle, &Call::Lease { record: *record, worker: "oracle".into(), lease: None, start: true })
    };
    let tokens = field.ask(submissions.iter().map(lease).collect())?;
    let tokens = tokens.into_iter().map(token).collect::<Result<Vec<_>>>()?;
    let verdict = json!({ "score": 100, "steps": [] });
    let told = field.race(|number| commit("oracle", submissions[number], tokens[number], verdict.clone(), true))?;
    field.count.resolve += 1;
    // Each verdict is taken, or comes too late since its submission was discarded with the others; one of those taken has won.
    ensure!(told.iter().any(Told::won), "nobody was judged: {told:?}");
    // Whoever was told to try again has lost by now.
    let late = json!({ "score": 100, "steps": [] });
    let again = |number: usize| commit("oracle", submissions[number], tokens[number], late.clone(), true);
    field.ask((0..runners).map(again).collect())?;
    let claim = field.ask(vec![fire(&buyer, job, "cancel", json!({}))])?.pop().context("an answer")?;
    ensure!(matches!(claim, Told::Refused(_)), "the job could be cancelled after it was won: {claim:?}");
    field.prizes.push(Prize { job, submissions });
    Ok(())
}

fn made(field: &mut Field, questions: Vec<Json>) -> Result<Vec<RecordId>> {
    field.ask(questions)?.into_iter().map(Told::made).collect()
}

fn token(told: Told) -> Result<Token> {
    match told {
        Told::Done { token: Some(token), .. } => Ok(token),
        other => bail!("no lease: {other:?}"),
    }
}
