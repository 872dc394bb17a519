//! Claims: read, validated, scored against their contracts, stored.
//!
//! ```text
//!  claims.csv --> RawClaim --validate--> Claim --score--> ScoredClaim --Row--> table claims
//!                               |                 ^
//!                               v                 |
//!                            rejects     contract, or none
//! ```
//!
//! - Rules are pure functions of one claim, its contract and the declared formats: no clock, no other claims. So nothing
//!   depends on order, restarts, or which worker did it. Only [`Scorer`] does I/O: it looks contracts up.
//! - A claim that cannot be understood is a reject. A claim that is understood gets a decision, also when it has no contract.
//!
//! Claims that look like one another are absent here: they are found over the whole table when the run completes.

mod import;
mod record;
mod row;
mod score;
mod scorer;

pub use import::Claims;
pub use record::{Claim, ClaimFault, RawClaim};
pub use row::ScoredClaim;
pub use score::{Decision, RULES_VERSION, Score, ScoreReason, score};
pub use scorer::Scorer;
