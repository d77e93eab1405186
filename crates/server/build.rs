//! Generates the list of pages in `docs/errors` that the server embeds.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// Relative to this package, so that a copied target folder stays valid.
const ERROR_PAGES_DIR: &str = "../../docs/errors";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ERROR_PAGES_DIR}");
    let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join(ERROR_PAGES_DIR);
    let mut codes = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        codes.extend(name.strip_suffix(".md").filter(|code| *code != "README").map(str::to_owned));
    }
    // The server looks codes up by binary search.
    codes.sort();
    let mut list = String::from("&[\n");
    for code in codes {
        let path = format!("/{ERROR_PAGES_DIR}/{code}.md");
        writeln!(list, "    ({code:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),")?;
    }
    list.push(']');
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("pages.rs"), list)?;
    Ok(())
}
