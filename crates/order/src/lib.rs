//! (contract, to be filled in: see the brief)
