//! A small relay: sessions from a TCP port to a server, through a [`Observer`] or just through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::{Buf, BytesMut};
use hindcast_wire::frame::Direction;
use hindcast_wire::message::frontend::{CANCEL_REQUEST, GSSENC_REQUEST, SSL_REQUEST};
use hindcast_wire::sql::ScriptCache;
use hindcast_wire::{Context, Event, Keeping, Observer, ObserverOptions, SequenceColumns, Wires};

pub const TRACE_PREFIX: u64 = 0x1122_3344_5566_7788;

/// What the sessions told, in order of arrival. Protocol errors are told as `Err`.
pub type Told = Arc<Mutex<Vec<Result<Event, String>>>>;

pub struct Relay {
    pub port: u16,
    pub told: Told,
    /// Permitted, until a test says otherwise.
    pub keeping: Arc<Keeping>,
    sessions: Arc<AtomicU64>,
}

impl Relay {
    pub fn start(server_port: u16, sequences: SequenceColumns) -> Self {
        Self::start_with(server_port, sequences, false)
    }

    pub fn start_with(server_port: u16, sequences: SequenceColumns, raise_isolation: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let told = Told::default();
        let sessions = Arc::new(AtomicU64::new(0));
        let scripts = Arc::new(ScriptCache::default());
        let sequences = Arc::new(sequences);
        let keeping = Arc::new(Keeping::default());
        keeping.found(keeping.look(), true);
        let relay = Self {
            port,
            told: Arc::clone(&told),
            keeping: Arc::clone(&keeping),
            sessions: Arc::clone(&sessions),
        };
        // Ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (told, scripts) = (Arc::clone(&told), Arc::clone(&scripts));
                let (sequences, sessions) = (Arc::clone(&sequences), Arc::clone(&sessions));
                let keeping = Arc::clone(&keeping);
                sessions.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    let options = ObserverOptions {
                        token: sessions.load(Ordering::SeqCst),
                        raise_isolation,
                        keeping,
                        ..ObserverOptions::new(TRACE_PREFIX, scripts)
                    };
                    session(client, server_port, told, options, sequences);
                    sessions.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        relay
    }

    /// What was told, once every session has ended.
    pub fn finish(&self) -> Vec<Result<Event, String>> {
        while self.sessions.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

/// One step of the observer under the lock that keeps both directions apart.
struct Shared {
    observer: Observer,
    locks: AtomicU64,
    sequences: Arc<SequenceColumns>,
    told: Told,
    now: i64,
}

impl Shared {
    fn step(&mut self, direction: Direction, input: &mut BytesMut, out: &mut Wires) {
        self.now += 1;
        let mut events = Vec::new();
        let locks = &self.locks;
        let context = Context {
            now: self.now,
            alone: None,
            turn: None,
            sequences: &self.sequences,
            lock_order: &|| locks.fetch_add(1, Ordering::Relaxed),
        };
        let result = match direction {
            Direction::FromClient => self.observer.on_client(input, &context, out, &mut events),
            Direction::FromServer => self.observer.on_server(input, &context, out, &mut events),
        };
        let mut told = self.told.lock().unwrap();
        told.extend(events.into_iter().map(Ok));
        told.extend(result.err().map(|error| Err(error.to_string())));
    }

    fn client_gone(&mut self, out: &mut Wires) {
        let locks = &self.locks;
        let context = Context {
            now: self.now,
            alone: None,
            turn: None,
            sequences: &self.sequences,
            lock_order: &|| locks.fetch_add(1, Ordering::Relaxed),
        };
        self.observer.on_client_gone(&context, out);
    }

    fn server_gone(&mut self) {
        let mut events = Vec::new();
        let locks = &self.locks;
        let context = Context {
            now: self.now,
            alone: None,
            turn: None,
            sequences: &self.sequences,
            lock_order: &|| locks.fetch_add(1, Ordering::Relaxed),
        };
        self.observer.on_server_gone(&context, &mut events);
        self.told.lock().unwrap().extend(events.into_iter().map(Ok));
    }
}

fn session(
    mut client: TcpStream,
    server_port: u16,
    told: Told,
    options: ObserverOptions,
    sequences: Arc<SequenceColumns>,
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server_port)) else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut first = BytesMut::new();
    // Requests for encryption are refused; cancel requests go through.
    loop {
        let mut head = [0; 8];
        if client.read_exact(&mut head).is_err() {
            return;
        }
        let (length, code) = ((&head[..4]).get_u32() as usize, (&head[4..]).get_u32());
        if code == SSL_REQUEST || code == GSSENC_REQUEST {
            let _ = client.write_all(b"N");
            continue;
        }
        let mut rest = vec![0; length - 8];
        if client.read_exact(&mut rest).is_err() {
            return;
        }
        first.extend_from_slice(&head);
        first.extend_from_slice(&rest);
        if code == CANCEL_REQUEST {
            let _ = server.write_all(&first);
            let _ = server.read(&mut head);
            return;
        }
        break;
    }
    let shared = Arc::new(Mutex::new(Shared {
        observer: Observer::new(options),
        locks: AtomicU64::new(0),
        sequences,
        told,
        now: 1_000_000,
    }));
    let (upstream, downstream) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let other = Arc::clone(&shared);
    let back = thread::spawn(move || {
        copy(
            Direction::FromServer,
            downstream,
            upstream,
            BytesMut::new(),
            &other,
        );
        other.lock().unwrap().server_gone();
    });
    copy(Direction::FromClient, client, server, first, &shared);
    let _ = back.join();
}

fn copy(
    direction: Direction,
    mut source: TcpStream,
    mut target: TcpStream,
    mut input: BytesMut,
    shared: &Mutex<Shared>,
) {
    let mut out = Wires::default();
    let mut chunk = vec![0; 16 << 10];
    loop {
        if !input.is_empty() {
            shared.lock().unwrap().step(direction, &mut input, &mut out);
            let bytes = match direction {
                Direction::FromClient => &mut out.to_server,
                Direction::FromServer => &mut out.to_client,
            };
            if target.write_all(bytes).is_err() {
                break;
            }
            bytes.clear();
        }
        match source.read(&mut chunk) {
            Ok(count) if count > 0 => input.extend_from_slice(&chunk[..count]),
            _ => break,
        }
    }
    if direction == Direction::FromClient {
        shared.lock().unwrap().client_gone(&mut out);
        let _ = target.write_all(&out.to_server);
    }
    let _ = target.shutdown(Shutdown::Write);
}
