//! Moments in which a loss is unlucky.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use hindcast_tests::network::{End, Network};
use hindcast_tests::wait_for;

use crate::checked_clients::OfMemcached;
use crate::protect::{Loss, MEMCACHED, Pair, at, elsewhere, has_gone_on};

/// A client that the program has not accepted yet, and to which the kernel has said that it has all
/// it sent: nobody would ever answer it.
#[test]
fn a_client_that_was_not_accepted_yet_learns_that_its_connection_is_gone() {
    if !Network::is_possible() {
        return;
    }
    let mut pair = Pair::start("protect-accept", &MEMCACHED);
    // SAFETY: a process of this test's.
    unsafe { libc::kill(pair.program(), libc::SIGSTOP) };
    let mut client = elsewhere(&pair.network, || {
        let mut client = TcpStream::connect(at()).expect("the kernel accepts it");
        client.write_all(b"get key\r\n").expect("it is there");
        client
    });
    // Until all of it was acknowledged.
    wait_for("the kernel's word", || {
        let mut left = 0;
        // SAFETY: writes one number.
        unsafe {
            libc::ioctl(
                std::os::fd::AsRawFd::as_raw_fd(&client),
                libc::TIOCOUTQ,
                &mut left,
            )
        };
        (left == 0).then_some(())
    });
    pair.lose(Loss::Program);
    pair.wait_until_backup_says("goes on here after");
    let patience = Some(Duration::from_secs(10));
    client.set_read_timeout(patience).expect("a positive time");
    let read = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(std::io::ErrorKind::ConnectionReset));
}

/// The primary is heard again while the backup goes on in its place, and ends the program: not a
/// word of that may come to clients, whose connections go on.
#[test]
fn a_link_that_heals_during_a_takeover_cuts_nobody_off() {
    if !Network::is_possible() {
        return;
    }
    for _ in 0..3 {
        let options = ["--detect", "1s"];
        let mut pair = Pair::backed("protect-healed", &options, &MEMCACHED);
        let clients = pair.clients::<OfMemcached>();
        clients.wait_for_more(100);
        pair.lose(Loss::Machine);
        pair.wait_until_backup_says("the primary is gone");
        pair.network.heal(End::Primary);
        clients.wait_for_more(300);
        clients.end();
        pair.wait_until_backup_says("goes on here after");
        has_gone_on(&pair.backup);
        pair.primary.wait().assert_code(0);
    }
}
