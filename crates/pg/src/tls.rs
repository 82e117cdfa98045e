//! Certificates: ours towards clients, and what we ask of a server's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as with_ring};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    ServerConfig, SignatureScheme, WantsVerifier,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::url::{DatabaseUrl, SslMode};

/// The protocol's name in TLS, for clients that encrypt without asking first.
const ALPN: &[u8] = b"postgresql";

/// Where distributions keep the certificates of the public authorities.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}", path.display())]
    File {
        path: PathBuf,
        source: rustls_pki_types::pem::Error,
    },
    #[error("{} holds no certificate", path.display())]
    NoCertificate { path: PathBuf },
    #[error("the certificate in {} and the key do not work together", path.display())]
    Pair {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("{} holds a certificate that cannot be used as a root", path.display())]
    Root {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error(
        "sslmode={mode} needs to know whom to trust: add sslrootcert=FILE or sslrootcert=system to the database URL"
    )]
    NoRoots { mode: &'static str },
    #[error("none of the usual files with the system's root certificates exists")]
    NoSystemRoots,
    #[error("sslcert and sslkey belong together: the database URL has only one of them")]
    HalfIdentity,
    #[error("the root certificates cannot be used")]
    Verifier(#[source] rustls::client::VerifierBuilderError),
}

/// Where certificate and key come from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Both in PEM; the certificate first, then those that lead to its authority.
    Files { certificate: PathBuf, key: PathBuf },
    /// Made anew, of no authority: for clients that do not ask who they speak to, as with
    /// `sslmode=require`.
    Generated,
}

/// Certificate and key that the gateway shows to its clients.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    pub config: Arc<ServerConfig>,
    pub leaf: CertificateDer<'static>,
}

impl ServerIdentity {
    pub fn of(source: &Certificate) -> Result<Self, TlsError> {
        match source {
            Certificate::Files { certificate, key } => Self::load(certificate, key),
            Certificate::Generated => Ok(Self::generated()),
        }
    }

    pub fn generated() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .expect("the name and the kind of key are ones that there are");
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        Self::with(vec![made.cert.der().clone()], key).expect("they were made for each other")
    }

    /// See [`Certificate::Files`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        Self::with(chain, private_key(key)?).map_err(|source| TlsError::Pair {
            path: certificate.to_owned(),
            source,
        })
    }

    fn with(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let leaf = chain[0].clone();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            leaf,
        })
    }
}

/// For a server of any certificate, whatever it says: a service that was started to be replayed
/// has the certificate of the recorded one, and nobody else is reached at its port.
pub fn trusting_config() -> ClientConfig {
    client_builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Lenient(None)))
        .with_no_client_auth()
}

fn client_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
}

/// What to do about encryption towards the server; `None`: nothing.
pub fn client_config(url: &DatabaseUrl) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    let builder = client_builder();
    let builder = match url.ssl_mode {
        SslMode::Disable => return Ok(None),
        // libpq verifies the chain in these modes too when it is given roots to verify with.
        SslMode::Prefer | SslMode::Require if url.ssl_root_cert.is_none() => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Lenient(None))),
        SslMode::Prefer | SslMode::Require | SslMode::VerifyCa => {
            let verifier = Lenient(Some(verifier(url, "verify-ca")?));
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        }
        SslMode::VerifyFull => builder.with_webpki_verifier(verifier(url, "verify-full")?),
    };
    let mut config = match (&url.ssl_cert, &url.ssl_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|source| TlsError::Pair {
                path: certificate.clone(),
                source,
            })?,
        _ => return Err(TlsError::HalfIdentity),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Some(Arc::new(config)))
}

/// The hash of a certificate in DER that channel binding uses (`tls-server-end-point`, RFC 5929):
/// of the algorithm it was signed with, or SHA-256 where that is weaker. `None`: the signature's
/// algorithm has no hash of its own.
pub(crate) fn endpoint_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, …
    // }, … }
    let (whole, _) = element(certificate)?;
    let (_, after_body) = element(whole)?;
    let (algorithm, _) = element(after_body)?;
    let (identifier, _) = element(algorithm)?;
    const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04];
    let hash = match (identifier.strip_prefix(RSA), identifier.strip_prefix(ECDSA)) {
        // MD5, SHA-1, SHA-256
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => &digest::SHA256,
        (Some([12]), _) | (_, Some([3, 3])) => &digest::SHA384,
        (Some([13]), _) | (_, Some([3, 4])) => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

/// The content of the first element of DER, and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add((*byte).into());
            (bytes.iter().try_fold(0, add)?, rest)
        }
    };
    rest.split_at_checked(length)
}

fn provider() -> Arc<CryptoProvider> {
    // Named and not the process' default: a library must not depend on who installed which first.
    Arc::new(with_ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File {
        path: path.to_owned(),
        source,
    };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    match found.is_empty() {
        true => Err(TlsError::NoCertificate {
            path: path.to_owned(),
        }),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

fn verifier(url: &DatabaseUrl, mode: &'static str) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let given = url
        .ssl_root_cert
        .as_deref()
        .ok_or(TlsError::NoRoots { mode })?;
    let system = given == Path::new("system");
    let path = match system {
        true => SYSTEM_ROOTS
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
            .ok_or(TlsError::NoSystemRoots)?,
        false => given,
    };
    let mut roots = RootCertStore::empty();
    let found = certificates(path)?;
    if system {
        // Bundles of the world's authorities always hold a few that cannot be parsed.
        roots.add_parsable_certificates(found);
    } else {
        for certificate in found {
            roots.add(certificate).map_err(|source| TlsError::Root {
                path: path.to_owned(),
                source,
            })?;
        }
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(TlsError::Verifier)
}

/// Checks less than everything.
///
/// `sslmode=require` (without a verifier) protects against listeners, not against impostors.
/// Signatures are not checked either: whoever could put himself in between can sign with his own
/// key just as well, and servers with certificates too old for webpki to parse would be locked out
/// for nothing. `sslmode=verify-ca` (with one) checks everything but the name.
#[derive(Debug)]
struct Lenient(Option<Arc<WebPkiServerVerifier>>);

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(verifier) = &self.0 else {
            return Ok(ServerCertVerified::assertion());
        };
        match verifier.verify_server_cert(leaf, intermediates, name, ocsp, now) {
            // The name is checked last, after the chain.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.0 {
            Some(verifier) => verifier.verify_tls12_signature(message, leaf, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match &self.0 {
            Some(verifier) => verifier.verify_tls13_signature(message, leaf, signature),
            None => Ok(HandshakeSignatureValid::assertion()),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        with_ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
