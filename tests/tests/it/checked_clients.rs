//! Clients that check each answer, on one connection each: of a server that must not lose one.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hindcast_tests::wait_for;

use crate::exec_servers::{Cache, page};

/// They ask until they are told to stop.
pub struct Clients {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// `enter` is done first by the thread of each: it may be elsewhere.
    pub fn start<C: Client>(at: SocketAddr, enter: impl Fn() + Clone + Send + 'static) -> Clients {
        let (stop, asked) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let threads = (0..6)
            .map(|number| {
                let (stop, asked) = (stop.clone(), asked.clone());
                let enter = enter.clone();
                std::thread::spawn(move || {
                    enter();
                    let mut client = C::connect(at, number);
                    for round in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        client.ask(round);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Clients {
            stop,
            asked,
            threads,
        }
    }

    pub fn wait_for_more(&self, answers: u64) {
        let before = self.asked.load(Ordering::Relaxed);
        wait_for("answers", || {
            let finished = self.threads.iter().any(JoinHandle::is_finished);
            (finished || self.asked.load(Ordering::Relaxed) >= before + answers).then_some(())
        });
    }

    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread
                .join()
                .expect("every answer is right, on one connection");
        }
    }
}

pub trait Client: Sized {
    fn connect(at: SocketAddr, number: usize) -> Self;
    fn ask(&mut self, round: u64);
}

/// Counts, and keeps values that only it writes.
pub struct OfMemcached(Cache, usize, u64);

impl Client for OfMemcached {
    fn connect(at: SocketAddr, number: usize) -> Self {
        let mut cache = Cache::connect(at);
        cache.set(&format!("count-{number}"), b"0");
        OfMemcached(cache, number, 0)
    }

    fn ask(&mut self, round: u64) {
        let OfMemcached(cache, number, count) = self;
        let value = vec![b'a' + *number as u8; 10 + (round * 37 % 3000) as usize];
        let key = format!("own-{number}-{}", round % 20);
        cache.set(&key, &value);
        assert_eq!(cache.get(&key), Some(value));
        *count += 1;
        cache.say(format!("incr count-{number} 1\r\n").as_bytes());
        assert_eq!(cache.line(), count.to_string());
    }
}

/// Counts: an answer that comes twice, or never, is noticed by the next.
pub struct OfRedis(BufReader<TcpStream>, usize, u64);

impl Client for OfRedis {
    fn connect(at: SocketAddr, number: usize) -> Self {
        OfRedis(BufReader::new(connected(at)), number, 0)
    }

    fn ask(&mut self, round: u64) {
        let OfRedis(stream, number, count) = self;
        *count += 1;
        let append = "x".repeat((round * 31 % 900) as usize);
        let asked = format!("INCR count-{number}\r\nECHO <{append}>\r\n");
        stream
            .get_mut()
            .write_all(asked.as_bytes())
            .expect("it is there");
        let mut answers = String::new();
        for _ in 0..3 {
            stream.read_line(&mut answers).expect("it answers");
        }
        let expected = format!(":{count}\r\n${}\r\n<{append}>\r\n", append.len() + 2);
        assert_eq!(answers, expected);
    }
}

/// Asks for pages on a connection that is kept.
pub struct OfLighttpd(BufReader<TcpStream>);

impl Client for OfLighttpd {
    fn connect(at: SocketAddr, _: usize) -> Self {
        OfLighttpd(BufReader::new(connected(at)))
    }

    fn ask(&mut self, round: u64) {
        let number = (round % 8) as usize;
        let asked = format!("GET /pages/{number}.html HTTP/1.1\r\nHost: here\r\n\r\n");
        self.0
            .get_mut()
            .write_all(asked.as_bytes())
            .expect("it is there");
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).expect("it answers"), 0);
            if let Some(given) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = given.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        std::io::Read::read_exact(&mut self.0, &mut body).expect("the page comes");
        assert!(body == page(number), "{} bytes", body.len());
    }
}

pub fn connected(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("it listens");
    // A follower that has begun anew may have much to replay before it answers.
    let patience = Some(Duration::from_secs(90));
    stream.set_read_timeout(patience).expect("a positive time");
    stream.set_nodelay(true).expect("it is TCP");
    stream
}
