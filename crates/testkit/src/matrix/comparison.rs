//! Compares a matrix with the reviewed file and with the transitions that the requirement allows.

use std::collections::BTreeSet;

use super::runner::{CellOutcome, LifecycleMatrix, render};
use crate::systems;

/// If set, rewrites the reviewed file. Review the difference before you commit it.
const BLESS_ENV_VAR: &str = "ONCEWARD_BLESS";

/// A transition that the requirement allows, written by hand: scene (`STATE` stands for all scenes of the state),
/// trial, callers (separated by commas), next state.
pub type AllowedTransition<'a> = (&'a str, &'a str, &'a str, &'a str);

impl LifecycleMatrix {
    /// Asserts that the matrix equals the reviewed file, and that exactly the allowed transitions occur.
    #[track_caller]
    pub fn assert_only_allowed(&self, allowed: &[AllowedTransition<'_>]) {
        let lines = self.run();
        let mut observed: BTreeSet<(String, String, String, String)> = BTreeSet::new();
        for line in &lines {
            for (caller, cell) in &line.cells {
                if let CellOutcome::Changed(to) = cell {
                    observed.insert((line.scene.clone(), line.trial.clone(), caller.clone(), to.clone()));
                }
            }
        }
        let mut expected: BTreeSet<(String, String, String, String)> = BTreeSet::new();
        for (from, trial, callers, to) in allowed {
            let scenes: BTreeSet<&str> = lines
                .iter()
                .map(|line| line.scene.as_str())
                .filter(|scene| scene == from || scene.split(':').next() == Some(from))
                .collect();
            assert!(!scenes.is_empty(), "no scene has state {from}");
            for scene in scenes {
                for caller in callers.split(", ") {
                    expected.insert((scene.to_owned(), (*trial).to_owned(), caller.to_owned(), (*to).to_owned()));
                }
            }
        }
        let only = |these: &BTreeSet<(String, String, String, String)>, others: &BTreeSet<_>| -> Vec<String> {
            these
                .difference(others)
                .map(|(from, trial, by, to)| format!("{from} -- {trial} by {by} --> {to}"))
                .collect()
        };
        let (missing, extra) = (only(&expected, &observed), only(&observed, &expected));
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{}: allowed but does not happen: {missing:#?}\nhappens but is not allowed: {extra:#?}",
            self.lifecycle
        );
        // A mutated lifecycle differs from the reviewed file in any case, which would prove nothing.
        if systems::mutant_dir().is_none() {
            self.compare_with_file(&render(&self.lifecycle, &lines));
        }
    }

    #[track_caller]
    fn compare_with_file(&self, rendered: &str) {
        let folder = systems::repository_root().join("systems").join(&self.system).join("tests/matrix");
        let file = folder.join(format!("{}.txt", self.lifecycle));
        if std::env::var_os(BLESS_ENV_VAR).is_some() {
            std::fs::create_dir_all(&folder).expect("a folder for matrices");
            std::fs::write(&file, rendered).expect("the matrix file is writable");
        }
        let reviewed = std::fs::read_to_string(&file).unwrap_or_default();
        if reviewed != rendered {
            let differs = |a: &str, b: &str| -> Vec<String> {
                let b: BTreeSet<&str> = b.lines().collect();
                a.lines().filter(|line| !b.contains(line)).map(str::to_owned).collect()
            };
            panic!(
                "{} differs from the reviewed {} ({BLESS_ENV_VAR}=1 rewrites it).\nreviewed only: {:#?}\nobserved only: {:#?}",
                self.lifecycle,
                file.display(),
                differs(&reviewed, rendered),
                differs(rendered, &reviewed)
            );
        }
    }
}
