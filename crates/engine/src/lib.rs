//! The pure engine: ledger, policy, plan; step, explain, what_if.
