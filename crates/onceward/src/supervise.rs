//! The two words by which `onceward work` starts a program. They are no verbs: nobody calls them by hand, and none is offered them.

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) const SUPERVISE: &str = "__supervise";
const EXECUTE: &str = "__execute";

/// What the arguments of this process ask for, where `onceward work` gave them.
enum Asked {
    /// Stay beside a program, and end it when the worker is gone.
    Supervise { command: Vec<OsString> },
    /// Become the program.
    Execute { supervisor: u32, command: Vec<OsString> },
}

/// Done, if that is what this process was started for.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    Some(match asked(arguments)? {
        Asked::Supervise { command } => match onceward_worker::Launcher::this_program(&[EXECUTE]) {
            Ok(this) => onceward_worker::supervise(&this, &command),
            Err(_) => ExitCode::FAILURE,
        },
        Asked::Execute { supervisor, command } => onceward_worker::execute(supervisor, &command),
    })
}

/// Behind the program's own name: the word, for `__execute` the supervisor, `--`, and the command.
fn asked(arguments: impl Iterator<Item = OsString>) -> Option<Asked> {
    let mut arguments = arguments.skip(1);
    let word = arguments.next()?;
    let supervisor = match word.to_str()? {
        SUPERVISE => None,
        EXECUTE => Some(arguments.next()?.to_str()?.parse().ok()?),
        _ => return None,
    };
    if arguments.next()? != "--" {
        return None;
    }
    let command: Vec<OsString> = arguments.collect();
    if command.is_empty() {
        return None;
    }
    Some(match supervisor {
        None => Asked::Supervise { command },
        Some(supervisor) => Asked::Execute { supervisor, command },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_worker_writes_is_taken() {
        let asked = |line: &str| asked(line.split(' ').map(OsString::from));
        assert!(
            matches!(asked("onceward __supervise -- wc -w"), Some(Asked::Supervise { command }) if command == ["wc", "-w"])
        );
        assert!(matches!(
            asked("onceward __execute 7 -- sh -- -c"),
            Some(Asked::Execute { supervisor: 7, command }) if command == ["sh", "--", "-c"]
        ));
        for other in ["onceward", "onceward work -- __supervise", "onceward __supervise wc", "onceward __execute -- wc"]
        {
            assert!(asked(other).is_none(), "{other}");
        }
        assert!(asked("onceward __supervise --").is_none());
    }
}
