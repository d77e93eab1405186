//! What every picture must keep to: checked on real lifecycles, on awkward ones and on random ones.

mod geometry;
mod lifecycles;
mod output;
