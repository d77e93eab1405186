//! A simulated producer and worker: creates, leases, commits, fails and cancels tasks, and repeats calls without a
//! reply. The seed determines all choices.

use anyhow::Result;
use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;
use onceward_testkit::random::Rng;
use serde_json::{Value as Json, json};

use crate::ack_ledger::AckLedger;
use crate::requests::{self, RequestOutcome};

/// Short leases expire while their worker goes on.
const LEASE_SECS_CHOICES: [i64; 4] = [1, 2, 30, 30];

/// A lease that the client holds.
#[derive(Clone, Debug)]
struct ClientLease {
    id: RecordId,
    token: FencingToken,
    worker: String,
}

#[derive(Clone, Debug)]
enum ClientAction {
    /// Creates a task. `is_new_name`: the name was never used before.
    Create {
        name: String,
        idempotency_key: Option<String>,
        is_new_name: bool,
    },
    Lease {
        id: Option<RecordId>,
        worker: String,
        seconds: i64,
    },
    Heartbeat {
        held: ClientLease,
    },
    Commit {
        held: ClientLease,
        finish: bool,
    },
    Finish {
        held: ClientLease,
    },
    Fail {
        held: ClientLease,
    },
    Cancel {
        id: RecordId,
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct LoadClient {
    rng: Rng,
    name: String,
    names_made: u64,
    /// The newest task that this client created.
    own_task: Option<(String, RecordId)>,
    lease: Option<ClientLease>,
    action: Option<ClientAction>,
    /// Committed, but not finished yet.
    to_finish: Option<ClientLease>,
    /// The call was sent before, and its result is unknown.
    outcome_unknown: bool,
}

impl LoadClient {
    pub(crate) fn new(name: String, rng: Rng) -> Self {
        Self {
            rng,
            name,
            names_made: 0,
            own_task: None,
            lease: None,
            action: None,
            to_finish: None,
            outcome_unknown: false,
        }
    }

    /// Returns an unused name.
    fn next_name(&mut self) -> String {
        self.names_made += 1;
        format!("{}-{}", self.name, self.names_made)
    }

    /// Chooses the next action and returns its request.
    pub(crate) fn next_request(&mut self) -> Json {
        let action = self.choose_action();
        let request = action.request();
        self.action = Some(action);
        request
    }

    fn choose_action(&mut self) -> ClientAction {
        // Without a reply, repeat a call that is safe to repeat because it carries an idempotency key or a fencing
        // token.
        if let Some(
            doing @ (ClientAction::Create { idempotency_key: Some(_), .. }
            | ClientAction::Commit { .. }
            | ClientAction::Finish { .. }),
        ) = self.action.take()
        {
            return doing;
        }
        self.outcome_unknown = false;
        if let Some(held) = self.to_finish.take() {
            return ClientAction::Finish { held };
        }
        if let Some(held) = self.lease.clone() {
            return match self.rng.below(20) {
                0..3 => ClientAction::Heartbeat { held },
                3..13 => ClientAction::Commit { held, finish: true },
                13..15 => ClientAction::Commit { held, finish: false },
                15..18 => ClientAction::Fail { held },
                // Simulates a worker that disappears.
                18 => self.create_action(),
                _ => ClientAction::Cancel { id: held.id, why: self.next_name() },
            };
        }
        let worker = self.next_name();
        let seconds = LEASE_SECS_CHOICES[self.rng.below(LEASE_SECS_CHOICES.len())];
        match (&self.own_task, self.rng.below(20)) {
            (Some((_, id)), 0..6) => ClientAction::Lease { id: Some(*id), worker, seconds },
            (Some((_, id)), 6) => ClientAction::Cancel { id: *id, why: worker },
            (Some((name, _)), 7) => {
                ClientAction::Create { name: name.clone(), idempotency_key: None, is_new_name: false }
            }
            (_, 8..13) => ClientAction::Lease { id: None, worker, seconds },
            _ => self.create_action(),
        }
    }

    fn create_action(&mut self) -> ClientAction {
        self.lease = None;
        let name = self.next_name();
        let idempotency_key = self.rng.percent(50).then(|| format!("key-{name}"));
        ClientAction::Create { name, idempotency_key, is_new_name: true }
    }

    /// Handles a reply.
    pub(crate) fn on_outcome(&mut self, told: &RequestOutcome, ledger: &mut AckLedger) -> Result<()> {
        let Some(action) = self.action.clone() else { return Ok(()) };
        match told {
            RequestOutcome::Unknown(_) => {
                self.on_no_reply();
                return Ok(());
            }
            RequestOutcome::Refused(_) => {
                ledger.refused += 1;
                self.on_refused(action, ledger);
            }
            RequestOutcome::Done { id, token, .. } => {
                ledger.acknowledged += 1;
                self.on_done(action, *id, *token, ledger)?;
            }
        }
        self.action = None;
        Ok(())
    }

    fn on_done(
        &mut self,
        action: ClientAction,
        id: Option<RecordId>,
        token: Option<FencingToken>,
        ledger: &mut AckLedger,
    ) -> Result<()> {
        match action {
            ClientAction::Create { name, .. } => {
                if let Some(id) = id {
                    ledger.record_created(&name, id)?;
                    self.own_task = Some((name, id));
                }
            }
            ClientAction::Lease { worker, .. } => match (id, token) {
                (Some(id), Some(token)) => {
                    ledger.record_lease(id, token, &worker)?;
                    self.lease = Some(ClientLease { id, token, worker });
                }
                // No task was ready.
                _ => ledger.record_no_lease(&worker),
            },
            ClientAction::Heartbeat { .. } => {}
            ClientAction::Commit { held, finish } => {
                ledger.record_commit(held.id, &held.worker, finish)?;
                self.lease = None;
                if !finish {
                    self.to_finish = Some(held);
                }
            }
            ClientAction::Finish { held } => ledger.record_finish(held.id),
            ClientAction::Fail { held } => {
                ledger.record_failure(held.id, held.token);
                self.lease = None;
            }
            ClientAction::Cancel { id, why } => {
                ledger.record_cancel(id, &why)?;
                self.lease = None;
            }
        }
        Ok(())
    }

    fn on_refused(&mut self, action: ClientAction, ledger: &mut AckLedger) {
        match action {
            // Only an unused name proves that the task must not exist.
            ClientAction::Create { name, idempotency_key: None, is_new_name: true } => {
                ledger.record_create_refused(&name);
            }
            ClientAction::Lease { worker, .. } => {
                ledger.record_no_lease(&worker);
                self.own_task = None;
            }
            // If the call was sent before, the first one may have been committed.
            ClientAction::Commit { held, .. } if !self.outcome_unknown => {
                ledger.record_commit_refused(held.id, &held.worker);
            }
            ClientAction::Cancel { id, why } => {
                ledger.record_cancel_refused(id, &why);
                self.own_task = None;
            }
            _ => {}
        }
        self.lease = None;
    }

    /// Handles a lost reply. A lease whose reply was lost has no holder that knows of it.
    pub(crate) fn on_no_reply(&mut self) {
        self.outcome_unknown = true;
        if let Some(ClientAction::Fail { .. } | ClientAction::Cancel { .. }) = self.action {
            self.lease = None;
            self.own_task = None;
        }
    }
}

impl ClientAction {
    fn request(&self) -> Json {
        match self {
            Self::Create { name, idempotency_key: key, .. } => requests::create_task(name, key.as_deref()),
            Self::Lease { id: Some(id), worker, seconds } => requests::lease(worker, *id, *seconds),
            Self::Lease { id: None, worker, seconds } => requests::lease_any(worker, *seconds),
            Self::Heartbeat { held } => requests::heartbeat(&held.worker, held.id, held.token, 2),
            Self::Commit { held, finish } => {
                requests::commit(&held.worker, held.id, held.token, json!(held.worker), *finish)
            }
            Self::Finish { held } => requests::finish(&held.worker, held.id, held.token),
            Self::Fail { held } => requests::fail(&held.worker, held.id, held.token),
            Self::Cancel { id, why } => requests::cancel(*id, why),
        }
    }
}
