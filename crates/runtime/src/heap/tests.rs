pub fn note_mapping(_: usize, _: usize) {}
