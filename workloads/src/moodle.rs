//! Moodle's forum subscriptions (R³, sections 4, 6.1 and 7.2).
//!
//! | request | transactions |
//! |---|---|
//! | `GET /forums/{forum}/subscribers` | the subscribers, by e-mail address |
//! | `POST /subscribe` `{"userid": 5, "forum": 7}` | is the user subscribed? · if not, insert |
//!
//! MDL-59854: two such requests at once both find no subscription and both insert one. Merging the
//! two transactions ([`Variant::Merged`]) does not help under snapshot isolation, where neither
//! sees the other's row; the unique index with an upsert ([`Variant::Upsert`]) does.

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

/// Moodle's columns and index names, without those that a forum's subscribers do not touch.
pub(crate) const SCHEMA: &str = r#"
CREATE TABLE mdl_user (
    id           bigserial PRIMARY KEY,
    auth         varchar(20) NOT NULL DEFAULT 'manual',
    confirmed    smallint NOT NULL DEFAULT 0,
    deleted      smallint NOT NULL DEFAULT 0,
    suspended    smallint NOT NULL DEFAULT 0,
    mnethostid   bigint NOT NULL DEFAULT 0,
    username     varchar(100) NOT NULL DEFAULT '',
    idnumber     varchar(255) NOT NULL DEFAULT '',
    firstname    varchar(100) NOT NULL DEFAULT '',
    lastname     varchar(100) NOT NULL DEFAULT '',
    email        varchar(100) NOT NULL DEFAULT '',
    emailstop    smallint NOT NULL DEFAULT 0,
    city         varchar(120) NOT NULL DEFAULT '',
    country      varchar(2) NOT NULL DEFAULT '',
    lang         varchar(30) NOT NULL DEFAULT 'en',
    theme        varchar(50) NOT NULL DEFAULT '',
    timezone     varchar(100) NOT NULL DEFAULT '99',
    lastaccess   bigint NOT NULL DEFAULT 0,
    lastlogin    bigint NOT NULL DEFAULT 0,
    picture      bigint NOT NULL DEFAULT 0,
    mailformat   smallint NOT NULL DEFAULT 1,
    maildigest   smallint NOT NULL DEFAULT 0,
    maildisplay  smallint NOT NULL DEFAULT 2,
    trackforums  smallint NOT NULL DEFAULT 0,
    imagealt     varchar(255)
);
CREATE TABLE mdl_forum (
    id             bigserial PRIMARY KEY,
    course         bigint NOT NULL DEFAULT 0,
    type           varchar(20) NOT NULL DEFAULT 'general',
    name           varchar(255) NOT NULL DEFAULT '',
    intro          text NOT NULL,
    introformat    smallint NOT NULL DEFAULT 0,
    forcesubscribe smallint NOT NULL DEFAULT 0,
    timemodified   bigint NOT NULL DEFAULT 0
);
CREATE TABLE mdl_forum_subscriptions (
    id     bigserial PRIMARY KEY,
    userid bigint NOT NULL DEFAULT 0,
    forum  bigint NOT NULL DEFAULT 0
);
"#;

pub(crate) const TABLES: &[&str] = &["mdl_user", "mdl_forum", "mdl_forum_subscriptions"];

pub(crate) const INDEXES: &str = "
CREATE UNIQUE INDEX mdl_user_mneuse_uix ON mdl_user (mnethostid, username);
CREATE INDEX mdl_foru_cou_ix ON mdl_forum (course);
CREATE INDEX mdl_forusubs_use_ix ON mdl_forum_subscriptions (userid);
CREATE INDEX mdl_forusubs_for_ix ON mdl_forum_subscriptions (forum);
";

/// What Moodle's upgrade step for MDL-59854 does: keep the oldest of each set of duplicates, then
/// forbid more.
pub(crate) const UNIQUE_SUBSCRIPTIONS: &str = "
DELETE FROM mdl_forum_subscriptions later USING mdl_forum_subscriptions earlier
 WHERE later.userid = earlier.userid AND later.forum = earlier.forum AND later.id > earlier.id;
CREATE UNIQUE INDEX mdl_forusubs_usefor_uix ON mdl_forum_subscriptions (userid, forum);
";

pub(crate) const CHECKS: &[(&str, &str)] = &[(
    "MDL-59854: a user is subscribed to a forum at most once",
    "SELECT format('user %s is subscribed to forum %s by rows %s', userid, forum, string_agg(id::text, ', ' ORDER BY id))
       FROM mdl_forum_subscriptions GROUP BY userid, forum HAVING count(*) > 1 ORDER BY userid, forum",
)];

static FETCH_SUBSCRIBERS: Sql = Sql::new(
    "SELECT s.id, u.id, u.username, u.firstname, u.lastname, u.maildisplay, u.mailformat, u.maildigest, \
            u.imagealt, u.email, u.emailstop, u.city, u.country, u.lastaccess, u.lastlogin, u.picture, \
            u.timezone, u.theme, u.lang, u.trackforums, u.mnethostid \
       FROM mdl_user u JOIN mdl_forum_subscriptions s ON s.userid = u.id \
      WHERE s.forum = $1 ORDER BY u.email, s.id",
    &[Type::INT8],
);
static IS_SUBSCRIBED: Sql = Sql::new(
    "SELECT id FROM mdl_forum_subscriptions WHERE userid = $1 AND forum = $2 ORDER BY id LIMIT 1",
    &[Type::INT8, Type::INT8],
);
static FORUM_INSERT: Sql = Sql::new(
    "INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, $2) RETURNING id",
    &[Type::INT8, Type::INT8],
);
static FORUM_UPSERT: Sql = Sql::new(
    "INSERT INTO mdl_forum_subscriptions (userid, forum) VALUES ($1, $2) \
     ON CONFLICT (userid, forum) DO UPDATE SET userid = excluded.userid RETURNING id",
    &[Type::INT8, Type::INT8],
);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscribe {
    pub userid: i64,
    pub forum: i64,
}

/// The answer to [`Subscribe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    pub userid: i64,
    pub forum: i64,
    /// The row in `mdl_forum_subscriptions`.
    pub subscription: i64,
    /// False if the user was subscribed already.
    pub created: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Subscribers {
    pub forum: i64,
    pub subscribers: Vec<Subscriber>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Subscriber {
    pub subscription: i64,
    pub id: i64,
    pub username: String,
    pub firstname: String,
    pub lastname: String,
    pub maildisplay: i16,
    pub mailformat: i16,
    pub maildigest: i16,
    pub imagealt: Option<String>,
    pub email: String,
    pub emailstop: i16,
    pub city: String,
    pub country: String,
    pub lastaccess: i64,
    pub lastlogin: i64,
    pub picture: i64,
    pub timezone: String,
    pub theme: String,
    pub lang: String,
    pub trackforums: i16,
    pub mnethostid: i64,
}

pub(crate) async fn handle(cx: Cx<'_>, variant: Variant, call: &Call<'_>) -> Handled {
    match (call.method, call.path) {
        (&Method::GET, ["forums", forum, "subscribers"]) => {
            Reply::ok(&list_subscribers(cx, number(forum)?).await?).map(Some)
        }
        (&Method::POST, ["subscribe"]) => {
            let subscribed = subscribe_user(cx, variant, call.body()?).await?;
            if subscribed.created {
                Reply::created(&subscribed)
            } else {
                Reply::ok(&subscribed)
            }
            .map(Some)
        }
        _ => Ok(None),
    }
}

async fn list_subscribers(cx: Cx<'_>, forum: i64) -> Result<Subscribers, Failure> {
    let rows = cx.read(&FETCH_SUBSCRIBERS, &[&forum]).await?;
    let mut subscribers = Vec::with_capacity(rows.len());
    for row in &rows {
        subscribers.push(Subscriber {
            subscription: column(row, 0)?,
            id: column(row, 1)?,
            username: column(row, 2)?,
            firstname: column(row, 3)?,
            lastname: column(row, 4)?,
            maildisplay: column(row, 5)?,
            mailformat: column(row, 6)?,
            maildigest: column(row, 7)?,
            imagealt: column(row, 8)?,
            email: column(row, 9)?,
            emailstop: column(row, 10)?,
            city: column(row, 11)?,
            country: column(row, 12)?,
            lastaccess: column(row, 13)?,
            lastlogin: column(row, 14)?,
            picture: column(row, 15)?,
            timezone: column(row, 16)?,
            theme: column(row, 17)?,
            lang: column(row, 18)?,
            trackforums: column(row, 19)?,
            mnethostid: column(row, 20)?,
        });
    }
    Ok(Subscribers { forum, subscribers })
}

async fn subscribe_user(
    cx: Cx<'_>,
    variant: Variant,
    wish: Subscribe,
) -> Result<Subscribed, Failure> {
    let Subscribe { userid, forum } = wish;
    let (subscription, created) = match variant {
        Variant::Merged => cx.retrying(|| check_and_insert(cx, wish)).await?,
        _ => match is_subscribed(cx, wish).await? {
            Some(subscription) => (subscription, false),
            None => {
                let insert = if variant == Variant::Upsert {
                    &FORUM_UPSERT
                } else {
                    &FORUM_INSERT
                };
                (cx.retrying(|| forum_insert(cx, insert, wish)).await?, true)
            }
        },
    };
    Ok(Subscribed {
        userid,
        forum,
        subscription,
        created,
    })
}

async fn is_subscribed(cx: Cx<'_>, wish: Subscribe) -> Result<Option<i64>, Failure> {
    let rows = cx
        .read(&IS_SUBSCRIBED, &[&wish.userid, &wish.forum])
        .await?;
    rows.first().map(|row| column(row, 0)).transpose()
}

async fn forum_insert(cx: Cx<'_>, insert: &'static Sql, wish: Subscribe) -> Result<i64, Failure> {
    let mut transaction = cx.begin().await?;
    let row = transaction
        .query_one(insert, &[&wish.userid, &wish.forum])
        .await?;
    transaction.commit().await?;
    column(&row, 0)
}

async fn check_and_insert(cx: Cx<'_>, wish: Subscribe) -> Result<(i64, bool), Failure> {
    let mut transaction = cx.begin().await?;
    let present = transaction
        .query_first(&IS_SUBSCRIBED, &[&wish.userid, &wish.forum])
        .await?;
    let (row, created) = match present {
        Some(row) => (row, false),
        None => (
            transaction
                .query_one(&FORUM_INSERT, &[&wish.userid, &wish.forum])
                .await?,
            true,
        ),
    };
    transaction.commit().await?;
    Ok((column(&row, 0)?, created))
}

/// As many users and forums as the scale says, one subscriber for each forum.
pub(crate) async fn load(
    loader: &Loader<'_>,
    scale: Scale,
    random: &mut Random,
) -> Result<(), LoadError> {
    const CITIES: [(&str, &str); 5] = [
        ("Perth", "AU"),
        ("Lausanne", "CH"),
        ("Bogota", "CO"),
        ("Kyoto", "JP"),
        ("Leeds", "GB"),
    ];
    let (users, forums) = (scale.moodle_users(), scale.moodle_forums());

    let mut rows = loader
        .copy("mdl_user (id, confirmed, mnethostid, username, firstname, lastname, email, city, country, timezone, lastaccess, lastlogin, picture, imagealt)")
        .await?;
    for id in 1..=users {
        let (first, last) = (random.alphanumeric(5, 9), random.alphanumeric(6, 11));
        let (city, country) = random.pick(&CITIES);
        let seen = 1_500_000_000 + random.between(0, 5_000_000);
        let email = format!("{first}.{last}.{id}@students.example.org");
        rows.integer(id)
            .integer(1)
            .integer(1)
            .text(&format!("user{id:06}"))
            .text(&first)
            .text(&last)
            .text(&email);
        rows.text(city)
            .text(country)
            .text("Europe/Zurich")
            .integer(seen)
            .integer(seen - 86_400)
            .integer(id);
        rows.text(&format!("Portrait of {first} {last}"));
        rows.end().await?;
    }
    rows.finish().await?;

    let mut rows = loader
        .copy("mdl_forum (id, course, name, intro, timemodified)")
        .await?;
    for id in 1..=forums {
        rows.integer(id)
            .integer(1 + id / 10)
            .text(&format!("Forum {id}"))
            .text(&random.prose(120));
        rows.integer(1_500_000_000);
        rows.end().await?;
    }
    rows.finish().await?;

    let mut rows = loader
        .copy("mdl_forum_subscriptions (id, userid, forum)")
        .await?;
    for forum in 1..=forums {
        rows.integer(forum)
            .integer(random.between(1, users as i64))
            .integer(forum);
        rows.end().await?;
    }
    rows.finish().await?;

    loader.run(INDEXES).await?;
    for (table, last) in [
        ("mdl_user", users),
        ("mdl_forum", forums),
        ("mdl_forum_subscriptions", forums),
    ] {
        loader.sequence(table, "id", last).await?;
    }
    Ok(())
}

/// Table 1: nine lists to one subscription, of any user to any forum.
pub struct Requests {
    users: i64,
    forums: i64,
}

impl Requests {
    pub fn new(scale: Scale) -> Self {
        Self {
            users: scale.moodle_users() as i64,
            forums: scale.moodle_forums() as i64,
        }
    }

    /// A subscription that the mix might ask for.
    pub fn subscription(&self, random: &mut Random) -> Subscribe {
        Subscribe {
            userid: random.between(1, self.users),
            forum: random.between(1, self.forums),
        }
    }
}

impl Generator for Requests {
    fn operations(&self) -> &'static [Operation] {
        const {
            &[
                Operation::new("list-subscribers", 90.0),
                Operation::new("subscribe-user", 10.0),
            ]
        }
    }

    fn call(&mut self, operation: usize, random: &mut Random) -> HttpCall {
        match operation {
            0 => HttpCall::get(format!(
                "/forums/{}/subscribers",
                random.between(1, self.forums)
            )),
            _ => HttpCall::post("/subscribe".to_owned(), &self.subscription(random)),
        }
    }
}
