//! WP-11073: a comment that does not come back when its post is restored from the trash.

use std::fmt;

use serde::Serialize;

use super::{RaceError, Scenario, Struck, success, together, unless_lost};
use crate::Scale;
use crate::drive::{Client, HttpCall};
use crate::random::Random;
use crate::wp_comments::{Added, Moved, NewComment, Post, Requests};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommentLost {
    pub post: i64,
    pub comment: i64,
}

impl fmt::Display for CommentLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Comment {} was not restored with its post {}.",
            self.comment, self.post
        )
    }
}

/// An editor trashes a post on which a visitor comments at that moment, and restores it, until the
/// comment is missing.
pub(super) struct CommentWhileTrashing {
    requests: Requests,
}

impl CommentWhileTrashing {
    pub(super) fn new(scale: Scale) -> Self {
        Self {
            requests: Requests::new(scale),
        }
    }
}

impl Scenario for CommentWhileTrashing {
    const TRIES: &'static str = "posts trashed and restored";

    fn provoke(
        &mut self,
        clients: &mut [Client; 2],
        random: &mut Random,
    ) -> Result<Option<Struck>, RaceError> {
        let post = self.requests.post(random);
        let trash = HttpCall::post_nothing(format!("/posts/{post}/trash"));
        let untrash = HttpCall::post_nothing(format!("/posts/{post}/untrash"));
        let read = HttpCall::get(format!("/posts/{post}"));
        let comment = HttpCall::post(
            format!("/posts/{post}/comments"),
            &NewComment {
                comment_author: "Visitor".to_owned(),
                comment_author_email: "visitor@example.org".to_owned(),
                comment_content: random.prose(100),
                comment_date_gmt: None,
            },
        );

        let [trashed, commented] = together(clients, [&trash, &comment])?;
        let trashed: Option<Moved> = unless_lost(&trash, trashed)?;
        // Refused where the post was in the trash and the fix looks: no comment, none lost.
        let added: Option<Added> = match commented.status {
            403 => None,
            _ => unless_lost(&comment, commented)?,
        };
        let editor = &mut clients[0];
        let mut send = |call: &HttpCall| editor.send(call).map_err(RaceError::Request);
        let restored: Option<Moved> = unless_lost(&untrash, send(&untrash)?)?;
        let (Some(trashed), Some(added), Some(restored)) = (trashed, added, restored) else {
            return Ok(None);
        };
        // Otherwise another editor had his hands in it, which is another race.
        if !(trashed.moved && restored.moved) {
            return Ok(None);
        }
        let post: Post = success(&read, send(&read)?)?;
        let is_there = post
            .comments
            .iter()
            .any(|comment| comment.id == added.comment);
        // Another editor may have trashed the post again by now.
        if is_there || post.post_status != "publish" {
            return Ok(None);
        }
        Ok(Some(Struck::CommentLost(CommentLost {
            post: post.id,
            comment: added.comment,
        })))
    }
}
