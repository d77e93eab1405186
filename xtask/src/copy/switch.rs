//! Puts edits behind a switch: a function that an edit changes gets a second body with the edit. So an edit may change
//! anything in a body, and rustc checks each by itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use super::functions::{FunctionBody, find_functions};
use crate::rules::rule_removals::CodeEdit;

pub(super) type NumberedEdit<'a> = (usize, &'a CodeEdit);

/// Returns the file with a switch in each function that an edit changes. `original` is the unchanged file.
/// `safeguarded` is the file with the lab's switches, which runs if no edit is active. `core_path` is the path of
/// core's functions. Fails if an edit is outside of a function that can be switched.
pub(super) fn add_switches(
    original: &str,
    safeguarded: &str,
    edits: &[NumberedEdit<'_>],
    core_path: &str,
) -> Result<String> {
    let (before, after) = (find_functions(original), find_functions(safeguarded));
    if before.len() != after.len() {
        bail!("a safeguard adds or removes a function, so functions cannot be matched");
    }
    let mut by_function: BTreeMap<usize, Vec<NumberedEdit<'_>>> = BTreeMap::new();
    for (number, edit) in edits.iter().copied() {
        let function = find_enclosing_function(original, edit, &before)?;
        by_function.entry(function).or_default().push((number, edit));
    }
    let mut text = safeguarded.to_owned();
    // Backwards, so that earlier offsets stay valid.
    for (function, edits) in by_function.into_iter().rev() {
        let mut bodies = String::new();
        for (number, edit) in edits {
            let edited = edit.apply(&original[before[function].body.clone()])?;
            let _ = write!(bodies, "\nif {core_path}::is_rule_removed({number}) {{{edited}\n}} else ");
        }
        let own = &safeguarded[after[function].body.clone()];
        let _ = writeln!(bodies, "{{{own}\n}}");
        text.replace_range(after[function].body.clone(), &bodies);
    }
    Ok(text)
}

/// Returns the index of the switchable function that contains the whole edit.
fn find_enclosing_function(text: &str, edit: &CodeEdit, functions: &[FunctionBody]) -> Result<usize> {
    let start = edit.find_unique(text)?;
    let end = start + edit.find.len();
    let encloses = |found: &FunctionBody| found.can_switch && found.body.start <= start && end <= found.body.end;
    functions.iter().position(encloses).with_context(|| {
        format!("the edit for {} is not inside the body of a function that can switch at run time", edit.rule_names())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_edit(find: &str, replace: &str) -> CodeEdit {
        CodeEdit { rules: Vec::new(), file: "crates/core/src/x.rs".into(), find: find.into(), replace: replace.into() }
    }

    const SAMPLE_SOURCE: &str = "const A: u8 = 1;\nfn a() -> u8 {\n    A + 1\n}\nfn b() -> u8 {\n    A + 2\n}\n";

    #[test]
    fn function_gets_one_branch_per_edit() -> Result<()> {
        let (one, two) = (code_edit("+ 1", "+ 10"), code_edit("A + 1", "0"));
        let guarded = SAMPLE_SOURCE.replace("A + 1", "guard(A) + 1");
        let switched = add_switches(SAMPLE_SOURCE, &guarded, &[(4, &one), (7, &two)], "crate")?;
        let flat: Vec<&str> = switched.split_whitespace().collect();
        let expected = "const A: u8 = 1; fn a() -> u8 { if crate::is_rule_removed(4) { A + 10 } \
                        else if crate::is_rule_removed(7) { 0 } else { guard(A) + 1 } } fn b() -> u8 { A + 2 }";
        assert_eq!(flat.join(" "), expected);
        Ok(())
    }

    #[test]
    fn edit_outside_functions_is_rejected() {
        let switch = |edit: &CodeEdit| add_switches(SAMPLE_SOURCE, SAMPLE_SOURCE, &[(2, edit)], "crate");
        assert!(switch(&code_edit("+ 1", "+ 3")).is_ok());
        assert!(switch(&code_edit("u8 = 1", "u8 = 3")).is_err(), "a constant cannot switch");
        assert!(switch(&code_edit("A", "B")).is_err(), "the text occurs three times");
    }
}
