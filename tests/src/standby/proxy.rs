//! A wire between two programs that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Passes bytes on between whoever connects and one server.
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<Wire>,
}

struct Wire {
    target: SocketAddr,
    /// New connections are refused.
    is_down: AtomicBool,
    /// What comes from the server is held back.
    is_stalled: AtomicBool,
    /// The wire is cut when so many more bytes came from the server; 0 for never.
    bytes_left: AtomicU64,
    cuts: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// # Panics
    /// If no port can be had.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there are free ports");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let wire = Arc::new(Wire {
            target: SocketAddr::from(([127, 0, 0, 1], port)),
            is_down: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            bytes_left: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            open: Mutex::default(),
        });
        // Ends with the process of the test, or with the first connection after the proxy was
        // dropped.
        let weak = Arc::downgrade(&wire);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Some(wire), Ok(client)) = (weak.upgrade(), client) else {
                    return;
                };
                wire.accept(client);
            }
        });
        Self { address, wire }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}",
            self.address.port()
        )
    }

    /// Ends all connections at once.
    pub fn cut(&self) {
        self.wire.cut();
    }

    /// Ends all connections when the server has sent so many more bytes: most likely in the middle
    /// of a message.
    pub fn cut_after(&self, bytes: u64) {
        self.wire.bytes_left.store(bytes, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> u64 {
        self.wire.cuts.load(Ordering::SeqCst)
    }

    /// Whether new connections are refused.
    pub fn set_down(&self, is_down: bool) {
        self.wire.is_down.store(is_down, Ordering::SeqCst);
        if is_down {
            self.cut();
        }
    }

    /// Whether the server's bytes are held back while the connection looks alive.
    pub fn set_stalled(&self, is_stalled: bool) {
        self.wire.is_stalled.store(is_stalled, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set_stalled(false);
        self.set_down(true);
    }
}

impl Wire {
    fn accept(self: Arc<Self>, client: TcpStream) {
        if self.is_down.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(self.target) else {
            return;
        };
        let (Ok(client_reads), Ok(server_reads)) = (client.try_clone(), server.try_clone()) else {
            return;
        };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            if let Ok(stream) = stream.try_clone() {
                self.open.lock().expect("nobody panics here").push(stream);
            }
        }
        let wire = Arc::clone(&self);
        thread::spawn(move || pass(client_reads, server, |_| true));
        thread::spawn(move || pass(server_reads, client, |count| wire.let_through(count)));
    }

    /// Whether a piece of the server may go on; when not, half of it does and the connection ends.
    fn let_through(&self, count: u64) -> bool {
        while self.is_stalled.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        let left = self.bytes_left.load(Ordering::SeqCst);
        if left == 0 {
            return true;
        }
        if left > count {
            self.bytes_left.store(left - count, Ordering::SeqCst);
            return true;
        }
        self.bytes_left.store(0, Ordering::SeqCst);
        self.cuts.fetch_add(1, Ordering::SeqCst);
        false
    }

    fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        for stream in self.open.lock().expect("nobody panics here").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut may: impl FnMut(u64) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        if !may(count as u64) {
            let _ = to.write_all(&buffer[..count / 2]);
            break;
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
