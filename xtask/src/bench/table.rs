//! Prints the benchmark results as a table.

use super::BenchLine;

/// Nanoseconds an operation may take, guards included, so that storage dominates the cost.
const TARGET_NANOS: f64 = 2_000.0;

pub(super) fn print(lines: &[BenchLine]) {
    println!("{:<40} {:>13} {:>12} {:>10} {:>9}", "case", "instructions", "allocations", "ns, median", "ns, least");
    for line in lines {
        let (median, min) = line.nanos_median_and_min.unwrap_or_default();
        println!(
            "{:<40} {:>13} {:>12} {median:>10.0} {min:>9.0}",
            line.name, line.profile.instructions, line.profile.allocations
        );
    }
    println!("\nwhere the instructions go");
    for line in lines {
        let shares: Vec<_> =
            line.profile.shares.iter().map(|(kind, share)| format!("{kind} {:.0} %", share * 100.0)).collect();
        println!("{:<40} {}", line.name, shares.join(", "));
    }
    println!("\nlargest functions");
    for line in lines.iter().filter(|line| line.name.contains("snapshot")) {
        println!("{}", line.name);
        for (name, share) in &line.profile.functions {
            println!("  {:>5.1} %  {name}", share * 100.0);
        }
    }
    let slow: Vec<_> = lines
        .iter()
        .filter(|line| {
            line.name.contains("snapshot") && line.nanos_median_and_min.is_some_and(|(_, least)| least > TARGET_NANOS)
        })
        .map(|line| line.name.as_str())
        .collect();
    let verdict =
        if slow.is_empty() { "all within the target".to_owned() } else { format!("missed by: {}", slow.join("; ")) };
    println!("\ntarget: {TARGET_NANOS} ns per operation, guards included; this run: {verdict}");
}
