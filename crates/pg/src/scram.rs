//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as Postgres speaks it: without channel
//! binding.
//!
//! Pure: the caller moves the messages and brings the randomness. What is kept is a [`Verifier`],
//! from which nobody can log in and which does not tell the password.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postgres_protocol::authentication::sasl::SCRAM_SHA_256;
use ring::{digest, hmac};

/// What a server knows of a password.
#[derive(Clone)]
pub struct Verifier {
    salt: String,
    iterations: u32,
    stored_key: Vec<u8>,
    server_key: hmac::Key,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// Why a login failed. The client is only told that it did, but for what is wrong with its
/// messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    #[error("the client does not know SCRAM-SHA-256")]
    Mechanism,
    #[error("malformed SCRAM message")]
    Malformed,
    #[error("the client wants the password bound to an encrypted connection, and this one is not")]
    Binding,
    #[error("the password is wrong")]
    Wrong,
}

impl Verifier {
    pub fn of_password(password: &str) -> Self {
        let text = postgres_protocol::password::scram_sha_256(password.as_bytes());
        Self::parse(&text).expect("a verifier that was just written can be read")
    }

    /// As Postgres keeps it: `SCRAM-SHA-256$4096:SALT$STORED_KEY:SERVER_KEY`. `None` for anything
    /// else.
    pub fn parse(text: &str) -> Option<Self> {
        let (iterations, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = iterations.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let key = |text| {
            BASE64_STANDARD
                .decode(text)
                .ok()
                .filter(|key| key.len() == 32)
        };
        Some(Self {
            iterations: iterations.parse().ok()?,
            salt: salt.to_owned(),
            stored_key: key(stored_key)?,
            server_key: hmac::Key::new(hmac::HMAC_SHA256, &key(server_key)?),
        })
    }
}

/// One login.
#[derive(Debug)]
pub struct Exchange {
    /// What the client says in its second message about channel binding, in base64.
    binding: String,
    /// Both nonces.
    nonce: String,
    client_first: String,
    server_first: String,
}

impl Exchange {
    /// The body of the offer, an `AuthenticationSASL`.
    pub fn offer() -> Vec<u8> {
        [SCRAM_SHA_256.as_bytes(), b"\0\0"].concat()
    }

    /// From a `SASLInitialResponse`'s body; `nonce` is random. With what to continue.
    pub fn begin(
        verifier: &Verifier,
        body: &[u8],
        nonce: &[u8; 18],
    ) -> Result<(Self, Vec<u8>), ScramError> {
        let zero = body.iter().position(|&byte| byte == 0);
        let (mechanism, rest) = body.split_at(zero.ok_or(ScramError::Malformed)?);
        if mechanism != SCRAM_SHA_256.as_bytes() {
            return Err(ScramError::Mechanism);
        }
        // A zero byte and a length come first.
        let text = rest
            .get(5..)
            .and_then(|text| std::str::from_utf8(text).ok());
        let text = text.ok_or(ScramError::Malformed)?;
        let mut parts = text.splitn(3, ',');
        let mut part = || parts.next().ok_or(ScramError::Malformed);
        let (flag, authorization, bare) = (part()?, part()?, part()?);
        match flag {
            "n" | "y" if authorization.is_empty() => {}
            _ if flag.starts_with("p=") => return Err(ScramError::Binding),
            _ => return Err(ScramError::Malformed),
        }
        // The user is the one of the startup packet; the name here is not looked at.
        let given = bare
            .split(',')
            .nth(1)
            .and_then(|part| part.strip_prefix("r="));
        let given = given.filter(|given| !given.is_empty());
        let given = given.ok_or(ScramError::Malformed)?;
        let nonce = format!("{given}{}", BASE64_STANDARD.encode(nonce));
        let server_first = format!("r={nonce},s={},i={}", verifier.salt, verifier.iterations);
        let reply = server_first.clone().into_bytes();
        let exchange = Self {
            binding: BASE64_STANDARD.encode(format!("{flag},,")),
            nonce,
            client_first: bare.to_owned(),
            server_first,
        };
        Ok((exchange, reply))
    }

    /// From a `SASLResponse`'s body: the proof that the client knows the password. With what
    /// proves to the client that we know it.
    pub fn finish(&self, verifier: &Verifier, body: &[u8]) -> Result<Vec<u8>, ScramError> {
        let text = std::str::from_utf8(body).map_err(|_| ScramError::Malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let expected = format!("c={},r={}", self.binding, self.nonce);
        if without_proof != expected {
            return Err(ScramError::Malformed);
        }
        let proof = BASE64_STANDARD.decode(proof);
        let proof = proof
            .ok()
            .filter(|proof| proof.len() == verifier.stored_key.len());
        let proof = proof.ok_or(ScramError::Malformed)?;
        let said = format!(
            "{},{},{without_proof}",
            self.client_first, self.server_first
        );
        let stored_key = hmac::Key::new(hmac::HMAC_SHA256, &verifier.stored_key);
        let signature = hmac::sign(&stored_key, said.as_bytes());
        let client_key: Vec<u8> = (proof.iter().zip(signature.as_ref()))
            .map(|(proof, signature)| proof ^ signature)
            .collect();
        let hashed = digest::digest(&digest::SHA256, &client_key);
        // In the same time wherever they differ.
        let different = (hashed.as_ref().iter().zip(&verifier.stored_key))
            .fold(0, |different, (a, b)| different | (a ^ b));
        if different != 0 {
            return Err(ScramError::Wrong);
        }
        let ours = hmac::sign(&verifier.server_key, said.as_bytes());
        Ok(format!("v={}", BASE64_STANDARD.encode(ours)).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
    use proptest::prelude::*;

    use super::*;

    fn initial(mechanism: &str, data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u32).to_be_bytes();
        [mechanism.as_bytes(), b"\0", &length, data].concat()
    }

    fn log_in(known: &str, given: &str) -> Result<(), ScramError> {
        let verifier = Verifier::of_password(known);
        let mut client = ScramSha256::new(given.as_bytes(), ChannelBinding::unsupported());
        let first = initial(SCRAM_SHA_256, client.message());
        let (exchange, reply) = Exchange::begin(&verifier, &first, &[7; 18])?;
        client.update(&reply).expect("ours is well formed");
        let proof = exchange.finish(&verifier, client.message())?;
        client.finish(&proof).expect("we know the password");
        Ok(())
    }

    #[test]
    fn only_the_password_logs_in() {
        assert_eq!(log_in("pä ss", "pä ss"), Ok(()));
        assert_eq!(log_in("pä ss", "pass"), Err(ScramError::Wrong));
        assert_eq!(log_in("x", ""), Err(ScramError::Wrong));
    }

    #[test]
    fn what_was_replayed_or_bent_is_refused() {
        let verifier = Verifier::of_password("x");
        let begin = |mechanism: &str, text: &str| {
            let body = initial(mechanism, text.as_bytes());
            Exchange::begin(&verifier, &body, &[1; 18]).map(|(exchange, _)| exchange)
        };
        let error = |mechanism: &str, text: &str| begin(mechanism, text).err();
        assert_eq!(error("PLAIN", "n,,n=,r=a"), Some(ScramError::Mechanism));
        let bound = "p=tls-server-end-point,,n=,r=a";
        assert_eq!(error(SCRAM_SHA_256, bound), Some(ScramError::Binding));
        assert_eq!(
            error(SCRAM_SHA_256, "n,,n=,r="),
            Some(ScramError::Malformed)
        );
        let exchange = begin(SCRAM_SHA_256, "n,,n=,r=a").expect("well formed");
        for wrong in [
            "",
            "c=biws,r=a",
            "c=biws,r=a,p=AAAA",
            "c=eSws,r=aAQEBAQEBAQEBAQEBAQEBAQEBAQ==,p=AAAA",
        ] {
            let outcome = exchange.finish(&verifier, wrong.as_bytes());
            assert_eq!(outcome, Err(ScramError::Malformed), "{wrong}");
        }
    }

    #[test]
    fn a_verifier_is_read_as_postgres_writes_it() {
        let text = postgres_protocol::password::scram_sha_256(b"x");
        assert!(Verifier::parse(&text).is_some());
        assert!(Verifier::parse("md5abc").is_none());
        assert!(Verifier::parse("SCRAM-SHA-256$4096:c2FsdA==$AAAA:AAAA").is_none());
        assert_eq!(
            format!("{:?}", Verifier::of_password("x")),
            "Verifier { .. }"
        );
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(first: Vec<u8>, second: Vec<u8>) {
            let verifier = Verifier::parse(
                "SCRAM-SHA-256$1:c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            ).expect("well formed");
            let _ = Exchange::begin(&verifier, &first, &[0; 18]);
            let good = initial(SCRAM_SHA_256, b"n,,n=,r=a");
            let (exchange, _) = Exchange::begin(&verifier, &good, &[0; 18]).expect("well formed");
            prop_assert!(exchange.finish(&verifier, &second).is_err());
        }
    }
}
