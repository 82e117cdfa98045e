//! The other ends: a web server for clients that are recorded, clients for servers that are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// A web server on this machine that never says the same thing twice. It ends with the test.
pub struct WebServer {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    /// Answers `/small` with the time, `/large` with 1 MB, `/moved` with where `/small` is,
    /// everything else with 404.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("just bound");
        let asked = Arc::new(AtomicU64::new(0));
        let ending = Arc::new(AtomicBool::new(false));
        let (counter, end) = (asked.clone(), ending.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), counter) = (stream, counter.clone()) else {
                    continue;
                };
                // Ends when the client does, or after a while without a word from it.
                std::thread::spawn(move || answer_all(stream, &counter));
            }
        });
        Self {
            address,
            asked,
            ending,
            thread: Some(thread),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}/{path}", self.address.port())
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Requests so far.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // Wakes the listener up.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer_all(mut stream: TcpStream, counter: &AtomicU64) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = received.windows(4).position(|window| window == b"\r\n\r\n");
        let Some(head) = head else {
            match stream.read(&mut buffer) {
                Ok(size @ 1..) => received.extend_from_slice(&buffer[..size]),
                _ => return,
            }
            continue;
        };
        let request = String::from_utf8_lossy(&received[..head]).into_owned();
        received.drain(..head + 4);
        let length = request.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length:")?
                .trim()
                .parse()
                .ok()
        });
        for _ in 0..length.unwrap_or(0) {
            if received.is_empty() {
                match stream.read(&mut buffer) {
                    Ok(size @ 1..) => received.extend_from_slice(&buffer[..size]),
                    _ => return,
                }
            }
            received.remove(0);
        }
        let number = counter.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        let path = request
            .split_whitespace()
            .nth(1)
            .unwrap_or("/")
            .split('?')
            .next()
            .unwrap_or("/");
        let (status, body) = match path {
            "/small" | "/question" => (
                "200 OK",
                format!("{{\"number\": {number}, \"nanoseconds\": {now}}}\n"),
            ),
            "/large" => (
                "200 OK",
                (0..20_000)
                    .map(|line| format!("{number} {now} line {line} of a long answer\n"))
                    .collect(),
            ),
            "/moved" => ("302 Found", String::new()),
            _ => ("404 Not Found", format!("nothing at {path}, {now}\n")),
        };
        let moved = if path == "/moved" {
            "Location: /small\r\n"
        } else {
            ""
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: text/plain\r\nSet-Cookie: seen={now}\r\n{moved}\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A server of lines: what `fetch` talks to. Answers one line and hangs up.
pub fn answer_lines(listener: TcpListener, connections: usize) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().take(connections).enumerate() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let mut line = [0; 200];
            let size = stream.read(&mut line).unwrap_or(0);
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos());
            let _ = writeln!(
                stream,
                "answer {number} at {now} to {}",
                String::from_utf8_lossy(&line[..size]).trim()
            );
        }
    })
}

/// One exchange of lines over one connection.
pub fn ask(stream: &mut TcpStream, line: &str) -> std::io::Result<String> {
    stream.write_all(line.as_bytes())?;
    let mut answer = [0; 2000];
    let size = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..size]).into_owned())
}
