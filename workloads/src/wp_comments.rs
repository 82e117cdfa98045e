//! WordPress's posts and comments (R³, sections 6.3 and 7.2).
//!
//! | request | transactions |
//! |---|---|
//! | `GET /posts/{id}` | the post, its approved comments |
//! | `POST /posts/{id}/comments` | the post; insert the comment |
//! | `POST /posts/{id}/trash` | the post, its status, its comments' statuses, a backup of these · all comments to the trash |
//! | `POST /posts/{id}/untrash` | the backup, the post's status, each comment's status, drop the backup |
//!
//! WP-11073: a comment that is added between the backup and the update goes to the trash without
//! having been backed up, so restoring the post does not bring it back. The fix
//! ([`Variant::Checked`]) refuses comments on a post in the trash; under snapshot isolation the
//! check does not see a trashing that has not committed, so it is only right under SERIALIZABLE.

use std::collections::{BTreeMap, VecDeque};

use http::Method;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::Scale;
use crate::Variant;
use crate::database::{Cx, Sql};
use crate::drive::{Generator, HttpCall, Operation};
use crate::load::{LoadError, Loader};
use crate::random::Random;
use crate::service::{Call, Failure, Handled, Reply, column, number};

/// WordPress's columns, in its spelling, with Postgres types.
pub(crate) const SCHEMA: &str = r#"
CREATE TABLE wp_posts (
    "ID"                  bigserial PRIMARY KEY,
    post_author           bigint NOT NULL DEFAULT 0,
    post_date             timestamptz NOT NULL DEFAULT now(),
    post_date_gmt         timestamptz NOT NULL DEFAULT now(),
    post_content          text NOT NULL,
    post_title            text NOT NULL,
    post_excerpt          text NOT NULL DEFAULT '',
    post_status           varchar(20) NOT NULL DEFAULT 'publish',
    comment_status        varchar(20) NOT NULL DEFAULT 'open',
    ping_status           varchar(20) NOT NULL DEFAULT 'open',
    post_password         varchar(255) NOT NULL DEFAULT '',
    post_name             varchar(200) NOT NULL DEFAULT '',
    to_ping               text NOT NULL DEFAULT '',
    pinged                text NOT NULL DEFAULT '',
    post_modified         timestamptz NOT NULL DEFAULT now(),
    post_modified_gmt     timestamptz NOT NULL DEFAULT now(),
    post_content_filtered text NOT NULL DEFAULT '',
    post_parent           bigint NOT NULL DEFAULT 0,
    guid                  varchar(255) NOT NULL DEFAULT '',
    menu_order            integer NOT NULL DEFAULT 0,
    post_type             varchar(20) NOT NULL DEFAULT 'post',
    post_mime_type        varchar(100) NOT NULL DEFAULT '',
    comment_count         bigint NOT NULL DEFAULT 0
);
CREATE TABLE wp_comments (
    "comment_ID"         bigserial PRIMARY KEY,
    "comment_post_ID"    bigint NOT NULL DEFAULT 0,
    comment_author       text NOT NULL,
    comment_author_email varchar(100) NOT NULL DEFAULT '',
    comment_author_url   varchar(200) NOT NULL DEFAULT '',
    "comment_author_IP"  varchar(100) NOT NULL DEFAULT '',
    comment_date         timestamptz NOT NULL DEFAULT now(),
    comment_date_gmt     timestamptz NOT NULL DEFAULT now(),
    comment_content      text NOT NULL,
    comment_karma        integer NOT NULL DEFAULT 0,
    comment_approved     varchar(20) NOT NULL DEFAULT '1',
    comment_agent        varchar(255) NOT NULL DEFAULT '',
    comment_type         varchar(20) NOT NULL DEFAULT 'comment',
    comment_parent       bigint NOT NULL DEFAULT 0,
    user_id              bigint NOT NULL DEFAULT 0
);
CREATE TABLE wp_postmeta (
    meta_id    bigserial PRIMARY KEY,
    post_id    bigint NOT NULL DEFAULT 0,
    meta_key   varchar(255),
    meta_value text
);
"#;

pub(crate) const TABLES: &[&str] = &["wp_posts", "wp_comments", "wp_postmeta"];

const INDEXES: &str = r#"
CREATE INDEX wp_posts_post_name ON wp_posts (post_name);
CREATE INDEX wp_posts_type_status_date ON wp_posts (post_type, post_status, post_date, "ID");
CREATE INDEX wp_posts_post_parent ON wp_posts (post_parent);
CREATE INDEX wp_posts_post_author ON wp_posts (post_author);
CREATE INDEX "wp_comments_comment_post_ID" ON wp_comments ("comment_post_ID");
CREATE INDEX wp_comments_comment_approved_date_gmt ON wp_comments (comment_approved, comment_date_gmt);
CREATE INDEX wp_comments_comment_date_gmt ON wp_comments (comment_date_gmt);
CREATE INDEX wp_comments_comment_parent ON wp_comments (comment_parent);
CREATE INDEX wp_comments_comment_author_email ON wp_comments (comment_author_email);
CREATE INDEX wp_postmeta_post_id ON wp_postmeta (post_id);
CREATE INDEX wp_postmeta_meta_key ON wp_postmeta (meta_key);
"#;

pub(crate) const CHECKS: &[(&str, &str)] = &[
    (
        "WP-11073: a post that is not in the trash has no comments there",
        r#"SELECT format('comment %s of post %s was not restored with it', c."comment_ID", p."ID")
             FROM wp_comments c JOIN wp_posts p ON p."ID" = c."comment_post_ID"
            WHERE p.post_status <> 'trash' AND c.comment_approved = 'post-trashed' ORDER BY c."comment_ID""#,
    ),
    (
        "a post in the trash has one backup of its comments' statuses, any other has none",
        r#"SELECT format('post %s is %s and has %s backups', p."ID", p.post_status, count(m.meta_id))
             FROM wp_posts p LEFT JOIN wp_postmeta m
               ON m.post_id = p."ID" AND m.meta_key = '_wp_trash_meta_comments_status'
            GROUP BY p."ID", p.post_status
           HAVING count(m.meta_id) <> (p.post_status = 'trash')::int ORDER BY p."ID""#,
    ),
];

const POST_BYTES: usize = 1024;
const COMMENTS_PER_POST: u64 = 10;
const BACKUP: &str = "_wp_trash_meta_comments_status";

static GET_POST: Sql = Sql::new(
    r#"SELECT post_title, post_content, post_status, post_name, post_author, to_char(post_date_gmt AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM wp_posts WHERE "ID" = $1"#,
    &[Type::INT8],
);
static GET_COMMENTS: Sql = Sql::new(
    r#"SELECT "comment_ID", comment_author, to_char(comment_date_gmt AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), comment_content FROM wp_comments WHERE "comment_post_ID" = $1 AND comment_approved = '1' ORDER BY comment_date_gmt, "comment_ID""#,
    &[Type::INT8],
);
static POST_STATUS: Sql = Sql::new(
    r#"SELECT post_status FROM wp_posts WHERE "ID" = $1"#,
    &[Type::INT8],
);
static ADD_COMMENT: Sql = Sql::new(
    r#"INSERT INTO wp_comments ("comment_post_ID", comment_author, comment_author_email, comment_content, comment_date, comment_date_gmt)
       VALUES ($1, $2, $3, $4, coalesce($5::text::timestamptz, now()), coalesce($5::text::timestamptz, now()))
       RETURNING "comment_ID""#,
    &[
        Type::INT8,
        Type::TEXT,
        Type::VARCHAR,
        Type::TEXT,
        Type::TEXT,
    ],
);
static SET_POST_STATUS: Sql = Sql::new(
    r#"UPDATE wp_posts SET post_status = $2 WHERE "ID" = $1"#,
    &[Type::INT8, Type::VARCHAR],
);
static COMMENT_STATUSES: Sql = Sql::new(
    r#"SELECT "comment_ID", comment_approved FROM wp_comments WHERE "comment_post_ID" = $1 ORDER BY "comment_ID""#,
    &[Type::INT8],
);
static ADD_META: Sql = Sql::new(
    "INSERT INTO wp_postmeta (post_id, meta_key, meta_value) VALUES ($1, $2, $3) RETURNING meta_id",
    &[Type::INT8, Type::VARCHAR, Type::TEXT],
);
static TRASH_COMMENTS: Sql = Sql::new(
    r#"UPDATE wp_comments SET comment_approved = 'post-trashed' WHERE "comment_post_ID" = $1"#,
    &[Type::INT8],
);
static GET_META: Sql = Sql::new(
    "SELECT meta_value FROM wp_postmeta WHERE post_id = $1 AND meta_key = $2 ORDER BY meta_id LIMIT 1",
    &[Type::INT8, Type::VARCHAR],
);
static SET_COMMENT_STATUS: Sql = Sql::new(
    r#"UPDATE wp_comments SET comment_approved = $2 WHERE "comment_ID" = $1"#,
    &[Type::INT8, Type::VARCHAR],
);
static DELETE_META: Sql = Sql::new(
    "DELETE FROM wp_postmeta WHERE post_id = $1 AND meta_key = $2",
    &[Type::INT8, Type::VARCHAR],
);

#[derive(Debug, Serialize, Deserialize)]
pub struct Post {
    #[serde(rename = "ID")]
    pub id: i64,
    pub post_title: String,
    pub post_content: String,
    pub post_status: String,
    pub post_name: String,
    pub post_author: i64,
    pub post_date_gmt: String,
    pub comments: Vec<Comment>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Comment {
    #[serde(rename = "comment_ID")]
    pub id: i64,
    pub comment_author: String,
    pub comment_date_gmt: String,
    pub comment_content: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewComment {
    pub comment_author: String,
    #[serde(default)]
    pub comment_author_email: String,
    pub comment_content: String,
    /// The transaction's time where it is missing.
    #[serde(default)]
    pub comment_date_gmt: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Added {
    #[serde(rename = "comment_ID")]
    pub comment: i64,
    #[serde(rename = "comment_post_ID")]
    pub post: i64,
}

/// The answer to trashing and restoring a post.
#[derive(Debug, Serialize, Deserialize)]
pub struct Moved {
    #[serde(rename = "ID")]
    pub id: i64,
    pub post_status: String,
    /// False if it was there already.
    pub moved: bool,
    /// Comments that went with it.
    pub comments: u64,
}

pub(crate) async fn handle(cx: Cx<'_>, variant: Variant, call: &Call<'_>) -> Handled {
    match (call.method, call.path) {
        (&Method::GET, ["posts", id]) => {
            let id = number(id)?;
            Reply::ok(&cx.retrying(|| read_post(cx, id)).await?).map(Some)
        }
        (&Method::POST, ["posts", id, "comments"]) => {
            let (id, new) = (number(id)?, call.body()?);
            Reply::created(&cx.retrying(|| add_comment(cx, variant, id, &new)).await?).map(Some)
        }
        (&Method::POST, ["posts", id, "trash"]) => {
            Reply::ok(&trash_post(cx, number(id)?).await?).map(Some)
        }
        (&Method::POST, ["posts", id, "untrash"]) => {
            let id = number(id)?;
            Reply::ok(&cx.retrying(|| untrash_post(cx, id)).await?).map(Some)
        }
        _ => Ok(None),
    }
}

async fn read_post(cx: Cx<'_>, id: i64) -> Result<Post, Failure> {
    let mut transaction = cx.begin().await?;
    let post = transaction.query_first(&GET_POST, &[&id]).await?;
    let comments = transaction.query(&GET_COMMENTS, &[&id]).await?;
    transaction.commit().await?;
    let Some(post) = post else {
        return Err(no_post(id));
    };
    let comment = |row| {
        Ok(Comment {
            id: column(row, 0)?,
            comment_author: column(row, 1)?,
            comment_date_gmt: column(row, 2)?,
            comment_content: column(row, 3)?,
        })
    };
    Ok(Post {
        id,
        post_title: column(&post, 0)?,
        post_content: column(&post, 1)?,
        post_status: column(&post, 2)?,
        post_name: column(&post, 3)?,
        post_author: column(&post, 4)?,
        post_date_gmt: column(&post, 5)?,
        comments: comments
            .iter()
            .map(comment)
            .collect::<Result<_, Failure>>()?,
    })
}

async fn add_comment(
    cx: Cx<'_>,
    variant: Variant,
    id: i64,
    new: &NewComment,
) -> Result<Added, Failure> {
    let mut transaction = cx.begin().await?;
    let Some(post) = transaction.query_first(&POST_STATUS, &[&id]).await? else {
        transaction.rollback().await?;
        return Err(no_post(id));
    };
    if variant == Variant::Checked && column::<&str>(&post, 0)? == "trash" {
        transaction.rollback().await?;
        return Err(Failure::Refused {
            kind: "comment_on_trash",
            message: format!("post {id} is in the trash"),
        });
    }
    let row = transaction
        .query_one(
            &ADD_COMMENT,
            &[
                &id,
                &new.comment_author,
                &new.comment_author_email,
                &new.comment_content,
                &new.comment_date_gmt,
            ],
        )
        .await?;
    transaction.commit().await?;
    Ok(Added {
        comment: column(&row, 0)?,
        post: id,
    })
}

async fn trash_post(cx: Cx<'_>, id: i64) -> Result<Moved, Failure> {
    let moved = cx.retrying(|| back_up(cx, id)).await?;
    let comments = if moved {
        cx.retrying(|| trash_comments(cx, id)).await?
    } else {
        0
    };
    Ok(Moved {
        id,
        post_status: "trash".to_owned(),
        moved,
        comments,
    })
}

/// `wp_trash_post`: false if the post is in the trash already.
async fn back_up(cx: Cx<'_>, id: i64) -> Result<bool, Failure> {
    let mut transaction = cx.begin().await?;
    let Some(post) = transaction.query_first(&POST_STATUS, &[&id]).await? else {
        transaction.rollback().await?;
        return Err(no_post(id));
    };
    if column::<&str>(&post, 0)? == "trash" {
        transaction.commit().await?;
        return Ok(false);
    }
    transaction
        .execute(&SET_POST_STATUS, &[&id, &"trash"])
        .await?;
    let mut statuses = BTreeMap::new();
    for row in &transaction.query(&COMMENT_STATUSES, &[&id]).await? {
        statuses.insert(column::<i64>(row, 0)?, column::<String>(row, 1)?);
    }
    let backup = serde_json::to_string(&statuses).expect("numbers and strings are JSON");
    transaction
        .query_one(&ADD_META, &[&id, &BACKUP, &backup])
        .await?;
    transaction.commit().await?;
    Ok(true)
}

/// `wp_trash_post_comments`, its second half.
async fn trash_comments(cx: Cx<'_>, id: i64) -> Result<u64, Failure> {
    let mut transaction = cx.begin().await?;
    let comments = transaction.execute(&TRASH_COMMENTS, &[&id]).await?;
    transaction.commit().await?;
    Ok(comments)
}

/// `wp_untrash_post`: brings back exactly the comments that were backed up.
async fn untrash_post(cx: Cx<'_>, id: i64) -> Result<Moved, Failure> {
    let mut transaction = cx.begin().await?;
    let Some(backup) = transaction.query_first(&GET_META, &[&id, &BACKUP]).await? else {
        transaction.commit().await?;
        return Ok(Moved {
            id,
            post_status: "publish".to_owned(),
            moved: false,
            comments: 0,
        });
    };
    let statuses: BTreeMap<i64, String> =
        serde_json::from_str(column(&backup, 0)?).map_err(|error| {
            Failure::Invalid(format!("the backup of post {id} is not ours: {error}"))
        })?;
    transaction
        .execute(&SET_POST_STATUS, &[&id, &"publish"])
        .await?;
    for (comment, status) in &statuses {
        transaction
            .execute(&SET_COMMENT_STATUS, &[comment, status])
            .await?;
    }
    transaction.execute(&DELETE_META, &[&id, &BACKUP]).await?;
    transaction.commit().await?;
    Ok(Moved {
        id,
        post_status: "publish".to_owned(),
        moved: true,
        comments: statuses.len() as u64,
    })
}

fn no_post(id: i64) -> Failure {
    Failure::NotFound(format!("no post {id}"))
}

pub(crate) async fn load(
    loader: &Loader<'_>,
    scale: Scale,
    random: &mut Random,
) -> Result<(), LoadError> {
    let posts = scale.wp_posts();
    let mut rows = loader
        .copy(r#"wp_posts ("ID", post_author, post_date, post_date_gmt, post_content, post_title, post_name, guid, comment_count)"#)
        .await?;
    for id in 1..=posts {
        let date = date(id);
        rows.integer(id)
            .integer(1 + id % 20)
            .text(&date)
            .text(&date)
            .text(&random.prose(POST_BYTES));
        rows.text(&format!("Post {id}"))
            .text(&format!("post-{id}"))
            .text(&format!("http://blog.example.org/?p={id}"));
        rows.integer(COMMENTS_PER_POST);
        rows.end().await?;
    }
    rows.finish().await?;

    let mut rows = loader
        .copy(r#"wp_comments ("comment_ID", "comment_post_ID", comment_author, comment_author_email, comment_date, comment_date_gmt, comment_content)"#)
        .await?;
    for id in 1..=posts * COMMENTS_PER_POST {
        let new = comment(id, random);
        let date = new.comment_date_gmt.unwrap_or_default();
        rows.integer(id)
            .integer(1 + (id - 1) / COMMENTS_PER_POST)
            .text(&new.comment_author);
        rows.text(&new.comment_author_email)
            .text(&date)
            .text(&date)
            .text(&new.comment_content);
        rows.end().await?;
    }
    rows.finish().await?;

    loader.run(INDEXES).await?;
    loader.sequence("wp_posts", "ID", posts).await?;
    loader
        .sequence("wp_comments", "comment_ID", posts * COMMENTS_PER_POST)
        .await
}

fn comment(id: u64, random: &mut Random) -> NewComment {
    let comment_author = random.alphanumeric(6, 12);
    NewComment {
        comment_author_email: format!("{comment_author}@example.org"),
        comment_author,
        comment_content: random.prose(POST_BYTES),
        comment_date_gmt: Some(date(id)),
    }
}

/// A minute after the one before.
fn date(id: u64) -> String {
    let (days, minutes) = (id / 1440, id % 1440);
    let (years, days) = (days / 336, days % 336);
    format!(
        "{}-{:02}-{:02}T{:02}:{:02}:00Z",
        2012 + years % 1000,
        1 + days / 28,
        1 + days % 28,
        minutes / 60,
        minutes % 60
    )
}

/// Table 1: 80 % reads, 10 % comments, 5 % trashed and 5 % restored posts.
///
/// A restored post is the one that was trashed longest ago, as an editor undoes a mistake; so few
/// posts are in the trash at a time and what a read returns stays as large as the paper says. One
/// comment in ten goes to the post that was trashed last: whoever has that page open may well be
/// commenting on it, which is how WP-11073 came about.
pub struct Requests {
    posts: i64,
    comments: u64,
    trashed: VecDeque<i64>,
}

impl Requests {
    pub fn new(scale: Scale) -> Self {
        Self {
            posts: scale.wp_posts() as i64,
            comments: scale.wp_posts() * COMMENTS_PER_POST,
            trashed: VecDeque::new(),
        }
    }

    /// A post that the mix might ask for.
    pub fn post(&self, random: &mut Random) -> i64 {
        random.between(1, self.posts)
    }
}

impl Generator for Requests {
    fn operations(&self) -> &'static [Operation] {
        const {
            &[
                Operation::new("read-post", 80.0),
                Operation::new("add-comment", 10.0),
                Operation::new("trash-post", 5.0),
                Operation::new("untrash-post", 5.0),
            ]
        }
    }

    fn call(&mut self, operation: usize, random: &mut Random) -> HttpCall {
        match operation {
            0 => HttpCall::get(format!("/posts/{}", self.post(random))),
            1 => {
                let post = match self.trashed.back() {
                    Some(last) if random.chance(0.1) => *last,
                    _ => self.post(random),
                };
                self.comments += 1;
                HttpCall::post(
                    format!("/posts/{post}/comments"),
                    &comment(self.comments, random),
                )
            }
            2 => {
                let post = self.post(random);
                self.trashed.push_back(post);
                HttpCall::post_nothing(format!("/posts/{post}/trash"))
            }
            _ => {
                let post = self
                    .trashed
                    .pop_front()
                    .unwrap_or_else(|| self.post(random));
                HttpCall::post_nothing(format!("/posts/{post}/untrash"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_dates() {
        assert_eq!(date(1), "2012-01-01T00:01:00Z");
        assert_eq!(date(1440 * 335 + 1439), "2012-12-28T23:59:00Z");
        assert_eq!(date(1440 * 336), "2013-01-01T00:00:00Z");
    }
}
