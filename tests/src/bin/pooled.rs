//! A service on tokio whose only connection goes back to its pool between transactions:
//! `pooled PORT`. LATE says which request is late: "first" pauses before its second transaction,
//! or "second" computes before it takes the connection.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Connection, NoTls, Row, Socket, tls::NoTlsStream};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Who waits longest for it gets it next. Who has it drives it.
type Pool = Arc<Mutex<(Client, Connection<Socket, NoTlsStream>)>>;

async fn ask(pool: &Pool, statement: &str) -> Result<Vec<Row>, Failed> {
    let mut only = pool.lock().await;
    let (client, connection) = &mut *only;
    tokio::select! {
        rows = client.query(statement, &[]) => Ok(rows?),
        ended = connection => Err(ended.err().map_or("it has ended".into(), Into::into)),
    }
}

fn compute() {
    let mut sum = 0u64;
    for n in 0..30_000_000u64 {
        sum = black_box(sum.wrapping_mul(31).wrapping_add(n));
    }
}

async fn answered(pool: &Pool, is_first: bool, late: &str) -> Result<i64, Failed> {
    if !is_first && late == "second" {
        tokio::task::spawn_blocking(compute).await?;
    }
    ask(pool, "INSERT INTO written VALUES ('one')").await?;
    if is_first && late == "first" {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let rows = ask(pool, "SELECT count(*) FROM written").await?;
    Ok(rows.first().ok_or("it counts nothing")?.get(0))
}

async fn serve(mut stream: TcpStream, pool: Pool) -> Result<(), Failed> {
    let late = std::env::var("LATE")?;
    let mut request = Vec::with_capacity(4096);
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let is_first = request.starts_with(b"GET /first ");
    let text = answered(&pool, is_first, &late).await?.to_string();
    let length = text.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((answer + &text).as_bytes()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let port: u16 = std::env::args().nth(1).ok_or("no port is given")?.parse()?;
    let database = std::env::var("DATABASE_URL")?;
    let only = tokio_postgres::connect(&database, NoTls).await?;
    let pool = Arc::new(Mutex::new(only));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, Arc::clone(&pool)));
    }
}
