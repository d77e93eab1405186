//! The server's clock.

use serde::{Deserialize, Serialize};

/// Whether the engine follows its clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClockState {
    /// The engine's time.
    pub now: String,
    /// Set while the engine does not follow its clock, because the clock jumped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<ClockHoldState>,
}

/// The clock after a jump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClockHoldState {
    /// The time that the clock shows.
    pub clock_time: String,
    /// How far the clock is ahead of the engine's time, in milliseconds; negative if it is behind.
    pub ahead_ms: i64,
    /// How long the engine has not followed the clock, in milliseconds.
    pub held_ms: u64,
    /// Whether the engine follows the clock only after an operator accepts its time.
    pub needs_operator: bool,
}
