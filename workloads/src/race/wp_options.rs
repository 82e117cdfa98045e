//! WP-11437: a visitor who is shown the database's error, because another one added the same
//! option.

use std::fmt;

use serde::Serialize;

use super::{RaceError, Scenario, Struck, together, unexpected, unless_lost};
use crate::drive::{Client, HttpCall};
use crate::random::Random;
use crate::wp_options::{NewOption, Stored};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OptionRefused {
    pub option_name: String,
    /// What the visitor was shown.
    pub message: String,
}

impl fmt::Display for OptionRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Option {} was added by two visitors; one was shown: {}.",
            self.option_name, self.message
        )
    }
}

/// Two visitors of a page that adds an option which it does not find, until one of them is shown an
/// error.
#[derive(Default)]
pub(super) struct AddTogether {
    added: u64,
}

impl Scenario for AddTogether {
    const TRIES: &'static str = "pairs of visitors";

    fn provoke(
        &mut self,
        clients: &mut [Client; 2],
        random: &mut Random,
    ) -> Result<Option<Struck>, RaceError> {
        self.added += 1;
        // None that the usual mix uses.
        let option_name = format!("race_{:05}", self.added);
        let new = NewOption {
            option_name: option_name.clone(),
            option_value: random.prose(100),
            autoload: "yes".to_owned(),
        };
        let call = HttpCall::post("/options".to_owned(), &new);
        for reply in together(clients, [&call, &call])? {
            if reply.status != 500 {
                unless_lost::<Stored>(&call, reply)?;
                continue;
            }
            // Nothing else than the violated key is expected to go wrong.
            let problem: Option<serde_json::Value> = serde_json::from_slice(&reply.body).ok();
            let Some(problem) = problem.filter(|problem| problem["error"] == "unique_violation")
            else {
                return Err(unexpected(&call, &reply));
            };
            return Ok(Some(Struck::OptionRefused(OptionRefused {
                option_name,
                message: problem["message"].as_str().unwrap_or_default().to_owned(),
            })));
        }
        Ok(None)
    }
}
