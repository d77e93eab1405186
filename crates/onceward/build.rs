//! Lists the lifecycle files of the shipped systems for `include_str!`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Relative to this package's folder: Cargo caches a build script's output with the target folder, so an absolute path
/// would be wrong once both are copied or moved.
const SYSTEMS_DIR: &str = "../../systems";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SYSTEMS_DIR}");
    let systems = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join(SYSTEMS_DIR);
    let mut list = String::from("&[\n");
    for system in sorted_entries(&systems)?.into_iter().filter(|path| path.is_dir()) {
        for file in sorted_entries(&system)? {
            let is_lifecycle = file.extension().is_some_and(|extension| extension == "toml")
                && file.file_name().is_some_and(|name| name != "Cargo.toml");
            if is_lifecycle {
                let name = file.strip_prefix(&systems)?.display().to_string();
                let (shown, path) = (format!("systems/{name}"), format!("/{SYSTEMS_DIR}/{name}"));
                writeln!(list, "    ({shown:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),")?;
            }
        }
    }
    list.push(']');
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("shipped.rs"), list)?;
    Ok(())
}

/// Returns a folder's entries, sorted so that the same files always build the same binary.
fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}
