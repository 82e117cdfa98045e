//! A standby in memory is read by drivers, which ask for more than what somebody has typed.

use std::process::Command;

use hindcast_tests::stage::free_port;
use hindcast_tests::standby::Pair;
use hindcast_tests::{install, repository};

use super::inside;

const SCHEMA: &str = "CREATE TABLE t (id bigint PRIMARY KEY, s text, tags text[], grid int[], n numeric);
     INSERT INTO t SELECT i, 's' || i, ARRAY['a b', NULL, 'q\"\\x'], ARRAY[[i, 2], [3, NULL]], i / 4.0 FROM generate_series(1, 20) i";

/// Each transaction in which the engine looks at the server it has, and one that reads.
const SQLALCHEMY: &str = r#"
import sys
from sqlalchemy import create_engine, text
engine = create_engine(sys.argv[1].replace("postgres://", "postgresql+psycopg://"))
for number in (7, 8):
    with engine.connect() as connection:
        row = connection.execute(text("SELECT s, tags, grid, n FROM t WHERE id = :id"), {"id": number}).one()
        assert tuple(row) == (f"s{number}", ["a b", None, 'q"\\x'], [[number, 2], [3, None]], number / 4), row
        with connection.begin_nested() as nested:
            assert connection.execute(text("SELECT count(*) FROM t")).scalar() == 20
print(engine.dialect.server_version_info)
"#;

/// It takes values in binary form alone, and asks for no more than it knows how to read.
const ASYNCPG: &str = r#"
import asyncio, sys
import asyncpg

async def main():
    connection = await asyncpg.connect(sys.argv[1], timeout=10)
    for number in (7, 8):
        row = await connection.fetchrow("SELECT s, tags, n FROM t WHERE id = $1", number, timeout=10)
        assert tuple(row) == (f"s{number}", ["a b", None, 'q"\\x'], number / 4), row
    for refused in ("SELECT nonsense FROM t", "SELECT pg_sleep(1)"):
        try:
            await connection.fetch(refused, timeout=10)
        except asyncpg.PostgresError as error:
            print(error.sqlstate)
    print(await connection.fetchval("SELECT version()", timeout=10))
    await connection.close()

asyncio.run(main())
"#;

#[test]
fn drivers_connect_and_read() {
    let pair = Pair::shared("drivers", SCHEMA);
    let port = free_port();
    let mut memory = pair.remember(port, &[]);
    memory.wait_until_it_follows();
    let url = pair.memory_url(port);
    install("tests/services/install.sh", &[]);
    let services = repository("tests/services/.venv/bin/python")
        .display()
        .to_string();
    let run = |python: &str, script: &str| {
        let output = Command::new(python)
            .args(["-c", script, &url])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let version = run(&inside::python(), SQLALCHEMY);
    assert!(version.starts_with('('), "{version}");
    let said = run(&services, ASYNCPG);
    let (errors, version) = said.rsplit_once('\n').unwrap();
    assert_eq!(errors, "42703\n0A000");
    assert!(version.contains("hindcast standby in memory"), "{version}");
    memory.interrupt().assert_code(0);
}
