//! What a reader of a backup may see, and why not, in words.
//!
//! Every transaction of the workload ends with one update of the only row of `head`: its number,
//! and the sum of the `stamp` of all rows of all other tables. Triggers on the primary do that
//! ([`SCHEMA`]), and the lock on that row puts commits in the order of their numbers. So
//! *any* state that a reader sees names the prefix that it should be, and a row that is missing,
//! there twice, too old or too new shows in the sum. The other rules say the same in a way that a
//! person can follow: money is neither made nor lost, counters count, nobody sees a picture under a
//! permission that was withdrawn before it was uploaded.
//!
//! The invariant: [`violations`] is pure, and knows nothing of how the rows were read.

use std::collections::{BTreeMap, BTreeSet};

use crate::session::Row;

/// Columns by name.
pub type Fields = BTreeMap<String, Option<String>>;

/// All rows of all tables, as one reader saw them.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub tables: BTreeMap<String, Vec<Fields>>,
}

/// The tables of the workload, `head` among them.
pub const TABLES: [&str; 8] = [
    "account", "album", "comment", "head", "item", "ledger", "picture", "post",
];
/// Tables with a `stamp` in each row.
pub const STAMPED: [&str; 6] = ["account", "album", "comment", "item", "picture", "post"];

pub const ACCOUNTS: i64 = 40;
pub const TOTAL: i64 = ACCOUNTS * 1000;
pub const POSTS: i64 = 10;
pub const ITEMS: i64 = 30;
pub const ALBUMS: i64 = 6;
/// Numbers of transactions that the ledger keeps.
pub const LEDGER: i64 = 300;

/// The tables, the triggers that account for every change, and the first rows.
///
/// `account.place` is unique and swapped, `item.id` is changed, `item.attachment` lies out of line
/// and is not touched by most updates.
pub fn schema() -> String {
    let triggers: String = STAMPED
        .iter()
        .map(|table| {
            format!(
                "CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION stamp();
                 CREATE CONSTRAINT TRIGGER accounted AFTER INSERT OR UPDATE OR DELETE ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION accounted();\n"
            )
        })
        .collect();
    format!(
        "CREATE TABLE head (id int PRIMARY KEY, n bigint NOT NULL, stamps bigint NOT NULL, last_xid bigint NOT NULL);
         CREATE TABLE ledger (n bigint PRIMARY KEY);
         CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, place int NOT NULL UNIQUE, stamp bigint);
         CREATE TABLE post (id int PRIMARY KEY, comments int NOT NULL, stamp bigint);
         CREATE TABLE comment (id bigserial PRIMARY KEY, post int NOT NULL, body text, stamp bigint);
         CREATE TABLE album (id int PRIMARY KEY, shared boolean NOT NULL, stamp bigint);
         CREATE TABLE picture (album int NOT NULL, id bigint NOT NULL, private boolean NOT NULL, stamp bigint, PRIMARY KEY (album, id));
         CREATE TABLE item (id int PRIMARY KEY, color text, attachment text, stamp bigint);
         ALTER TABLE item ALTER attachment SET STORAGE EXTERNAL;
         CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.stamp := floor(random() * 1e12); RETURN NEW; END $$;
         CREATE FUNCTION accounted() RETURNS trigger LANGUAGE plpgsql AS $$
           DECLARE change bigint := 0; this bigint := txid_current(); number bigint;
           BEGIN
             IF TG_OP <> 'DELETE' THEN change := change + NEW.stamp; END IF;
             IF TG_OP <> 'INSERT' THEN change := change - OLD.stamp; END IF;
             UPDATE head SET stamps = stamps + change WHERE id = 1 AND last_xid = this;
             IF NOT FOUND THEN
               UPDATE head SET stamps = stamps + change, n = n + 1, last_xid = this WHERE id = 1 RETURNING n INTO number;
               INSERT INTO ledger VALUES (number);
               DELETE FROM ledger WHERE n = number - {LEDGER};
             END IF;
             RETURN NULL;
           END $$;
         {triggers}
         INSERT INTO head VALUES (1, 0, 0, 0);
         INSERT INTO account SELECT i, 1000, i FROM generate_series(1, {ACCOUNTS}) i;
         INSERT INTO post SELECT i, 0 FROM generate_series(1, {POSTS}) i;
         INSERT INTO album SELECT i, true FROM generate_series(1, {ALBUMS}) i;
         INSERT INTO item SELECT i, 'blue', repeat(md5(i::text), 100) FROM generate_series(1, {ITEMS}) i;
         CREATE INDEX ON comment (post);"
    )
}

impl State {
    pub fn insert(&mut self, table: &str, names: &[String], rows: Vec<Row>) {
        let fields = |row: Row| names.iter().cloned().zip(row).collect();
        self.tables
            .insert(table.to_owned(), rows.into_iter().map(fields).collect());
    }

    pub fn rows(&self, table: &str) -> &[Fields] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// The number of the last transaction that the reader saw.
    pub fn number(&self) -> Option<i64> {
        self.rows("head").first().and_then(|row| int(row, "n"))
    }
}

fn text<'a>(row: &'a Fields, column: &str) -> Option<&'a str> {
    row.get(column).and_then(Option::as_deref)
}

fn int(row: &Fields, column: &str) -> Option<i64> {
    text(row, column).and_then(|text| text.parse().ok())
}

fn is(row: &Fields, column: &str) -> bool {
    matches!(text(row, column), Some("t" | "true"))
}

/// Rules that a state breaks, in words. Empty for every state that existed on the primary.
pub fn violations(state: &State) -> Vec<String> {
    let mut broken = Vec::new();
    let sum = |table: &str, column: &str| -> i64 {
        let rows = state.rows(table).iter();
        rows.filter_map(|row| int(row, column)).sum()
    };

    let Some(head) = state.rows("head").first() else {
        return vec!["the only row of head is not there".to_owned()];
    };
    let (number, stamps) = (
        int(head, "n").unwrap_or_default(),
        int(head, "stamps").unwrap_or_default(),
    );

    let total = sum("account", "balance");
    if total != TOTAL {
        broken.push(format!(
            "all accounts together hold {total} instead of {TOTAL}: a transfer is seen by half"
        ));
    }
    let places: BTreeSet<i64> = state
        .rows("account")
        .iter()
        .filter_map(|row| int(row, "place"))
        .collect();
    if places != (1..=ACCOUNTS).collect() {
        broken.push(format!(
            "places are not 1 to {ACCOUNTS}: a swap is seen by half ({places:?})"
        ));
    }

    let mut counted: BTreeMap<i64, i64> = BTreeMap::new();
    for comment in state.rows("comment") {
        *counted
            .entry(int(comment, "post").unwrap_or_default())
            .or_default() += 1;
    }
    for post in state.rows("post") {
        let id = int(post, "id").unwrap_or_default();
        let (says, has) = (
            int(post, "comments").unwrap_or(-1),
            counted.get(&id).copied().unwrap_or(0),
        );
        if says != has {
            broken.push(format!(
                "post {id} says that it has {says} comments, and has {has}"
            ));
        }
    }

    let shared: BTreeSet<i64> = state
        .rows("album")
        .iter()
        .filter(|album| is(album, "shared"))
        .filter_map(|album| int(album, "id"))
        .collect();
    for picture in state.rows("picture") {
        let album = int(picture, "album").unwrap_or_default();
        if is(picture, "private") && shared.contains(&album) {
            broken.push(format!(
                "the private picture {} is seen in album {album} while that is still shared",
                text(picture, "id").unwrap_or("?")
            ));
        }
    }

    for item in state.rows("item") {
        let attachment = text(item, "attachment").unwrap_or_default();
        if attachment.len() != 3200 || attachment[..32] != attachment[3168..] {
            broken.push(format!(
                "the attachment of item {} is not the one it always had ({} characters)",
                text(item, "id").unwrap_or("?"),
                attachment.len()
            ));
        }
    }
    let items = state.rows("item").len() as i64;
    if items != ITEMS {
        broken.push(format!(
            "{items} items instead of {ITEMS}: one that was deleted and inserted again, or got another key, is there twice or not at all"
        ));
    }

    let ledger: BTreeSet<i64> = state
        .rows("ledger")
        .iter()
        .filter_map(|row| int(row, "n"))
        .collect();
    let expected: BTreeSet<i64> = ((number - LEDGER).max(0) + 1..=number).collect();
    if ledger != expected {
        let missing: Vec<_> = expected.difference(&ledger).take(5).collect();
        let surplus: Vec<_> = ledger.difference(&expected).take(5).collect();
        broken.push(format!(
            "the head says {number}, and the ledger lacks {missing:?} and has {surplus:?} beyond that"
        ));
    }

    let seen: i64 = STAMPED.iter().map(|table| sum(table, "stamp")).sum();
    if seen != stamps {
        broken.push(format!(
            "the stamps of all rows sum up to {seen}, and to {stamps} in the state after transaction {number}: a row is lost, stale, ahead or there twice"
        ));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
        pairs.iter().map(own).collect()
    }

    /// What the primary holds after transaction 2, which was a comment.
    fn sound() -> State {
        let mut state = State::default();
        let mut insert = |table: &str, rows| state.tables.insert(table.to_owned(), rows);
        let accounts = (1..=ACCOUNTS).map(|id| {
            let id = id.to_string();
            fields(&[
                ("id", &id),
                ("balance", "1000"),
                ("place", &id),
                ("stamp", "1"),
            ])
        });
        insert("account", accounts.collect());
        insert(
            "post",
            vec![fields(&[("id", "1"), ("comments", "1"), ("stamp", "10")])],
        );
        insert(
            "comment",
            vec![fields(&[("id", "1"), ("post", "1"), ("stamp", "100")])],
        );
        insert(
            "album",
            vec![fields(&[("id", "1"), ("shared", "f"), ("stamp", "1000")])],
        );
        insert(
            "picture",
            vec![fields(&[
                ("album", "1"),
                ("id", "1"),
                ("private", "t"),
                ("stamp", "10000"),
            ])],
        );
        let items = (1..=ITEMS).map(|id| {
            let attachment = "0123456789abcdef".repeat(200);
            fields(&[
                ("id", &id.to_string()),
                ("attachment", &attachment),
                ("stamp", "0"),
            ])
        });
        insert("item", items.collect());
        insert("ledger", vec![fields(&[("n", "1")]), fields(&[("n", "2")])]);
        let stamps = (ACCOUNTS + 11_110).to_string();
        insert(
            "head",
            vec![fields(&[("id", "1"), ("n", "2"), ("stamps", &stamps)])],
        );
        state
    }

    /// What is said when a field is changed, or the first row of a table removed.
    fn said(table: &str, change: Option<(&str, &str)>) -> String {
        let mut state = sound();
        let rows = state.tables.get_mut(table).expect("a table of the schema");
        match change {
            Some((column, value)) => {
                rows[0].insert(column.to_owned(), Some(value.to_owned()));
            }
            None => {
                rows.remove(0);
            }
        }
        violations(&state).join("\n")
    }

    #[test]
    fn a_state_that_existed_breaks_nothing() {
        assert_eq!(violations(&sound()), Vec::<String>::new());
        assert_eq!(sound().number(), Some(2));
    }

    #[test]
    fn half_a_transfer_is_seen() {
        assert!(said("account", Some(("balance", "990"))).contains("39990 instead of 40000"));
    }

    #[test]
    fn half_a_swap_is_seen() {
        assert!(said("account", Some(("place", "2"))).contains("a swap is seen by half"));
    }

    #[test]
    fn a_counter_without_its_comment_is_seen() {
        assert!(said("comment", None).contains("post 1 says that it has 1 comments, and has 0"));
    }

    #[test]
    fn a_picture_under_the_old_permission_is_seen() {
        assert!(said("album", Some(("shared", "t"))).contains("private picture 1 is seen"));
    }

    #[test]
    fn a_stale_row_is_seen_by_its_stamp_alone() {
        let said = said("post", Some(("stamp", "9")));
        assert!(
            said.starts_with("the stamps of all rows sum up to"),
            "{said}"
        );
    }

    #[test]
    fn a_lost_ledger_row_is_seen() {
        assert!(said("ledger", None).contains("lacks [1]"));
    }

    #[test]
    fn a_lost_attachment_is_seen() {
        assert!(said("item", Some(("attachment", ""))).contains("(0 characters)"));
    }
}
