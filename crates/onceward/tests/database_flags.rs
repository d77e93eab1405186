//! Tests where commands take the database's URL and its password from.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use onceward_testkit::postgres::{PostgresServer, psql};
use onceward_testkit::server_process::ServerProcess;
use support::{create_test_folder, utf8};

const PASSWORD: &str = "horse-battery";

/// Returns the command with these variables and none of the user's.
fn onceward(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).env("HOME", folder);
    for name in ["PGPASSWORD", "PGPASSFILE", "ONCEWARD_DB", "ONCEWARD_DB_FILE", "ONCEWARD_URL"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
}

fn run(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    onceward(folder, arguments, environment).output().expect("the binary runs")
}

#[track_caller]
fn assert_works_on(database: &str, output: &Output) {
    let text = utf8(&output.stdout) + &utf8(&output.stderr);
    assert!(output.status.success() && text.contains(database), "{output:?}");
}

#[track_caller]
fn assert_usage_error(message: &str, output: &Output) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(utf8(&output.stderr).contains(message), "{output:?}");
}

#[test]
fn database_url_is_taken_from_flag_variable_or_file() {
    let folder = create_test_folder("database-flags");
    std::fs::write(folder.join("url"), "sqlite:filed.db\n").expect("a file");
    std::fs::write(folder.join("other"), "postgres://ann:sesame@db\nsecond line").expect("a file");
    for name in ["named", "filed", "flag", "onceward"] {
        let url = format!("sqlite:{name}.db");
        let created = run(&folder, &["key", "create", "--owner", "ops", "--role", "operator", "--db", &url], &[]);
        assert!(created.status.success(), "{created:?}");
    }
    let (variable, file_variable) = (("ONCEWARD_DB", "sqlite:named.db"), ("ONCEWARD_DB_FILE", "url"));
    let migrate =
        |arguments: &[&str], environment: &[_]| run(&folder, &[&["migrate"], arguments].concat(), environment);
    assert_works_on("named.db", &migrate(&[], &[variable]));
    assert_works_on("filed.db", &migrate(&[], &[file_variable]));
    assert_works_on("filed.db", &migrate(&["--db-file", "url"], &[variable]));
    assert_works_on(
        "flag.db",
        &migrate(&["--db", "sqlite:flag.db"], &[variable, ("ONCEWARD_DB_FILE", "no-such-file")]),
    );
    assert_works_on("onceward.db", &migrate(&[], &[("ONCEWARD_DB", ""), ("ONCEWARD_DB_FILE", "")]));
    assert_usage_error("--db and --db-file are both set", &migrate(&["--db", "sqlite:a", "--db-file", "url"], &[]));
    assert_usage_error("ONCEWARD_DB and ONCEWARD_DB_FILE are both set", &migrate(&[], &[variable, file_variable]));
    assert_usage_error("no-such-file", &migrate(&["--db-file", "no-such-file"], &[]));
    // A value that may contain a password is not printed.
    for wrong in [migrate(&[], &[("ONCEWARD_DB", "mysql://ann:sesame@db")]), migrate(&["--db-file", "other"], &[])] {
        assert!(wrong.status.code() == Some(2) && !utf8(&wrong.stderr).contains("sesame"), "{wrong:?}");
    }
    let help = utf8(&run(&folder, &["serve", "--help"], &[("ONCEWARD_DB", "postgres://ann:sesame@db")]).stdout);
    assert!(help.contains("ONCEWARD_DB_FILE") && !help.contains("sesame"), "{help}");
}

/// Each verb that takes `--db`. A server that a flag or a variable names wins over the variable.
#[test]
fn every_command_takes_database_from_variable() {
    let folder = create_test_folder("database-variable");
    let variable = ("ONCEWARD_DB", "sqlite:named.db");
    let mut serve = onceward(&folder, &["serve", "--listen", "127.0.0.1:0"], &[variable]);
    let server = ServerProcess::start(&mut serve);
    let listed = run(&folder, &["key", "list", "--server", &server.url()], &[variable]);
    assert_works_on("no API keys", &listed);
    let listed = run(&folder, &["key", "list"], &[variable, ("ONCEWARD_URL", &server.url())]);
    assert_works_on("no API keys", &listed);
    server.stop();
    let all: [(&[&str], &str); 7] = [
        (&["doctor"], "sqlite:named.db"),
        (&["migrate"], "sqlite:named.db"),
        (&["verify"], "no differences"),
        (&["backup", "copy.db"], "copy.db"),
        (&["key", "list"], "no API keys"),
        (&["lifecycle", "list"], "execution.job"),
        (&["prune", "--dry-run", "--older-than", "1d"], "would delete"),
    ];
    for (arguments, printed) in all {
        assert_works_on(printed, &run(&folder, arguments, &[variable]));
    }
    assert!(!folder.join("onceward.db").exists());
}

/// Returns the URL of a database whose role must send a password, without that password.
fn database_with_password(server: &PostgresServer) -> String {
    let url = server.create_database();
    let name = url.rsplit('/').next().expect("a name");
    psql(&url, &format!("CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'"));
    psql(&url, &format!("ALTER DATABASE \"{name}\" OWNER TO locked"));
    let rules = psql(&url, "SHOW hba_file");
    let trusting = std::fs::read_to_string(&rules).expect("the server's rules");
    std::fs::write(&rules, format!("local all locked scram-sha-256\n{trusting}")).expect("the server's rules");
    psql(&url, "SELECT pg_reload_conf()");
    url.replacen("://onceward@", "://locked@", 1)
}

#[test]
fn postgres_password_is_taken_from_variable_or_passfile() {
    let folder = create_test_folder("database-password");
    let server = PostgresServer::start();
    let url = database_with_password(&server);
    let dry_run = ["migrate", "--dry-run", "--db", &url];
    // The server applies its new rules after the call has returned.
    let began = Instant::now();
    while !utf8(&run(&folder, &dry_run, &[]).stderr).contains("password") {
        assert!(began.elapsed().as_secs() < 60, "the server still trusts the role");
    }
    assert_works_on("PostgreSQL", &run(&folder, &["migrate", "--db", &url], &[("PGPASSWORD", PASSWORD)]));
    let passfile = folder.join(".pgpass");
    std::fs::write(&passfile, format!("# comment\nelsewhere:*:*:*:wrong\n*:5432:*:locked:{PASSWORD}\n"))
        .expect("a file");
    std::fs::set_permissions(&passfile, std::fs::Permissions::from_mode(0o644)).expect("permissions");
    assert_usage_error("chmod 600", &run(&folder, &dry_run, &[]));
    std::fs::set_permissions(&passfile, std::fs::Permissions::from_mode(0o600)).expect("permissions");
    assert_works_on("PostgreSQL", &run(&folder, &dry_run, &[]));
    std::fs::rename(&passfile, folder.join("secret")).expect("a file");
    assert_works_on("PostgreSQL", &run(&folder, &dry_run, &[("PGPASSFILE", "secret")]));
    let with_passfile = format!("{url}?passfile=secret");
    assert_works_on("PostgreSQL", &run(&folder, &["migrate", "--db", &with_passfile], &[]));
    // A server also listens for notifications, on a connection of its own.
    let mut serve = onceward(&folder, &["serve", "--listen", "127.0.0.1:0", "--db", &url], &[("PGPASSFILE", "secret")]);
    let process = ServerProcess::start(&mut serve);
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", process.pid())).expect("the process runs");
    assert!(!arguments.contains(PASSWORD), "{arguments}");
    process.stop();
}
