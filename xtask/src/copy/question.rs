//! Putting edits behind a question: the function that an edit falls in gets a second body, in which the edit is made. So any
//! edit of a body will do, whatever it changes there, and rustc judges each by itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};

use super::functions::{Function, functions};
use crate::rules::take_away::Edit;

/// An edit and its number.
pub(super) type Numbered<'a> = (usize, &'a Edit);

pub(super) struct Asked {
    pub(super) text: String,
    /// Edits that stand in no function that could ask.
    pub(super) alone: Vec<usize>,
}

/// A file that asks, in each function that edits fall in, whether one of them is made. `original` is the file as it stands;
/// `guarded` is the same with questions of another kind in it: what runs when no edit is made. `home` is where core's functions
/// are found.
pub(super) fn put(original: &str, guarded: &str, edits: &[Numbered<'_>], home: &str) -> Result<Asked> {
    let (before, after) = (functions(original), functions(guarded));
    if before.len() != after.len() {
        bail!("a guard adds or takes away a function: then nobody knows which is which");
    }
    let mut alone = Vec::new();
    let mut by_function: BTreeMap<usize, Vec<Numbered<'_>>> = BTreeMap::new();
    for (number, edit) in edits.iter().copied() {
        match function_of(original, edit, &before)? {
            Some(function) => by_function.entry(function).or_default().push((number, edit)),
            None => alone.push(number),
        }
    }
    let mut text = guarded.to_owned();
    // From the last: the places before it stay.
    for (function, edits) in by_function.into_iter().rev() {
        let mut bodies = String::new();
        for (number, edit) in edits {
            let edited = edit.apply(&original[before[function].body.clone()])?;
            let _ = write!(bodies, "\nif {home}::edit_is_made({number}) {{{edited}\n}} else ");
        }
        let own = &guarded[after[function].body.clone()];
        let _ = writeln!(bodies, "{{{own}\n}}");
        text.replace_range(after[function].body.clone(), &bodies);
    }
    Ok(Asked { text, alone })
}

/// The function that holds the whole edit and may ask.
fn function_of(text: &str, edit: &Edit, functions: &[Function]) -> Result<Option<usize>> {
    let start = edit.only_place(text)?;
    let end = start + edit.find.len();
    Ok(functions.iter().position(|found| found.may_ask && found.body.start <= start && end <= found.body.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(find: &str, replace: &str) -> Edit {
        Edit {
            rules: Vec::new(),
            file: "crates/core/src/x.rs".into(),
            find: find.into(),
            replace: replace.into(),
            alone: false,
        }
    }

    const TEXT: &str = "const A: u8 = 1;\nfn a() -> u8 {\n    A + 1\n}\nfn b() -> u8 {\n    A + 2\n}\n";

    #[test]
    fn a_function_asks_which_body_it_has() -> Result<()> {
        let (one, two) = (edit("+ 1", "+ 10"), edit("A + 1", "0"));
        let guarded = TEXT.replace("A + 1", "guard(A) + 1");
        let asked = put(TEXT, &guarded, &[(4, &one), (7, &two)], "crate")?;
        assert!(asked.alone.is_empty());
        let flat: Vec<&str> = asked.text.split_whitespace().collect();
        let expected = "const A: u8 = 1; fn a() -> u8 { if crate::edit_is_made(4) { A + 10 } \
                        else if crate::edit_is_made(7) { 0 } else { guard(A) + 1 } } fn b() -> u8 { A + 2 }";
        assert_eq!(flat.join(" "), expected);
        Ok(())
    }

    #[test]
    fn what_stands_in_no_function_is_left_alone() -> Result<()> {
        let constant = edit("u8 = 1", "u8 = 3");
        let asked = put(TEXT, TEXT, &[(2, &constant)], "crate")?;
        assert_eq!((asked.text.as_str(), asked.alone), (TEXT, vec![2]));
        assert!(put(TEXT, TEXT, &[(2, &edit("A", "B"))], "crate").is_err(), "it stands there three times");
        Ok(())
    }
}
