//! The mesh system, played: each test reads like the rule it cites. The rules stand in `systems/mesh/README.md`.
