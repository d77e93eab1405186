//! The contract as it is checked in.

use std::path::Path;

/// What the code says is what is checked in. `ONCEWARD_BLESS=1` writes it anew; read what it wrote.
#[test]
fn the_contract_is_as_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = onceward_server::contract(Vec::new()).to_pretty_json().expect("JSON") + "\n";
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        std::fs::write(&path, made).expect("it can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/openapi.json is not what the code says: ONCEWARD_BLESS=1 writes it");
}
