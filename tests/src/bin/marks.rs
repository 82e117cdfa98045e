//! Every request writes rows with its own name, and shows what it draws, by itself and by the
//! thread's generator, and the time: hyper on tokio, with tokio-postgres. Nothing here knows of
//! tracing.
//!
//! ```text
//!     marks PORT [one|threads|apart]   the database is in DATABASE_URL; in one thread, in one for
//!                                      each connection, or in one in which other tasks read and
//!                                      write than serve
//! ```

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Client, NoTls};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Clients whose connections are driven by tasks of their own.
type Pool = Arc<Mutex<VecDeque<Client>>>;

async fn mark(client: &Client, name: &str, step: i32) -> Result<(), Failed> {
    let insert = "INSERT INTO mark VALUES ($1, $2)";
    client.execute(insert, &[&name, &step]).await?;
    Ok(())
}

async fn marks(client: &Client, name: &str) -> Result<(), Failed> {
    mark(client, name, 0).await?;
    // The task goes on in another thread.
    tokio::time::sleep(Duration::from_millis(2)).await;
    mark(client, name, 1).await
}

/// On a connection that this task drives itself.
async fn by_myself(name: String) -> Result<(), Failed> {
    let (client, connection) = tokio_postgres::connect(&database(), NoTls).await?;
    let work = async {
        let done = marks(&client, &name).await;
        drop(client);
        done
    };
    let (done, driven) = tokio::join!(work, connection);
    driven?;
    done
}

async fn by_the_pool(pool: &Pool, name: String) -> Result<(), Failed> {
    let idle = pool.lock().expect("nobody panics").pop_front();
    let client = match idle {
        Some(client) => client,
        None => {
            let (client, connection) = tokio_postgres::connect(&database(), NoTls).await?;
            tokio::spawn(connection);
            client
        }
    };
    marks(&client, &name).await?;
    pool.lock().expect("nobody panics").push_back(client);
    Ok(())
}

async fn answered(pool: Pool, request: Request<Incoming>) -> Result<String, Failed> {
    let path = request.uri().path().to_owned();
    request.into_body().collect().await?;
    let Some((way, name)) = path.trim_start_matches('/').split_once('/') else {
        return Ok(String::new());
    };
    let name = name.to_owned();
    match way {
        "task" => by_myself(name.clone()).await?,
        "spawned" => tokio::spawn(by_myself(name.clone())).await??,
        "blocking" => {
            let name = name.clone();
            let here = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || here.block_on(by_myself(name))).await??;
        }
        _ => by_the_pool(&pool, name.clone()).await?,
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    // As short a number is not taken for an id.
    let of_the_thread: u8 = rand::random();
    Ok(format!("{name} {} {of_the_thread} {time}\n", drawn()))
}

fn drawn() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: there is room for so many.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes)
}

fn database() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL says where the database is")
}

async fn serve_connection<S>(stream: S, pool: Pool) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request| {
        let pool = pool.clone();
        async move {
            let (status, text) = match answered(pool, request).await {
                Ok(text) => (200, text),
                Err(why) => (500, why.to_string()),
            };
            let answer = Response::builder().status(status);
            let body = Full::new(Bytes::from(text));
            Ok::<_, Infallible>(answer.body(body).expect("the status is one"))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    connection
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// One task reads, and another writes.
async fn served_apart(stream: TcpStream, pool: Pool) -> Result<(), Failed> {
    let (mut reads, mut writes) = stream.into_split();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (mut answers, mut requests) = tokio::io::split(ours);
    tokio::spawn(async move { tokio::io::copy(&mut reads, &mut requests).await });
    tokio::spawn(async move { tokio::io::copy(&mut answers, &mut writes).await });
    serve_connection(theirs, pool).await?;
    Ok(())
}

async fn serve(port: u16, how: Option<&str>) -> Result<(), Failed> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let pool = Pool::default();
    loop {
        let (stream, _) = listener.accept().await?;
        let pool = pool.clone();
        match how {
            Some("threads") => {
                let stream = stream.into_std()?;
                std::thread::spawn(move || on_this_thread(stream));
            }
            Some("apart") => {
                tokio::spawn(served_apart(stream, pool));
            }
            _ => {
                tokio::spawn(serve_connection(stream, pool));
            }
        }
    }
}

/// Its requests are read by no task.
fn on_this_thread(stream: std::net::TcpStream) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stream = TcpStream::from_std(stream)?;
        serve_connection(stream, Pool::default()).await?;
        Ok(())
    })
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().ok_or("no port is given")?.parse()?;
    let how = arguments.next();
    let mut runtime = match how.as_deref() {
        Some("one" | "apart") => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let served = runtime.enable_all().build()?;
    served.block_on(serve(port, how.as_deref()))
}
