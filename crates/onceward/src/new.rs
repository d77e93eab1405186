//! `onceward new`: creates a record.

use std::io::Read as _;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use onceward_worker::{NewRecord, Payload};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::output::{CommandStatus, print_stderr};
use crate::record_id::parse_record_id;
use crate::remote::ServerArgs;

/// Create a record and print its id
///
/// A field value is parsed as JSON; if that fails, it is text: `n=3` is a number, `name=ann` is text. In a shell, quote a number that is
/// meant as text: `'name="3"'`.
///
/// A payload that is valid JSON is stored unchanged. Other text is stored as a JSON string, with a note if it looks like JSON. The bytes
/// of a file (`@FILE`) or of standard input (`-`) are stored unchanged.
///
/// Exit codes: 0 the record exists; 1 the call was refused; 2 the server cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward new execution.job --payload 'hello'\n  onceward new execution.job --field budget=3 --payload @order.json --once order-17"
)]
pub(crate) struct NewArgs {
    /// Name of the lifecycle
    lifecycle: String,
    /// Value of a field. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_field)]
    field: Vec<(String, Value)>,
    /// Input for the worker: text, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "TEXT|@FILE|-")]
    payload: Option<String>,
    /// Idempotency key: with the same key, only one record is created
    #[arg(long, value_name = "KEY")]
    once: Option<String>,
    /// Id of the record, a UUIDv7. Default: the server chooses one
    #[arg(long, value_parser = parse_record_id)]
    id: Option<Uuid>,
    /// Owner of the record; only operators may set it. Default: the owner of the API key
    #[arg(long)]
    owner: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
    /// Print the record as JSON
    #[arg(long)]
    json: bool,
}

fn parse_field(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// Reads the payload as JSON, or as text if it is not JSON.
fn read_payload(argument: &str) -> Result<Payload> {
    let bytes = if argument == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read the payload from standard input")?;
        bytes
    } else if let Some(path) = argument.strip_prefix('@') {
        std::fs::read(path).with_context(|| format!("cannot read the payload file {path}"))?
    } else {
        return Ok(match serde_json::from_str(argument) {
            Ok(json) => Payload::Json(json),
            Err(error) => {
                // Probably JSON with a syntax error.
                if argument.trim_start().starts_with(['{', '[']) {
                    print_stderr(&format!("note: the payload is not valid JSON ({error}) and is stored as text\n"));
                }
                Payload::text(argument)
            }
        });
    };
    Ok(Payload::Bytes(bytes.into()))
}

impl NewArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let mut fields = Map::new();
        for (name, value) in &self.field {
            if fields.insert(name.clone(), value.clone()).is_some() {
                return Err(anyhow!("--field `{name}` was given twice"));
            }
        }
        let record = NewRecord {
            id: self.id,
            fields,
            payload: self.payload.as_deref().map(read_payload).transpose()?,
            owner: self.owner.clone(),
            idempotency_key: self.once.clone(),
        };
        let send = |client: onceward_worker::Client| async move { client.create(&self.lifecycle, &record).await };
        self.remote.run_request(self.json, send, |record| format!("{}\n", record.id))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_value_is_json_or_else_text() {
        let value = |text: &str| parse_field(text).expect("NAME=VALUE").1;
        assert_eq!(value("n=3"), json!(3));
        assert_eq!(value("n=\"3\""), json!("3"));
        assert_eq!(value("n=a=b"), json!("a=b"));
        assert_eq!(value("n="), json!(""));
        assert!(parse_field("n").is_err());
    }
}
