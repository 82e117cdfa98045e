//! Publication and slot from their making to their end.
