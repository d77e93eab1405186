//! Lists the lifecycle files of the shipped systems, so that the binary carries them wherever it goes.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let systems = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../systems").canonicalize()?;
    println!("cargo::rerun-if-changed={}", systems.display());
    let mut list = String::from("&[\n");
    for system in entries(&systems)?.into_iter().filter(|path| path.is_dir()) {
        println!("cargo::rerun-if-changed={}", system.display());
        for file in entries(&system)? {
            let is_lifecycle = file.extension().is_some_and(|extension| extension == "toml")
                && file.file_name().is_some_and(|name| name != "Cargo.toml");
            if is_lifecycle {
                let name = file.strip_prefix(&systems)?.display().to_string();
                let path = file.display().to_string();
                writeln!(list, "    ({:?}, include_str!({path:?})),", format!("systems/{name}"))?;
            }
        }
    }
    list.push(']');
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("shipped.rs"), list)?;
    Ok(())
}

/// Sorted, so that the same files always build the same binary.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}
