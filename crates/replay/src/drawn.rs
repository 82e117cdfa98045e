//! What transactions drew, of what the server told of it and what results showed.

use std::collections::HashSet;

use hindcast_trace::{Drawn, DrawnUuid, DrawnValue, SequenceValue};

/// Where the server told nothing of sequences, what results showed of them.
pub fn told_or_shown(told: Vec<Drawn>, shown: Vec<SequenceValue>) -> Vec<Drawn> {
    let mut drawn = told;
    if !drawn.iter().any(Drawn::is_of_sequence) {
        drawn.extend(shown.into_iter().map(Drawn::shown));
    }
    drawn
}

/// UUIDs that results showed, but for those of which the server told.
pub fn not_told(mut shown: Vec<DrawnUuid>, told: &[Drawn]) -> Vec<DrawnUuid> {
    let uuid = |one: &Drawn| match one.value {
        DrawnValue::Uuid(uuid) => Some(uuid),
        _ => None,
    };
    let told: HashSet<u128> = told.iter().filter_map(uuid).collect();
    shown.retain(|one| !told.contains(&one.value));
    shown
}
