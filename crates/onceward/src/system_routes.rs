//! Collects the HTTP routes of the shipped systems.

use onceward_server::SystemRoutes;

/// Returns the routes of all systems. Needs no database or network: handlers get both per call.
pub(crate) fn all_system_routes() -> Vec<SystemRoutes> {
    vec![
        onceward_system_document::system_routes(onceward_system_document::UploadLimits::default()),
        onceward_system_image::system_routes(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::all_system_routes;

    /// `ONCEWARD_BLESS=1` regenerates the file.
    #[test]
    fn openapi_matches_checked_in_file() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let generated = onceward_server::openapi_document(all_system_routes()).to_pretty_json().expect("JSON") + "\n";
        if std::env::var_os("ONCEWARD_BLESS").is_some() {
            std::fs::write(&path, generated).expect("write docs/openapi.json");
            return;
        }
        let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(checked_in == generated, "docs/openapi.json is outdated; ONCEWARD_BLESS=1 regenerates it");
    }

    #[test]
    fn operation_ids_are_unique() {
        let api = serde_json::to_value(onceward_server::openapi_document(all_system_routes())).expect("JSON");
        let mut seen = BTreeSet::new();
        for operation in
            api["paths"].as_object().expect("paths").values().flat_map(|item| item.as_object().expect("item").values())
        {
            let id = operation["operationId"].as_str().expect("operation id").to_owned();
            assert!(seen.insert(id.clone()), "operation id {id} is used twice");
        }
    }
}
