//! The world outside, as the lab's engines find it.

use onceward_engine::{CheckError, CheckRegistry, CheckRequest};
use serde_json::{Map, Value as Json, json};

/// Questions to the outside, and who answers them.
pub(crate) fn checks() -> CheckRegistry {
    CheckRegistry::default().register("relay.job", "deposit", answer_deposit)
}

/// As relay answers where no chain is configured.
async fn answer_deposit(request: CheckRequest) -> Result<Map<String, Json>, CheckError> {
    let arguments = &request.query.arguments;
    let answer = json!({
        "ok": true, "on_chain": false, "amount": arguments["at_least"], "tx_hash": arguments["tx_hash"],
        "sender": "0x00000000000000000000000000000000000000aa",
    });
    let Json::Object(answer) = answer else { return Err(CheckError("no object".to_owned())) };
    Ok(answer)
}
