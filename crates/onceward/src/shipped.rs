//! The lifecycles of the systems that ship with Onceward, carried inside the binary.

use std::sync::Arc;

use onceward_core::diagnostic::{InputFile, InputFiles};

/// Path from the repository's root, and text; listed by build.rs.
const SHIPPED_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Lifecycles that are part of the engine itself and stand beside every file.
pub(crate) fn is_built_in(lifecycle: &str) -> bool {
    lifecycle.starts_with("onceward.")
}

pub(crate) fn files() -> InputFiles {
    InputFiles {
        files: SHIPPED_FILES
            .iter()
            .map(|(name, text)| InputFile { name: (*name).to_owned(), text: Arc::from(*text) })
            .collect(),
    }
}
