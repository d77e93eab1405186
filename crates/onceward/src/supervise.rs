//! Runs the two internal subcommands with which `onceward work` starts a command. They are hidden from the help.

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) const SUPERVISE_COMMAND: &str = "__supervise";
const EXECUTE_COMMAND: &str = "__execute";

/// A parsed internal subcommand.
enum SupervisorCommand {
    /// Starts a command, and kills it when the worker is gone.
    Supervise { command: Vec<OsString> },
    /// Replaces this process by the command.
    Execute { supervisor: u32, command: Vec<OsString> },
}

/// Runs an internal subcommand, or returns `None` if the arguments are not one.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    Some(match parse_supervisor_command(arguments)? {
        SupervisorCommand::Supervise { command } => {
            match onceward_worker::SelfLauncher::current_program(&[EXECUTE_COMMAND]) {
                Ok(this) => onceward_worker::supervise(&this, &command),
                Err(_) => ExitCode::FAILURE,
            }
        }
        SupervisorCommand::Execute { supervisor, command } => onceward_worker::execute(supervisor, &command),
    })
}

/// Parses the subcommand, the supervisor's process id (only for `__execute`), `--` and the command line.
fn parse_supervisor_command(arguments: impl Iterator<Item = OsString>) -> Option<SupervisorCommand> {
    let mut arguments = arguments.skip(1);
    let subcommand = arguments.next()?;
    let supervisor = match subcommand.to_str()? {
        SUPERVISE_COMMAND => None,
        EXECUTE_COMMAND => Some(arguments.next()?.to_str()?.parse().ok()?),
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
        None => SupervisorCommand::Supervise { command },
        Some(supervisor) => SupervisorCommand::Execute { supervisor, command },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervisor_command_requires_exact_worker_arguments() {
        let parse = |line: &str| parse_supervisor_command(line.split(' ').map(OsString::from));
        assert!(
            matches!(parse("onceward __supervise -- wc -w"), Some(SupervisorCommand::Supervise { command }) if command == ["wc", "-w"])
        );
        assert!(matches!(
            parse("onceward __execute 7 -- sh -- -c"),
            Some(SupervisorCommand::Execute { supervisor: 7, command }) if command == ["sh", "--", "-c"]
        ));
        for other in ["onceward", "onceward work -- __supervise", "onceward __supervise wc", "onceward __execute -- wc"]
        {
            assert!(parse(other).is_none(), "{other}");
        }
        assert!(parse("onceward __supervise --").is_none());
    }
}
