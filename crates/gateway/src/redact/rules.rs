//! What is redacted: rules as the user writes them.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// How many first letters are told apart.
const LETTERS: usize = 32;

/// One place where secrets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `header:NAME`: the values of a header, of requests and of responses.
    Header(String),
    /// `cookie:NAME`, `cookie:*`: a cookie's value, in `Cookie` and in `Set-Cookie`.
    Cookie(String),
    /// `field:NAME`: a key of a JSON object at any depth, or a field of a form or a query string.
    /// Case, `_` and `-` do not count: `field:api_key` is also `apiKey`.
    Field(String),
    /// `json:/a/*/b`: one place of a JSON body (RFC 6901), `*` standing for any key or index.
    Json(Vec<String>),
    /// `column:NAME`: a column of any table, by its name.
    Column(String),
    /// `cards`: numbers of payment cards that are a whole value.
    Cards,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a rule: {problem}")]
pub struct RuleError {
    pub given: String,
    pub problem: &'static str,
}

/// What holds secrets in most services. Cookies are not among them: without them sessions could not
/// be replayed.
const DEFAULTS: [&str; 24] = [
    "header:authorization",
    "cards",
    "field:password",
    "field:passwd",
    "field:pwd",
    "field:passphrase",
    "field:new_password",
    "field:old_password",
    "field:current_password",
    "field:password_confirmation",
    "field:confirm_password",
    "field:secret",
    "field:client_secret",
    "field:token",
    "field:access_token",
    "field:refresh_token",
    "field:id_token",
    "field:api_key",
    "field:card_number",
    "field:cvv",
    "field:cvc",
    "column:password",
    "column:passwd",
    "column:secret",
];

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(given: &str) -> Result<Self, RuleError> {
        let refuse = |problem| RuleError {
            given: given.to_owned(),
            problem,
        };
        let (kind, what) = given.trim().split_once(':').unwrap_or((given.trim(), ""));
        if kind != "cards" && what.is_empty() {
            return Err(refuse(
                "say header:NAME, cookie:NAME, field:NAME, json:/pointer, column:NAME or cards",
            ));
        }
        Ok(match kind {
            "cards" if what.is_empty() => Self::Cards,
            "header" => match what
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b':')
            {
                true => Self::Header(what.to_ascii_lowercase()),
                false => return Err(refuse("this is no name of a header")),
            },
            "cookie" => Self::Cookie(what.to_owned()),
            "field" => Self::Field(normal(what)),
            "json" => match what.strip_prefix('/') {
                Some(pointer) => Self::Json(pointer.split('/').map(token).collect()),
                None => return Err(refuse("a JSON pointer begins with a slash")),
            },
            // A table in front of it may be written, and is not looked at.
            "column" => Self::Column(normal(what.rsplit('.').next().unwrap_or(what))),
            _ => {
                return Err(refuse(
                    "say header:NAME, cookie:NAME, field:NAME, json:/pointer, column:NAME or cards",
                ));
            }
        })
    }
}

/// A token of a JSON pointer without its escapes.
fn token(escaped: &str) -> String {
    escaped.replace("~1", "/").replace("~0", "~")
}

/// A name by which fields and columns are compared.
pub(super) fn normal(name: &str) -> String {
    name.chars()
        .filter(|c| !u8::try_from(*c).is_ok_and(is_separator))
        .flat_map(char::to_lowercase)
        .collect()
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'_' | b'-')
}

/// Letters that differ in nothing but their case are one. Others may be, too.
fn first_letter(name: &str) -> usize {
    let first = name.bytes().find(|byte| !is_separator(*byte));
    usize::from(first.unwrap_or_default()) % LETTERS
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

/// Rules in the order in which they were given, each with its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<(Rule, String)>,
    /// Those about fields by their names: every key of every JSON body is looked up.
    fields: HashMap<String, RuleNumber>,
    /// By the first letter of these names: their lengths, a bit each; the last one stands for all
    /// longer ones. Most keys are none of them, which shows without looking them up.
    lengths: [u64; LETTERS],
}

impl Rules {
    /// Those for what is secret in most services.
    pub fn defaults() -> Self {
        Self::read(DEFAULTS).expect("our own rules are rules")
    }

    pub fn read<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, RuleError> {
        let mut rules = Self::default();
        for text in texts {
            rules.add(text.as_ref())?;
        }
        Ok(rules)
    }

    /// One rule that says where a request names its user.
    pub fn for_users(text: &str) -> Result<Self, RuleError> {
        let rules = Self::read([text])?;
        match rules.rules[0].0 {
            Rule::Column(_) | Rule::Cards => Err(RuleError {
                given: text.to_owned(),
                problem: "say header:NAME, cookie:NAME, field:NAME or json:/pointer",
            }),
            _ => Ok(rules),
        }
    }

    /// One per line; empty lines and those that begin with `#` do not count.
    pub fn add_lines(&mut self, text: &str) -> Result<(), RuleError> {
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .try_for_each(|line| self.add(line))
    }

    /// A rule that is there already is not added again.
    pub fn add(&mut self, text: &str) -> Result<(), RuleError> {
        let rule: Rule = text.parse()?;
        if !self.rules.iter().any(|(known, _)| *known == rule) {
            if let Rule::Field(field) = &rule {
                let number = RuleNumber(self.rules.len());
                self.fields.insert(field.clone(), number);
                self.lengths[first_letter(field)] |= length_bit(field.len());
            }
            self.rules.push((rule, text.trim().to_owned()));
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// As they were written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|(_, text)| text.as_str())
    }

    pub fn text(&self, rule: RuleNumber) -> &str {
        &self.rules[rule.0].1
    }

    /// The first rule that fits.
    pub(super) fn find(&self, fits: impl Fn(&Rule) -> bool) -> Option<RuleNumber> {
        self.rules
            .iter()
            .position(|(rule, _)| fits(rule))
            .map(RuleNumber)
    }

    pub(super) fn cards(&self) -> Option<RuleNumber> {
        self.find(|rule| *rule == Rule::Cards)
    }

    pub(super) fn field(&self, name: &str) -> Option<RuleNumber> {
        let separators = name.bytes().filter(|byte| is_separator(*byte)).count();
        let lengths = self.lengths[first_letter(name)];
        // Letters beyond ASCII may have another length as small ones.
        let may_be = !name.is_ascii() || lengths & length_bit(name.len() - separators) != 0;
        may_be.then(|| self.fields.get(&normal(name)).copied())?
    }

    /// Whether a column of this name is not compared, since a replay writes other values into it.
    pub fn leaves_out(&self, column: &str) -> bool {
        self.column(column).is_some()
    }

    pub(super) fn column(&self, name: &str) -> Option<RuleNumber> {
        let name = normal(name);
        self.find(|rule| matches!(rule, Rule::Column(column) if *column == name))
    }

    /// Whether any rule may find something in a body.
    pub fn look_into_bodies(&self) -> bool {
        let fits = |rule: &Rule| matches!(rule, Rule::Field(_) | Rule::Json(_) | Rule::Cards);
        self.find(fits).is_some()
    }

    pub fn look_into_sql(&self) -> bool {
        self.find(|rule| matches!(rule, Rule::Column(_))).is_some()
    }
}

/// A rule by its place among [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleNumber(usize);

/// In one short line: rules of a kind together, the first few of many.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 2;
        let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
        for text in self.texts() {
            let (kind, what) = text.split_once(':').unwrap_or((text, ""));
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, all)) => all.push(what),
                None => kinds.push((kind, vec![what])),
            }
        }
        for (at, (kind, all)) in kinds.iter().enumerate() {
            let separator = if at > 0 { "; " } else { "" };
            let colon = if all[0].is_empty() { "" } else { ": " };
            // One more fits where "and 1 more" would stand.
            let shown = if all.len() > SHOWN + 1 {
                SHOWN
            } else {
                all.len()
            };
            write!(f, "{separator}{kind}{colon}{}", all[..shown].join(", "))?;
            if shown < all.len() {
                write!(f, " and {} more", all.len() - shown)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_or_refused_with_the_reason() {
        let mut rules = Rules::default();
        rules
            .add_lines("# ours\nheader:X-Api-Key\n\n field:api_key \nfield:apiKey\njson:/a~1b/*\ncolumn:users.pin\ncards")
            .unwrap();
        assert_eq!(
            rules.to_string(),
            "header: X-Api-Key; field: api_key; json: /a~1b/*; column: users.pin; cards"
        );
        assert!(rules.field("API-KEY").is_some() && rules.column("Pin").is_some());
        for wrong in ["", "header", "header:a b", "json:a", "body:x", "cards:1"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_defaults_leave_sessions_alone() {
        let defaults = Rules::defaults();
        assert!(defaults.field("newPassword").is_some());
        assert!(
            defaults
                .find(|rule| matches!(rule, Rule::Cookie(_)))
                .is_none()
        );
        assert!(defaults.field("next_page_token").is_none());
        assert_eq!(
            defaults.to_string(),
            "header: authorization; cards; field: password, passwd and 17 more; column: password, passwd, secret"
        );
    }
}
