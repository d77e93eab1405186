//! Counts instructions with callgrind and parses its output.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};

use crate::shell;

/// The cost of one round of a benchmark case.
pub(super) struct CallgrindProfile {
    pub(super) instructions: u64,
    pub(super) allocations: u64,
    /// Share of the instructions by kind of work, largest first. The shares sum to one.
    pub(super) shares: Vec<(&'static str, f64)>,
    /// Name and share of the functions with the largest own cost.
    pub(super) functions: Vec<(String, f64)>,
}

/// Kinds of work by parts of the function's name. The first match counts.
const WORK_KINDS: &[(&str, &[&str])] = &[
    (
        "allocating",
        &["malloc", "free", "realloc", "calloc", "__rdl_", "__rust_", "unlink_chunk", "tcache", "arena_", "raw_vec"],
    ),
    ("bytes", &["memcpy", "memmove", "memset", "memcmp", "bcmp", "memchr"]),
    ("hashing", &["hash", "sip::"]),
    ("cloning", &["Clone"]),
    ("dropping", &["drop"]),
    ("evaluating", &["::expr::"]),
    ("deciding", &["::decide::"]),
];

/// Runs a case for `rounds` rounds and returns the average.
pub(super) fn count_instructions(
    program: &str,
    case: &str,
    rounds: u32,
    with_allocations: bool,
) -> Result<CallgrindProfile> {
    // Callgrind collects costs only inside the loop, but counts calls from the start. So the allocations of a run with
    // a single round are subtracted, and the run has one round more.
    let before = if with_allocations { count_allocations(&run_callgrind(program, case, 1)?) } else { 0 };
    let text = run_callgrind(program, case, rounds + 1)?;
    parse_profile(&text, before, u64::from(rounds))
}

fn run_callgrind(program: &str, case: &str, rounds: u32) -> Result<String> {
    // Two cases run at a time, so each needs a file of its own.
    let name: String = case.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let out = std::env::temp_dir().join(format!("onceward-bench-{}-{name}.callgrind", std::process::id()));
    let mut valgrind = shell::command("valgrind");
    valgrind
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*counted_rounds*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args([program, "loop", case])
        .arg(rounds.to_string());
    shell::run(&mut valgrind)?;
    let text = std::fs::read_to_string(&out).context("callgrind wrote nothing")?;
    let _ = std::fs::remove_file(&out);
    Ok(text)
}

/// Counts the calls of the allocator.
fn count_allocations(text: &str) -> u64 {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut called, mut sum) = ("", 0);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            resolve_name(&mut names, name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = resolve_name(&mut names, name);
        } else if let (Some(calls), "malloc" | "calloc" | "realloc") = (line.strip_prefix("calls="), called) {
            sum += calls.split(' ').next().and_then(|times| times.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

/// Sums the own cost by function from callgrind's format.
fn parse_profile(text: &str, allocations_before: u64, rounds: u64) -> Result<CallgrindProfile> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut own_costs: HashMap<&str, u64> = HashMap::new();
    let (mut function, mut skip) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = resolve_name(&mut names, name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            resolve_name(&mut names, name);
        } else if line.starts_with("calls=") {
            // The next line holds the callee's inclusive cost, which the callee's own entry counts.
            skip = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '*')) {
            if std::mem::take(&mut skip) {
                continue;
            }
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            *own_costs.entry(function).or_default() += cost;
        }
    }
    let total: u64 = own_costs.values().sum();
    if total == 0 {
        bail!("callgrind counted nothing; check that `counted_rounds` is still a separate function");
    }
    Ok(CallgrindProfile {
        instructions: total / (rounds + 1),
        allocations: count_allocations(text).saturating_sub(allocations_before) / rounds,
        shares: shares_by_kind(&own_costs, total),
        functions: largest_functions(&own_costs, total),
    })
}

/// Resolves a compressed name: `(7) the name` at its first use, `(7)` afterwards.
fn resolve_name<'t>(names: &mut HashMap<&'t str, &'t str>, text: &'t str) -> &'t str {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(text).copied().unwrap_or(text),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn shares_by_kind(own_costs: &HashMap<&str, u64>, total: u64) -> Vec<(&'static str, f64)> {
    let mut sums: HashMap<&'static str, u64> = HashMap::new();
    for (name, cost) in own_costs {
        let kind = WORK_KINDS.iter().find(|(_, words)| words.iter().any(|word| name.contains(word)));
        *sums.entry(kind.map_or("the rest", |(kind, _)| kind)).or_default() += cost;
    }
    let mut shares: Vec<_> = sums.into_iter().map(|(kind, cost)| (kind, cost as f64 / total as f64)).collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
    shares
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn largest_functions(own_costs: &HashMap<&str, u64>, total: u64) -> Vec<(String, f64)> {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for (name, cost) in own_costs {
        *sums.entry(short_name(name)).or_default() += cost;
    }
    let mut functions: Vec<_> = sums.into_iter().map(|(name, cost)| (name, cost as f64 / total as f64)).collect();
    functions.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    functions.truncate(8);
    functions
}

/// Removes recursion marks, the compiler's hash and the crate's name.
fn short_name(name: &str) -> String {
    let name = name.split('\'').next().unwrap_or(name);
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 => name,
        _ => name,
    };
    name.replace("onceward_core::", "")
}

#[cfg(test)]
mod tests {
    use super::parse_profile;

    #[test]
    fn profile_parses_own_cost_and_allocations() {
        let text = "events: Ir\nfn=(1) onceward_core::decide::run::decide\n12 300\n+1 100\ncfn=(2) malloc\ncalls=4 0\n* 500\n\n\
                    fn=(2)\n0 500\n* 100\n";
        let profile = parse_profile(text, 0, 2).unwrap();
        assert_eq!(profile.instructions, 333);
        assert_eq!(profile.allocations, 2);
        assert_eq!(profile.shares, [("allocating", 0.6), ("deciding", 0.4)]);
        assert_eq!(profile.functions[1], ("decide::run::decide".to_owned(), 0.4));
        assert!(parse_profile("events: Ir\n", 0, 1).is_err());
    }
}
