//! Runs the tours of the README and of the image system's page.

use std::collections::BTreeSet;

use onceward_testkit::doc_runner::{DocRunner, assert_contains_all, command_block, read_page};

const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// README and CONTRIBUTING must list the packages and commands of the CI script.
#[test]
fn documented_setup_matches_ci_script() {
    let gate = read_page(".ci/run");
    // Matches `… || install git` and `{ install rustup && rustup default stable; }`.
    let is_package = |word: &&str| word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let installs = gate.lines().filter(|line| line.contains("command -v") || line.contains(".cargo/bin/cargo\" ]"));
    let installed: BTreeSet<&str> = installs
        .filter_map(|line| Some(line.split_once(" install ")?.1))
        .flat_map(|rest| rest.split_whitespace().take_while(is_package))
        .collect();
    for name in ["README.md", "CONTRIBUTING.md"] {
        let page = read_page(name);
        let set_up = command_block(&page, "sudo apt-get install");
        let (first, second) = set_up.split_once('\n').expect("two commands");
        let packages = first.strip_prefix("sudo apt-get install -y ").expect("apt").split_whitespace();
        assert_eq!(packages.collect::<BTreeSet<_>>(), installed, "{name}");
        assert!(gate.contains(second.trim_end()) && second == "rustup default stable\n", "{name}: {second}");
        assert!(page.contains("cargo xtask test"), "{name}");
    }
    assert!(gate.trim_end().ends_with("/debug/xtask\" test"), "{gate}");
    assert!(read_page(".cargo/config.toml").contains("xtask = \"run --quiet --package xtask --\""));
}

/// A server, a job, a worker that is killed, another one that finishes the job, and the verification.
#[test]
fn readme_tour_runs_as_pasted() {
    let page = read_page("README.md");
    let tour = command_block(&page, "onceward serve");
    assert!(read_page("tour.sh").ends_with(tour), "tour.sh must end with the commands of the README");
    let reader = DocRunner::new(BINARY);
    let tour = reader.localize(tour);
    assert!(tour.contains("kill -9 $!"), "{tour}");
    // The last line sends SIGTERM to the second worker and the server, which exit cleanly.
    let text = reader.run(&tour);
    let parts = ["listening on http://127.0.0.1:", "-> PENDING", "PENDING -> RUNNING", "RUNNING -> SUCCEEDED", "lost"];
    assert_contains_all(&text, &parts);
    let once = text.lines().filter(|line| line.contains("commit")).count();
    assert_eq!(once, 1, "{text}");
}

/// Runs the tour twice: server, credits, order, picture.
#[test]
fn image_tour_runs_as_pasted() {
    let reader = DocRunner::new(BINARY);
    let tour = reader.localize(command_block(&read_page("systems/image/README.md"), "onceward serve"));
    let text = reader.run(&tour);
    assert_contains_all(
        &text,
        &["listening on http://127.0.0.1:", "running -> completed", r#""balance":15"#, r#""what":"order""#],
    );
    let picture = std::fs::read(reader.tmp_path("lighthouse.png")).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1_000, "{} bytes", picture.len());
    // Credits are granted each time. A repeated order within the same minute costs nothing.
    let second_run = reader.run(&tour);
    assert!([30, 35].iter().any(|balance| second_run.contains(&format!(r#""balance":{balance}"#))), "{second_run}");
}
