//! An authority for one replay. It vouches for all whom the service calls, so that calls which it
//! encrypts can be answered from the recording.
//!
//! The service's own TLS does all that it did: it makes a real handshake, asks for a certificate of
//! the name that it called and verifies it. Only whom it trusts is said by its environment. Nobody
//! else trusts the authority, and its key is in memory only.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Where libraries look for a file with the authorities that they trust: OpenSSL's own, and those
/// that bring a list along (Python's certifi by way of requests, curl, Node, git, botocore).
pub const VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
];

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    /// By the names that were asked for.
    issued: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    pub fn new() -> io::Result<Self> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "hindcast: authority of one replay");
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let made = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Self {
            pem: made.pem(),
            certificate: made.der().clone(),
            issuer: Issuer::new(params, key),
            issued: Mutex::default(),
        })
    }

    /// The certificate, for a file that clients are told of.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Of a server that is whatever its clients ask for, at this address if they ask for none.
    pub fn server(self: &Arc<Self>, address: &str) -> Arc<ServerConfig> {
        let asked = Asked {
            authority: Arc::clone(self),
            address: address.to_owned(),
        };
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(asked));
        Arc::new(config)
    }

    fn issue(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = issued.get(name) {
            return Some(Arc::clone(known));
        }
        let made = Arc::new(self.certify(name)?);
        issued.insert(name.to_owned(), Arc::clone(&made));
        Some(made)
    }

    fn certify(&self, name: &str) -> Option<CertifiedKey> {
        let key = KeyPair::generate().ok()?;
        let mut params = CertificateParams::new(vec![name.to_owned()]).ok()?;
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &self.issuer).ok()?;
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        CertifiedKey::from_der(chain, key, &ring::default_provider()).ok()
    }
}

/// What clients of one address ask for.
#[derive(Debug)]
struct Asked {
    authority: Arc<Authority>,
    address: String,
}

impl ResolvesServerCert for Asked {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.authority
            .issue(hello.server_name().unwrap_or(&self.address))
    }
}
