//! Programs with the tap in them do what they do without, and what their sockets carried is told.

mod pins;
mod programs;
mod servers;
mod stage;
mod starts;
mod turns;
