//! Runs the second guide: a server in the background, all other commands in one shell.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn guide_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide")
}

/// Returns the shell blocks of a page.
fn shell_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open_block: Option<String> = None;
    for line in page.lines() {
        match (&mut open_block, line) {
            (None, "```sh") => open_block = Some(String::new()),
            (Some(_), "```") => blocks.extend(open_block.take()),
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

/// Starts the server on a free port and waits until it prints its address. Keeps reading its output, so that it never
/// blocks.
const SERVE_FUNCTION: &str = r#"
serve() {
    if [ -n "${server:-}" ]; then kill -TERM $server; wait $server; fi
    rm -f said; mkfifo said
    command onceward serve "$@" --listen 127.0.0.1:0 > said 2> server.err &
    server=$!
    exec 3< said
    while read -r line <&3; do
        case "$line" in listening*) export ONCEWARD_URL="${line#listening on }"; break;; esac
    done
    [ -n "${ONCEWARD_URL:-}" ]
    cat <&3 > /dev/null &
}
trap 'kill -TERM $server 2> /dev/null' EXIT
set -eu
"#;

#[test]
fn second_guide_runs_as_written() {
    let page = std::fs::read_to_string(guide_dir().join("run-and-change.md")).expect("the guide");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-and-change");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("folder");
    std::fs::copy(guide_dir().join("refund.toml"), folder.join("refund.toml")).expect("the file of the first page");
    let mut script = SERVE_FUNCTION.to_owned();
    for block in shell_blocks(&page) {
        // In the guide, the server runs in a terminal of its own.
        let block = block.replace("onceward serve ", "serve ");
        let _ = writeln!(script, "echo '== {}'\n{block}", block.lines().next().unwrap_or_default().replace('\'', ""));
    }
    let program = Path::new(env!("CARGO_BIN_EXE_onceward"));
    let path = std::env::join_paths(
        [program.parent().expect("folder").to_path_buf()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(&folder)
        .env("PATH", path.expect("a path"))
        .env_remove("ONCEWARD_KEY")
        .output()
        .expect("bash runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for expected in [
        "refused, as it should be",
        "1 lifecycle is sound: shop.refund",
        " current ",
        "1 record of shop.refund would be migrated to ",
        "1 record of shop.refund was migrated to ",
    ] {
        assert!(out.contains(expected), "{expected}: {out}\n{err}");
    }
    let part =
        |from: &str| out.split("== ").find(|part| part.starts_with(from)).unwrap_or_else(|| panic!("{from}: {out}"));
    let before = part("third=");
    assert!(before.contains(" approved ") && before.contains(" to_pay "), "{before}");
    assert_eq!(
        part("onceward lifecycle move shop.refund --map approved=to_pay\n").matches(" paid ").count(),
        3,
        "{out}"
    );
}
