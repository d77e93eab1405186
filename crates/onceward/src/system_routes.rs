//! What the shipped systems add to the server: their routes, and so their share of the contract.

use onceward_server::SystemRoutes;

/// All of them. Needs neither a database nor a network: what a part works with, its handlers find when they are called.
pub(crate) fn all_system_routes() -> Vec<SystemRoutes> {
    vec![
        onceward_system_document::system_routes(onceward_system_document::UploadLimits::default()),
        onceward_system_image::system_routes(),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::all_system_routes;

    /// What the code says is what is checked in. `ONCEWARD_BLESS=1` writes it anew; read what it wrote.
    #[test]
    fn openapi_matches_checked_in_file() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let generated = onceward_server::openapi_document(all_system_routes()).to_pretty_json().expect("JSON") + "\n";
        if std::env::var_os("ONCEWARD_BLESS").is_some() {
            std::fs::write(&path, generated).expect("it can be written");
            return;
        }
        let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(checked_in == generated, "docs/openapi.json is not what the code says: ONCEWARD_BLESS=1 writes it");
    }
}
