//! The rules index: for every rule of a declared system, in which lifecycle line or code it lives and which tests show it.

pub(crate) mod declared;
pub(crate) mod id;
pub(crate) mod index;
pub(crate) mod lifecycle_file;
pub(crate) mod rust_file;
pub(crate) mod take_away;

use anyhow::{Result, bail};

use crate::tree;
use index::Index;

const PAGE: &str = "docs/rules.md";

pub(crate) fn write() -> Result<()> {
    let index = Index::gather()?;
    tree::generate(PAGE, &index.page(), false, "")?;
    println!("{PAGE}: {}", index.summary());
    judge(&index)
}

pub(crate) fn check() -> Result<()> {
    let index = Index::gather()?;
    judge(&index)?;
    tree::generate(PAGE, &index.page(), true, "cargo xtask rules")?;
    println!("{}", index.summary());
    Ok(())
}

fn judge(index: &Index) -> Result<()> {
    let wrong = index.wrong();
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("the rules index finds {} faults:\n  {}", wrong.len(), wrong.join("\n  "))
}
