//! The HTTP ingress in front of a real service, with real clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::collecting::Collecting;
use crate::common::*;
use bytes::Bytes;
use futures::future::BoxFuture;
use hindcast_gateway::ListenAddress;
use hindcast_gateway::http::{Ingress, IngressOptions, Limits, Witness};
use hindcast_trace::{Digest, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

type Body = BoxBody<Bytes, Infallible>;

/// A service that does what a closure says. Returns its port.
async fn service<F>(answer: F) -> u16
where
    F: Fn(hyper::Request<Incoming>) -> BoxFuture<'static, hyper::Response<Body>>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    let answering = answer(request);
                    async move { Ok::<_, Infallible>(answering.await) }
                });
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    port
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed()
}

/// Answers with the method, the target, the traceparent it got, and the body.
async fn echo(request: hyper::Request<Incoming>) -> hyper::Response<Body> {
    let traceparent = request
        .headers()
        .get("traceparent")
        .map_or("none", |value| value.to_str().unwrap())
        .to_owned();
    let head = format!("{} {} {traceparent}\n", request.method(), request.uri());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    hyper::Response::builder()
        .status(201)
        .header("x-kind", "echo")
        .header("connection", "x-hop")
        .header("x-hop", "for the next hop only")
        .body(full([head.as_bytes(), &body].concat()))
        .unwrap()
}

async fn ingress_with(
    port: u16,
    limits: Limits,
    service_http2: bool,
    witness: &Arc<Collecting>,
) -> Ingress {
    let options = IngressOptions {
        redactor: Arc::default(),
        listen: any_port(),
        service: format!("http://127.0.0.1:{port}").parse().unwrap(),
        service_http2,
        limits,
        runtimes: Vec::new(),
    };
    Ingress::bind(options, Arc::clone(witness) as Arc<dyn Witness>)
        .await
        .unwrap()
}

async fn ingress(port: u16, witness: &Arc<Collecting>) -> Ingress {
    ingress_with(port, Limits::default(), false, witness).await
}

fn url(ingress: &Ingress, path: &str) -> String {
    format!(
        "http://127.0.0.1:{}{path}",
        port_of(ingress.handle().address())
    )
}

async fn curl(arguments: &[&str]) -> String {
    let output = run("curl", &[&["-sS", "--max-time", "20"], arguments].concat()).await;
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).replace("\r\n", "\n")
}

#[tokio::test]
async fn a_request_is_recorded_as_it_came_and_answered_as_the_service_did() {
    let witness = Collecting::new(None);
    let ingress = ingress(service(|request| Box::pin(echo(request))).await, &witness).await;
    let theirs = "00-11111111111111111111111111111111-2222222222222222-01";
    let header = format!("traceparent: {theirs}");
    let arguments = [
        "-i",
        "-d",
        "a=1",
        "-H",
        &header,
        "-H",
        "Connection: x-mine",
        "-H",
        "x-mine: 1",
        "-H",
        "x-end: 2",
    ];
    let text = curl(&[&arguments[..], &[&url(&ingress, "/things?q=%20")]].concat()).await;
    assert!(text.starts_with("HTTP/1.1 201 Created\n"), "{text}");
    assert!(
        text.contains("\nx-kind: echo\n") && !text.contains("x-hop"),
        "{text}"
    );
    let expected =
        "POST /things?q=%20 00-0000000000000abc0000000000000001-0000000000000007-01\na=1";
    assert!(text.ends_with(expected), "{text}");

    let request = witness.only().await;
    let host = format!("127.0.0.1:{}", port_of(ingress.handle().address()));
    assert_eq!(
        (request.method.as_str(), request.target.as_str()),
        ("POST", "/things?q=%20")
    );
    assert_eq!(request.body, b"a=1");
    assert_eq!(request.caller_traceparent.as_deref(), Some(theirs));
    let header = |name: &str| {
        let found = request.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    assert_eq!(header("host"), Some(host));
    assert_eq!(header("x-end").as_deref(), Some("2"));
    assert_eq!(header("content-length").as_deref(), Some("3"));
    assert_eq!(
        [
            header("traceparent"),
            header("x-mine"),
            header("connection")
        ],
        [None, None, None]
    );
    let Response::Answered {
        status,
        headers,
        body_digest,
        body_bytes,
        body,
    } = request.response
    else {
        panic!("{:?}", request.response)
    };
    assert_eq!(status, 201);
    assert!(headers.contains(&("x-kind".into(), b"echo".to_vec())));
    assert!(!headers.iter().any(|(name, _)| name == "x-hop"));
    assert_eq!(body.as_deref(), Some(expected.as_bytes()));
    assert_eq!(
        (body_digest, body_bytes),
        (Digest::of(expected.as_bytes()), expected.len() as u64)
    );
}

#[tokio::test]
async fn connections_to_the_service_are_used_again() {
    let connections = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let service = hyper::service::service_fn(|request| async {
                Ok::<_, Infallible>(echo(request).await)
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    let witness = Collecting::new(None);
    let ingress = ingress(port, &witness).await;
    let target = url(&ingress, "/");
    // One client connection, several requests, one of them with a body in chunks.
    let text = curl(&[
        &target,
        &target,
        "-d",
        "x",
        "-H",
        "Transfer-Encoding: chunked",
        &target,
    ])
    .await;
    assert_eq!(text.matches("\nx").count(), 3, "{text}");
    assert_eq!(witness.all().await.len(), 3);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn http2_is_accepted_and_spoken() {
    for service_http2 in [false, true] {
        let witness = Collecting::new(None);
        let port = service(|request| {
            Box::pin(async move {
                let version = format!("{:?} ", request.version());
                let authority = request
                    .headers()
                    .get("host")
                    .map(|host| host.to_str().unwrap().to_owned());
                let authority = authority
                    .or(request.uri().authority().map(ToString::to_string))
                    .unwrap();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                hyper::Response::new(full(
                    [version.as_bytes(), authority.as_bytes(), b" ", &body].concat(),
                ))
            })
        })
        .await;
        let ingress = ingress_with(port, Limits::default(), service_http2, &witness).await;
        let host = format!("127.0.0.1:{}", port_of(ingress.handle().address()));
        let text = curl(&[
            "--http2-prior-knowledge",
            "-i",
            "-d",
            "body",
            &url(&ingress, "/"),
        ])
        .await;
        let version = if service_http2 {
            "HTTP/2.0"
        } else {
            "HTTP/1.1"
        };
        assert!(
            text.starts_with("HTTP/2 200") && text.ends_with(&format!("{version} {host} body")),
            "{text}"
        );
        let request = witness.only().await;
        assert_eq!(request.body, b"body");
        assert!(
            request
                .headers
                .contains(&("host".into(), host.into_bytes())),
            "{:?}",
            request.headers
        );
        assert!(matches!(
            request.response,
            Response::Answered { status: 200, .. }
        ));
    }
}

/// A body that the test feeds.
fn fed() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(1);
    let stream = futures::stream::poll_fn(move |cx| {
        receiver
            .poll_recv(cx)
            .map(|chunk| chunk.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))))
    });
    (sender, StreamBody::new(stream).boxed())
}

#[tokio::test]
async fn bodies_stream_in_both_directions_while_they_are_recorded() {
    let witness = Collecting::new(None);
    // Answers every chunk at once, before the request is complete.
    let port = service(|request| {
        Box::pin(async move {
            let (sender, body) = fed();
            tokio::spawn(async move {
                let mut incoming = request.into_body();
                while let Some(Ok(frame)) = incoming.frame().await {
                    if let Ok(data) = frame.into_data()
                        && sender.send(data).await.is_err()
                    {
                        break;
                    }
                }
            });
            hyper::Response::new(body)
        })
    })
    .await;
    let ingress = ingress(port, &witness).await;
    let stream = TcpStream::connect(("127.0.0.1", port_of(ingress.handle().address())))
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let (feed, body) = fed();
    let request = hyper::Request::builder()
        .method("POST")
        .uri("/")
        .header("host", "x")
        .body(body)
        .unwrap();
    feed.send("one".into()).await.unwrap();
    let mut response = sender.send_request(request).await.unwrap();
    for chunk in ["one", "two", "three"] {
        if chunk != "one" {
            feed.send(chunk.into()).await.unwrap();
        }
        let frame = tokio::time::timeout(PATIENCE, response.body_mut().frame())
            .await
            .expect("no buffering");
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), chunk);
    }
    drop(feed);
    assert!(response.body_mut().frame().await.is_none());
    let request = witness.only().await;
    assert_eq!(request.body, b"onetwothree");
    let Response::Answered { body, .. } = request.response else {
        panic!("{:?}", request.response)
    };
    assert_eq!(body.as_deref(), Some(&b"onetwothree"[..]));
}

#[tokio::test]
async fn large_bodies_pass_without_filling_memory() {
    const CHUNK: usize = 64 << 10;
    const CHUNKS: usize = 6400;
    let witness = Collecting::new(None);
    let port = service(|request| {
        Box::pin(async move {
            let mut incoming = request.into_body();
            let mut received = 0;
            while let Some(Ok(frame)) = incoming.frame().await {
                received += frame.data_ref().map_or(0, Bytes::len);
            }
            assert_eq!(received, CHUNK * CHUNKS);
            let chunks = (0..CHUNKS)
                .map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'y'; CHUNK]))));
            hyper::Response::new(StreamBody::new(futures::stream::iter(chunks)).boxed())
        })
    })
    .await;
    let ingress = ingress(port, &witness).await;
    let stream = TcpStream::connect(("127.0.0.1", port_of(ingress.handle().address())))
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let before = peak_memory();
    let chunks =
        (0..CHUNKS).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; CHUNK]))));
    let body = StreamBody::new(futures::stream::iter(chunks)).boxed();
    let request = hyper::Request::builder()
        .method("POST")
        .uri("/")
        .header("host", "x")
        .body(body)
        .unwrap();
    let mut response = sender.send_request(request).await.unwrap();
    let mut received = 0;
    while let Some(frame) = response.body_mut().frame().await {
        received += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(received, CHUNK * CHUNKS);
    let grown = peak_memory().saturating_sub(before);
    // Other tests of this process grow as well, by less than half of one body.
    assert!(
        grown < 200 << 20,
        "800 MB went through and left {grown} bytes"
    );
    let request = witness.only().await;
    assert!(request.body.is_empty());
    let Response::Unrecorded { reason } = request.response else {
        panic!("{:?}", request.response)
    };
    assert!(reason.contains("longer than the 1048576 bytes"), "{reason}");
}

#[tokio::test]
async fn long_responses_leave_digest_and_length() {
    let witness = Collecting::new(None);
    let port =
        service(|_| Box::pin(async { hyper::Response::new(full(vec![b'z'; 70_000])) })).await;
    let ingress = ingress(port, &witness).await;
    assert_eq!(curl(&[&url(&ingress, "/")]).await.len(), 70_000);
    let Response::Answered {
        body,
        body_bytes,
        body_digest,
        ..
    } = witness.only().await.response
    else {
        panic!()
    };
    assert_eq!(
        (body, body_bytes, body_digest),
        (None, 70_000, Digest::of(&[b'z'; 70_000]))
    );
}

#[tokio::test]
async fn a_service_that_is_not_there_gives_a_502_that_says_so() {
    let witness = Collecting::new(None);
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let ingress = ingress(free, &witness).await;
    let text = curl(&["-i", &url(&ingress, "/")]).await;
    let reason = format!(
        "the service at http://127.0.0.1:{free} cannot be reached: Connection refused (os error 111)"
    );
    assert!(
        text.starts_with("HTTP/1.1 502 Bad Gateway\n")
            && text.ends_with(&format!("hindcast: {reason}\n")),
        "{text}"
    );
    assert_eq!(witness.only().await.response, Response::Broken { reason });
}

/// Accepts, reads a request's head, says something and hangs up.
async fn rude_service(says: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(says.as_bytes()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_service_that_goes_away_leaves_a_broken_response() {
    let witness = Collecting::new(None);
    let ingress_before = ingress(rude_service("").await, &witness).await;
    let text = curl(&["-i", &url(&ingress_before, "/")]).await;
    assert!(
        text.starts_with("HTTP/1.1 502") && text.contains("went away without an answer"),
        "{text}"
    );
    let Response::Broken { reason } = witness.only().await.response else {
        panic!()
    };
    assert!(reason.contains("went away without an answer"), "{reason}");

    let witness = Collecting::new(None);
    let port = rude_service("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
    let ingress_within = ingress(port, &witness).await;
    let text = curl(&[&url(&ingress_within, "/")]).await;
    assert!(
        text.starts_with("half") && text.contains("curl: (18)"),
        "the client must notice: {text}"
    );
    let Response::Broken { reason } = witness.only().await.response else {
        panic!()
    };
    assert!(
        reason.starts_with("the service went away after 4 bytes of its response"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_a_broken_response_and_the_service_is_told() {
    let witness = Collecting::new(None);
    let (reached, mut was_reached) = mpsc::channel(10);
    let (gone, mut is_gone) = mpsc::channel::<()>(10);
    let port = service(move |request| {
        let (reached, gone) = (reached.clone(), gone.clone());
        Box::pin(async move {
            reached.send(()).await.unwrap();
            if request.uri() == "/never" {
                // Held until hyper drops this future, because the answer is not waited for any
                // more.
                let _gone = OnDrop(gone.clone());
                std::future::pending::<()>().await;
            }
            let (feed, body) = fed();
            feed.send("begin".into()).await.unwrap();
            tokio::spawn(async move {
                while feed.send("more".into()).await.is_ok() {}
                let _ = gone.send(()).await;
            });
            hyper::Response::new(body)
        })
    })
    .await;
    struct OnDrop(mpsc::Sender<()>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            let _ = self.0.try_send(());
        }
    }
    let ingress = ingress(port, &witness).await;
    for (path, expected) in [
        ("/never", "before the service had answered"),
        ("/endless", "bytes of the response"),
    ] {
        witness.requests.lock().unwrap().clear();
        let mut client = TcpStream::connect(("127.0.0.1", port_of(ingress.handle().address())))
            .await
            .unwrap();
        client
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
            .await
            .unwrap();
        was_reached.recv().await.unwrap();
        if path == "/endless" {
            client.read_exact(&mut [0; 100]).await.unwrap();
        }
        drop(client);
        tokio::time::timeout(PATIENCE, is_gone.recv())
            .await
            .expect("the service is told")
            .unwrap();
        let Response::Broken { reason } = witness.only().await.response else {
            panic!()
        };
        assert!(
            reason.starts_with("the client went away") && reason.contains(expected),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn upgrades_pass_through_and_are_marked() {
    let witness = Collecting::new(None);
    let port = service(|mut request| {
        Box::pin(async move {
            let mut response = hyper::Response::new(full(""));
            if request
                .headers()
                .get("upgrade")
                .is_none_or(|protocol| protocol != "shouting")
            {
                *response.status_mut() = http::StatusCode::UPGRADE_REQUIRED;
                return response;
            }
            tokio::spawn(async move {
                let mut stream = TokioIo::new(hyper::upgrade::on(&mut request).await.unwrap());
                let mut line = [0; 5];
                while stream.read_exact(&mut line).await.is_ok() {
                    stream.write_all(&line.to_ascii_uppercase()).await.unwrap();
                }
            });
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            response
                .headers_mut()
                .insert("connection", "upgrade".parse().unwrap());
            response
                .headers_mut()
                .insert("upgrade", "shouting".parse().unwrap());
            response
        })
    })
    .await;
    let ingress = ingress(port, &witness).await;
    let mut client = TcpStream::connect(("127.0.0.1", port_of(ingress.handle().address())))
        .await
        .unwrap();
    let ask = "GET /socket HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: shouting\r\n\r\n";
    client.write_all(ask.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(
        head.starts_with("HTTP/1.1 101") && head.contains("upgrade: shouting"),
        "{head}"
    );
    for word in ["hello", "world"] {
        client.write_all(word.as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, word.to_ascii_uppercase().as_bytes());
    }
    drop(client);
    let Response::Unrecorded { reason } = witness.only().await.response else {
        panic!()
    };
    assert_eq!(reason, "the connection was upgraded to shouting");

    // A service that does not want to is recorded like any other.
    witness.requests.lock().unwrap().clear();
    let text = curl(&[
        "-i",
        "-H",
        "Connection: Upgrade",
        "-H",
        "Upgrade: whispering",
        &url(&ingress, "/"),
    ])
    .await;
    assert!(text.starts_with("HTTP/1.1 426"), "{text}");
    assert!(matches!(
        witness.only().await.response,
        Response::Answered { status: 426, .. }
    ));
}

#[tokio::test]
async fn a_shutdown_lets_requests_end() {
    let witness = Collecting::new(None);
    let (release, released) = watch::channel(false);
    let (reached, mut was_reached) = mpsc::channel(10);
    let port = service(move |_| {
        let (mut released, reached) = (released.clone(), reached.clone());
        Box::pin(async move {
            reached.send(()).await.unwrap();
            released.wait_for(|released| *released).await.unwrap();
            hyper::Response::new(full("done"))
        })
    })
    .await;
    let ingress = ingress(port, &witness).await;
    let target = url(&ingress, "/");
    let client = tokio::spawn(async move { curl(&[&target]).await });
    was_reached.recv().await.unwrap();
    let address = ingress.handle().address().clone();
    let ending = tokio::spawn(ingress.shut_down(PATIENCE));
    until("nobody is let in any more", async || {
        TcpStream::connect(("127.0.0.1", port_of(&address)))
            .await
            .is_err()
    })
    .await;
    assert!(!ending.is_finished());
    release.send(true).unwrap();
    assert_eq!(client.await.unwrap(), "done");
    assert!(ending.await.unwrap(), "all requests ended in time");

    // And does not wait for ever.
    let witness = Collecting::new(None);
    let port = service(|_| Box::pin(std::future::pending())).await;
    let ingress = self::ingress(port, &witness).await;
    let mut client = TcpStream::connect(("127.0.0.1", port_of(ingress.handle().address())))
        .await
        .unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    witness
        .in_flight
        .subscribe()
        .wait_for(|count| *count == 1)
        .await
        .unwrap();
    assert!(!ingress.shut_down(Duration::from_millis(20)).await);
}

#[tokio::test]
async fn responses_wait_for_the_disk_if_they_have_to() {
    let port = service(|request| {
        Box::pin(async move {
            let (feed, body) = fed();
            match request.uri().path() {
                "/length" => hyper::Response::new(full("body")),
                "/empty" => hyper::Response::builder()
                    .status(204)
                    .body(full(""))
                    .unwrap(),
                _ => {
                    tokio::spawn(async move {
                        for chunk in ["bo", "dy"] {
                            feed.send(chunk.into()).await.unwrap();
                        }
                    });
                    hyper::Response::new(body)
                }
            }
        })
    })
    .await;
    for path in ["/length", "/empty", "/chunked"] {
        let (disk, written) = watch::channel(false);
        let witness = Collecting::new(Some(written));
        let ingress = ingress(port, &witness).await;
        let target = url(&ingress, path);
        let client = tokio::spawn(async move { curl(&[&target]).await });
        // The record exists, but the client does not have its response yet.
        let request = witness.only().await;
        assert!(
            matches!(request.response, Response::Answered { .. }),
            "{path}"
        );
        assert!(!client.is_finished(), "{path}");
        disk.send(true).unwrap();
        let expected = if path == "/empty" { "" } else { "body" };
        assert_eq!(client.await.unwrap(), expected, "{path}");
    }
}

#[tokio::test]
async fn services_behind_a_unix_socket_front_are_reached_as_well() {
    let witness = Collecting::new(None);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("http");
    let port = service(|request| Box::pin(echo(request))).await;
    let options = IngressOptions {
        redactor: Arc::default(),
        listen: ListenAddress::Unix(socket.clone()),
        service: format!("http://127.0.0.1:{port}").parse().unwrap(),
        service_http2: false,
        limits: Limits::default(),
        runtimes: Vec::new(),
    };
    let _ingress = Ingress::bind(options, Arc::clone(&witness) as Arc<dyn Witness>)
        .await
        .unwrap();
    let text = curl(&[
        "--unix-socket",
        socket.to_str().unwrap(),
        "http://anything/path",
    ])
    .await;
    assert!(text.starts_with("GET /path"), "{text}");
    assert_eq!(witness.only().await.target, "/path");
}
