//! Programs with the tap in them do what they do without, and what their sockets carried is told.

#[cfg(target_arch = "x86_64")]
mod go;
mod pins;
mod programs;
mod servers;
mod sessions;
mod stage;
mod starts;
mod turns;
