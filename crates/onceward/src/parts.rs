//! What the shipped systems add to the server: their routes, and so their share of the contract.

use onceward_server::Part;

/// All of them. Needs neither a database nor a network: what a part works with, its handlers find when they are called.
pub(crate) fn parts() -> Vec<Part> {
    vec![onceward_system_document::part(onceward_system_document::Bounds::default()), onceward_system_image::part()]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parts;

    /// What the code says is what is checked in. `ONCEWARD_BLESS=1` writes it anew; read what it wrote.
    #[test]
    fn the_contract_is_as_checked_in() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let made = onceward_server::contract(parts()).to_pretty_json().expect("JSON") + "\n";
        if std::env::var_os("ONCEWARD_BLESS").is_some() {
            std::fs::write(&path, made).expect("it can be written");
            return;
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "docs/openapi.json is not what the code says: ONCEWARD_BLESS=1 writes it");
    }
}
