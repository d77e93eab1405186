//! Random lifecycle files, as the text that an author would write.

mod deed;
mod guard;
mod plan;
mod row;
mod rows;
mod text;
mod tidy;

pub use plan::Taste;

use super::chance::Chance;

/// One to three files that refer to each other; the same for the same seed.
pub fn lifecycles(seed: u64, taste: Taste) -> Vec<(String, String)> {
    let mut chance = Chance::new(seed);
    let plans = plan::plans(&mut chance, taste);
    plans
        .iter()
        .map(|plan| {
            let mut own = chance.fork();
            let rows = rows::rows(&mut own, plan, &plans);
            let (plan, rows) = tidy::tidy(&mut own, plan, rows);
            (format!("{}.toml", plan.name), text::file(&mut own, &plan, &plans, &rows))
        })
        .collect()
}
