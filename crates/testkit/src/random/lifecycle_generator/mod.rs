//! Generates random lifecycle files, as text.

mod actions;
mod cleanup;
mod file_text;
mod guard;
mod plan;
mod transition_text;
mod transitions;

pub use plan::GeneratorOptions;

use super::rng::Rng;

/// Returns one to three files that refer to each other, deterministically by seed.
pub fn generate_lifecycles(seed: u64, options: GeneratorOptions) -> Vec<(String, String)> {
    let mut rng = Rng::new(seed);
    let plans = plan::random_plans(&mut rng, options);
    plans
        .iter()
        .map(|plan| {
            let mut lifecycle_rng = rng.fork();
            let rows = transitions::random_transitions(&mut lifecycle_rng, plan, &plans);
            let (plan, rows) = cleanup::remove_unreachable(&mut lifecycle_rng, plan, rows);
            (format!("{}.toml", plan.name), file_text::render_file(&mut lifecycle_rng, &plan, &plans, &rows))
        })
        .collect()
}
