//! Sequences that are made after a database was prepared.

use hindcast_cluster::{Cluster, Options};
use hindcast_rewind::pins::{Reserved, prepare};
use hindcast_trace::SequenceValue;

use crate::pins::{ask, prelude};

/// A service makes its tables when it starts: with whichever rights, and with other numbers than in
/// the recording.
#[tokio::test]
async fn sequences_that_are_made_later_are_known_by_their_names() {
    const RECORDED: [u32; 3] = [4_000_000_001, 4_000_000_002, 4_000_000_003];
    let names = [
        "public.plain_id_seq",
        "\"Odd\".\"T_id_seq\"",
        "public.identity_id_seq",
    ];
    let cluster = Cluster::temporary_async(Options::throw_away())
        .await
        .unwrap();
    let client = cluster.connect("postgres").await.unwrap();
    let setup =
        "CREATE ROLE few; CREATE SCHEMA \"Odd\"; GRANT ALL ON SCHEMA public, \"Odd\" TO few";
    client.batch_execute(setup).await.unwrap();
    let mut reserved = Reserved::default();
    for (name, sequence) in names.into_iter().zip(RECORDED) {
        reserved.name(name.to_owned(), sequence);
        reserved.add(SequenceValue { sequence, value: 2 }, 1);
    }
    assert!(prepare(&client, reserved).await.unwrap().active);
    let made = "SET ROLE few; CREATE TABLE plain (id serial, n int); CREATE TABLE \"Odd\".\"T\" (id bigserial, n int); \
                CREATE TABLE identity (n int); ALTER TABLE identity ADD id int GENERATED ALWAYS AS IDENTITY; \
                CREATE TEMP TABLE of_session (id int GENERATED ALWAYS AS IDENTITY)";
    client.batch_execute(made).await.unwrap();
    for (table, sequence) in ["plain", "\"Odd\".\"T\"", "identity"]
        .into_iter()
        .zip(RECORDED)
    {
        let values = [5, 9].map(|value| SequenceValue { sequence, value });
        let insert = format!("INSERT INTO {table} (n) VALUES (1), (2), (3) RETURNING id");
        let pinned = format!("BEGIN; {}; {insert}", prelude(&values, None));
        assert_eq!(ask(&client, &pinned).await, "5 9 1", "{table}");
        // The value that a recorded transaction is to draw is passed over.
        let unpinned = format!("COMMIT; {insert}");
        assert_eq!(ask(&client, &unpinned).await, "3 4 5", "{table}");
    }
}
