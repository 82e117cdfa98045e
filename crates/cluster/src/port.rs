//! Ports for servers of this machine.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to clients, or a client has one of them by the time that
/// it is listened on.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_768;

/// A port of 127.0.0.1 that is free now and was not given to anybody else in this process. `None`:
/// all are taken.
pub fn free_port() -> Option<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Processes that are started one after the other begin far apart.
    let first = (std::process::id().wrapping_mul(7919) % u32::from(COUNT)) as u16;
    let next = || {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed) % COUNT;
        FIRST + ((u32::from(first) + u32::from(given)) % u32::from(COUNT)) as u16
    };
    std::iter::repeat_with(next)
        .take(COUNT.into())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}
