//! Parses record ids on the command line.

use uuid::Uuid;

pub(crate) fn parse_record_id(text: &str) -> Result<Uuid, String> {
    let hint = "expected a UUID, such as 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    match text.parse() {
        Ok(id) => Ok(id),
        // Probably an unset shell variable.
        Err(_) if text.is_empty() => Err(format!("the record id is empty: {hint}")),
        Err(_) => Err(format!("`{text}` is not a record id: {hint}")),
    }
}
