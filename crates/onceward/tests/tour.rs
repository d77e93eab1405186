//! The tours of the README and of the image system's page, pasted as they stand.

use std::collections::BTreeSet;

use onceward_testkit::reader::{Reader, block, page, shows};

const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// What the README and CONTRIBUTING tell a newcomer to install is what the gate installs on a fresh machine, and what they tell to run is what it runs.
#[test]
fn the_set_up_is_that_of_the_gate() {
    let gate = page(".ci/run");
    // `… || install git`, `{ install rustup && rustup default stable; }`: each up to what follows.
    let is_package = |word: &&str| word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let installs = gate.lines().filter(|line| line.contains("command -v") || line.contains(".cargo/bin/cargo\" ]"));
    let installed: BTreeSet<&str> = installs
        .filter_map(|line| Some(line.split_once(" install ")?.1))
        .flat_map(|rest| rest.split_whitespace().take_while(is_package))
        .collect();
    for name in ["README.md", "CONTRIBUTING.md"] {
        let page = page(name);
        let set_up = block(&page, "sudo apt-get install");
        let (first, second) = set_up.split_once('\n').expect("two commands");
        let packages = first.strip_prefix("sudo apt-get install -y ").expect("apt").split_whitespace();
        assert_eq!(packages.collect::<BTreeSet<_>>(), installed, "{name}");
        assert!(gate.contains(second.trim_end()) && second == "rustup default stable\n", "{name}: {second}");
        assert_eq!(block(&page, "cargo xtask test"), "cargo xtask test\n", "{name}");
    }
    assert!(gate.trim_end().ends_with("/debug/xtask\" test"), "{gate}");
    assert!(page(".cargo/config.toml").contains("xtask = \"run --quiet --package xtask --\""));
}

/// A server, a job, a worker that is killed in the middle, another that finishes, and the proof.
#[test]
fn the_readmes_works_as_pasted() {
    let page = page("README.md");
    assert_eq!(
        block(&page, "cargo build"),
        "cargo build --release -p onceward\nexport PATH=\"$PWD/target/release:$PATH\"\n"
    );
    let reader = Reader::new(BINARY);
    let tour = reader.typed(block(&page, "onceward serve"));
    assert!(tour.contains("kill -9 $!"), "{tour}");
    // The last line ends the second worker and the server by a signal that they take as a wish: they end well.
    let text = reader.paste(&tour);
    let parts = ["listening on http://127.0.0.1:", "-> PENDING", "PENDING -> RUNNING", "RUNNING -> SUCCEEDED", "lost"];
    shows(&text, &parts);
    let once = text.lines().filter(|line| line.contains("commit")).count();
    assert_eq!(once, 1, "{text}");
}

/// A server, credits, an order, a picture; and once more.
#[test]
fn the_image_systems_works_as_pasted() {
    let reader = Reader::new(BINARY);
    let tour = reader.typed(block(&page("systems/image/README.md"), "onceward serve"));
    let text = reader.paste(&tour);
    shows(&text, &["listening on http://127.0.0.1:", "running -> completed", r#""balance":15"#, r#""what":"order""#]);
    let picture = std::fs::read(reader.file("lighthouse.png")).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1_000, "{} bytes", picture.len());
    // Credits come each time; the order costs nothing where it is still the same minute.
    let again = reader.paste(&tour);
    assert!([30, 35].iter().any(|balance| again.contains(&format!(r#""balance":{balance}"#))), "{again}");
}
