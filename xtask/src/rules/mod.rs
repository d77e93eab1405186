//! `cargo xtask rules`: writes the rules index, which lists where each rule is implemented and which tests prove it.

pub(crate) mod declared;
pub(crate) mod id;
pub(crate) mod index;
pub(crate) mod lifecycle_file;
pub(crate) mod rule_removals;
pub(crate) mod rust_file;

use anyhow::{Result, bail};

use crate::tree;
use index::RuleIndex;

const RULES_PAGE: &str = "docs/generated/rules.md";

pub(crate) fn write() -> Result<()> {
    let index = RuleIndex::read_all()?;
    tree::generate(RULES_PAGE, &index.render_page(), false, "")?;
    println!("{RULES_PAGE}: {}", index.summary());
    ensure_complete(&index)
}

pub(crate) fn check() -> Result<()> {
    let index = RuleIndex::read_all()?;
    ensure_complete(&index)?;
    tree::generate(RULES_PAGE, &index.render_page(), true, "cargo xtask rules")?;
    println!("{}", index.summary());
    Ok(())
}

fn ensure_complete(index: &RuleIndex) -> Result<()> {
    let wrong = index.find_problems();
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("the rules index has {} problems:\n  {}", wrong.len(), wrong.join("\n  "))
}
