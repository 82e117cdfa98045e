use http::Method;
use serde::Serialize;

use crate::random::Random;
use crate::{Scale, Workload, moodle, tpcc, wp_comments, wp_options};

/// A kind of request and its share of the mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    pub name: &'static str,
    pub weight: f64,
}

impl Operation {
    pub const fn new(name: &'static str, weight: f64) -> Self {
        Self { name, weight }
    }
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpCall {
    pub method: Method,
    pub path: String,
    /// JSON, or nothing.
    pub body: Vec<u8>,
    pub traceparent: Option<String>,
}

impl HttpCall {
    pub fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Vec::new(),
            traceparent: None,
        }
    }
    pub fn post(path: String, body: &impl Serialize) -> Self {
        Self {
            method: Method::POST,
            body: json(body),
            ..Self::get(path)
        }
    }
    pub fn post_nothing(path: String) -> Self {
        Self {
            method: Method::POST,
            ..Self::get(path)
        }
    }
    pub fn put(path: String, body: &impl Serialize) -> Self {
        Self {
            method: Method::PUT,
            body: json(body),
            ..Self::get(path)
        }
    }
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("our requests have string keys and finite numbers")
}

/// Makes the requests of a workload.
pub trait Generator: Send {
    fn operations(&self) -> &'static [Operation];
    /// A request of the kind at this index of [`operations`](Self::operations).
    fn call(&mut self, operation: usize, random: &mut Random) -> HttpCall;
}

/// Weights that replace those of a workload: `subscribe-user=50,list-subscribers=50`. What is not
/// named does not occur.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix(Vec<(String, f64)>);

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum MixError {
    #[error("`{0}` is not of the form operation=weight")]
    Form(String),
    #[error("there is no operation `{name}`; there are: {known}")]
    Unknown { name: String, known: String },
    #[error("the weights add up to nothing")]
    Nothing,
}

impl std::str::FromStr for Mix {
    type Err = MixError;
    fn from_str(text: &str) -> Result<Self, MixError> {
        let entry = |part: &str| {
            let (name, weight) = part.split_once('=')?;
            let weight: f64 = weight.trim().parse().ok()?;
            (weight >= 0.0 && weight.is_finite()).then(|| (name.trim().to_owned(), weight))
        };
        let entries = text
            .split(',')
            .map(|part| entry(part).ok_or_else(|| MixError::Form(part.to_owned())));
        Ok(Self(entries.collect::<Result<_, _>>()?))
    }
}

/// An endless, repeatable sequence of requests.
pub struct Requests {
    generator: Box<dyn Generator>,
    operations: Vec<Operation>,
    total: f64,
    random: Random,
}

impl Requests {
    pub fn new(
        workload: Workload,
        scale: Scale,
        seed: u64,
        mix: Option<&Mix>,
    ) -> Result<Self, MixError> {
        Self::of(generator(workload, scale), seed, mix)
    }

    pub fn of(
        generator: Box<dyn Generator>,
        seed: u64,
        mix: Option<&Mix>,
    ) -> Result<Self, MixError> {
        let mut operations = generator.operations().to_vec();
        if let Some(Mix(entries)) = mix {
            for (name, _) in entries {
                if !operations.iter().any(|operation| operation.name == name) {
                    let known = operations
                        .iter()
                        .map(|operation| operation.name)
                        .collect::<Vec<_>>()
                        .join(", ");
                    return Err(MixError::Unknown {
                        name: name.clone(),
                        known,
                    });
                }
            }
            for operation in &mut operations {
                let entry = entries.iter().find(|(name, _)| name == operation.name);
                operation.weight = entry.map_or(0.0, |(_, weight)| *weight);
            }
        }
        let total = operations.iter().map(|operation| operation.weight).sum();
        if total <= 0.0 {
            return Err(MixError::Nothing);
        }
        Ok(Self {
            generator,
            operations,
            total,
            random: Random::new(seed),
        })
    }

    /// The kinds of requests, in the order of the indices that [`next`](Self::next) gives.
    pub fn operations(&self) -> Vec<&'static str> {
        self.operations
            .iter()
            .map(|operation| operation.name)
            .collect()
    }

    /// The next request and the index of its kind.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, so callers should not have to unwrap"
    )]
    pub fn next(&mut self) -> (usize, HttpCall) {
        let mut drawn = self.random.unit() * self.total;
        let mut chosen = 0;
        for (index, operation) in self
            .operations
            .iter()
            .enumerate()
            .filter(|(_, operation)| operation.weight > 0.0)
        {
            chosen = index;
            if drawn < operation.weight {
                break;
            }
            drawn -= operation.weight;
        }
        (chosen, self.generator.call(chosen, &mut self.random))
    }

    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

fn generator(workload: Workload, scale: Scale) -> Box<dyn Generator> {
    match workload {
        Workload::Moodle => Box::new(moodle::Requests::new(scale)),
        Workload::WpOptions => Box::new(wp_options::Requests::new(scale)),
        Workload::WpComments => Box::new(wp_comments::Requests::new(scale)),
        Workload::Tpcc => Box::new(tpcc::Requests::new(scale.tpcc())),
        Workload::Wordpress => Box::new(WordpressRequests {
            options: wp_options::Requests::new(scale),
            comments: wp_comments::Requests::new(scale),
        }),
    }
}

/// Half of the requests to options, half to comments, each with its own mix.
struct WordpressRequests {
    options: wp_options::Requests,
    comments: wp_comments::Requests,
}

const WORDPRESS: [Operation; 7] = [
    Operation::new("get-option", 49.5),
    Operation::new("insert-option", 0.25),
    Operation::new("update-option", 0.25),
    Operation::new("read-post", 40.0),
    Operation::new("add-comment", 5.0),
    Operation::new("trash-post", 2.5),
    Operation::new("untrash-post", 2.5),
];

impl Generator for WordpressRequests {
    fn operations(&self) -> &'static [Operation] {
        &WORDPRESS
    }

    fn call(&mut self, operation: usize, random: &mut Random) -> HttpCall {
        let options = self.options.operations().len();
        if operation < options {
            self.options.call(operation, random)
        } else {
            self.comments.call(operation - options, random)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(workload: Workload, mix: Option<&Mix>) -> Vec<(&'static str, f64)> {
        let mut requests = Requests::new(workload, Scale::PAPER, 1, mix).unwrap();
        let names = requests.operations();
        let mut counts = vec![0; names.len()];
        for _ in 0..20_000 {
            counts[requests.next().0] += 1;
        }
        names
            .into_iter()
            .zip(counts.into_iter().map(|count| f64::from(count) / 200.0))
            .collect()
    }

    #[test]
    fn the_mixes_are_those_of_table_1() {
        for workload in [
            Workload::Moodle,
            Workload::WpOptions,
            Workload::WpComments,
            Workload::Tpcc,
            Workload::Wordpress,
        ] {
            let generator = generator(workload, Scale::PAPER);
            for ((name, share), operation) in shares(workload, None)
                .into_iter()
                .zip(generator.operations())
            {
                assert_eq!(name, operation.name);
                assert!(
                    (share - operation.weight).abs() < 1.0,
                    "{name}: {share} % instead of {} %",
                    operation.weight
                );
            }
        }
    }

    #[test]
    fn wordpress_is_half_options_and_half_comments() {
        let parts = Workload::Wordpress.parts();
        let halved = parts
            .iter()
            .flat_map(|part| generator(*part, Scale::PAPER).operations());
        let halved: Vec<_> = halved
            .map(|operation| Operation::new(operation.name, operation.weight / 2.0))
            .collect();
        assert_eq!(halved, WORDPRESS);
    }

    #[test]
    fn a_seed_gives_the_same_requests() {
        for workload in [Workload::Wordpress, Workload::Tpcc, Workload::Moodle] {
            let sequence = |seed| {
                let mut requests = Requests::new(workload, Scale::PAPER, seed, None).unwrap();
                (0..500).map(|_| requests.next()).collect::<Vec<_>>()
            };
            assert_eq!(sequence(5), sequence(5));
            assert_ne!(sequence(5), sequence(6));
        }
    }

    #[test]
    fn a_mix_replaces_the_weights() {
        let mix = "subscribe-user=1".parse().unwrap();
        assert_eq!(
            shares(Workload::Moodle, Some(&mix)),
            [("list-subscribers", 0.0), ("subscribe-user", 100.0)]
        );
    }

    #[test]
    fn a_mix_that_means_nothing_is_refused() {
        assert_eq!(
            "subscribe".parse::<Mix>(),
            Err(MixError::Form("subscribe".into()))
        );
        let error = |mix: &str| {
            Requests::new(Workload::Tpcc, Scale::PAPER, 1, Some(&mix.parse().unwrap()))
                .err()
                .unwrap()
        };
        let expected = "there is no operation `delivery`; there are: payment, new-order";
        assert_eq!(error("delivery=4").to_string(), expected);
        assert_eq!(error("payment=0"), MixError::Nothing);
    }
}
