//! MDL-59854: a user who is subscribed to one forum twice.

use std::fmt;

use serde::Serialize;

use super::{RaceError, Scenario, Struck, success, together, unless_lost};
use crate::Scale;
use crate::drive::{Client, HttpCall};
use crate::moodle::{Requests, Subscribe, Subscribed, Subscribers};
use crate::random::Random;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubscribedTwice {
    pub userid: i64,
    pub forum: i64,
    /// The two rows of `mdl_forum_subscriptions`.
    pub subscriptions: [i64; 2],
}

impl fmt::Display for SubscribedTwice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.subscriptions;
        write!(
            f,
            "User {} is subscribed to forum {} twice: rows {first} and {second}.",
            self.userid, self.forum
        )
    }
}

/// One impatient user, who sends a subscription twice, until both are told that they created it.
pub(super) struct DoubleClick {
    requests: Requests,
}

impl DoubleClick {
    pub(super) fn new(scale: Scale) -> Self {
        Self {
            requests: Requests::new(scale),
        }
    }
}

impl Scenario for DoubleClick {
    const TRIES: &'static str = "double clicks";

    fn provoke(
        &mut self,
        clients: &mut [Client; 2],
        random: &mut Random,
    ) -> Result<Option<Struck>, RaceError> {
        let wish = self.requests.subscription(random);
        let call = HttpCall::post("/subscribe".to_owned(), &wish);
        let [one, other] = together(clients, [&call, &call])?;
        let (Some(one), Some(other)) = (
            unless_lost::<Subscribed>(&call, one)?,
            unless_lost::<Subscribed>(&call, other)?,
        ) else {
            return Ok(None);
        };
        if !(one.created && other.created && is_listed_twice(&mut clients[0], wish)?) {
            return Ok(None);
        }
        let mut subscriptions = [one.subscription, other.subscription];
        subscriptions.sort_unstable();
        Ok(Some(Struck::SubscribedTwice(SubscribedTwice {
            userid: wish.userid,
            forum: wish.forum,
            subscriptions,
        })))
    }
}

/// The answers said so; this asks the list that users see.
fn is_listed_twice(client: &mut Client, wish: Subscribe) -> Result<bool, RaceError> {
    let call = HttpCall::get(format!("/forums/{}/subscribers", wish.forum));
    let reply = client.send(&call).map_err(RaceError::Request)?;
    let list: Subscribers = success(&call, reply)?;
    let listed = list
        .subscribers
        .iter()
        .filter(|subscriber| subscriber.id == wish.userid);
    Ok(listed.count() > 1)
}
