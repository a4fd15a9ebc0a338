//! Makes the certificates of one cluster: an authority and one certificate for each component.
//!
//! Nothing is kept between two clusters, so every key ends with the run directory.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The random generator or the encoding refused.
    #[error("make the certificate of {name}")]
    Sign {
        /// Whose certificate.
        name: String,
        /// Why not.
        #[source]
        source: rcgen::Error,
    },
}

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

/// Whom a certificate names.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// The user of Kubernetes, for example `system:node:n1`.
    pub user: String,
    /// The user's group; none for components that get their rights by name.
    pub group: Option<&'static str>,
    /// Addresses under which it serves.
    pub addresses: Vec<Ipv4Addr>,
    /// Host names under which it serves.
    pub names: Vec<String>,
}

/// Signs the certificates of a cluster.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority with a new key.
    ///
    /// # Errors
    /// `Sign` if the random generator refuses.
    pub fn generate() -> Result<Self, Error> {
        let name = "backuppodset-lab";
        let failed = |source| Error::Sign { name: name.into(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate that serves and identifies as a client.
    ///
    /// # Errors
    /// `Sign` if a name cannot be encoded or the random generator refuses.
    pub fn issue(&self, subject: &Subject) -> Result<Identity, Error> {
        let failed = |source| Error::Sign { name: subject.user.clone(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(subject.names.clone()).map_err(failed)?;
        let addresses = subject.addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address)));
        params.subject_alt_names.extend(addresses);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, &subject.user);
        if let Some(group) = subject.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A key pair for the tokens of service accounts.
pub struct TokenKeys {
    /// Signs; `PKCS #8` in PEM.
    pub private: String,
    /// Verifies; PEM.
    pub public: String,
}

impl TokenKeys {
    /// A new pair.
    ///
    /// # Errors
    /// `Sign` if the random generator refuses.
    pub fn generate() -> Result<Self, Error> {
        let key = KeyPair::generate()
            .map_err(|source| Error::Sign { name: "service account tokens".into(), source })?;
        Ok(Self { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_components_get_different_certificates_from_one_authority() {
        let authority = Authority::generate().unwrap();
        let subject =
            Subject { user: "system:node:n1".into(), group: Some("system:nodes"), ..Subject::default() };
        let (first, second) = (authority.issue(&subject).unwrap(), authority.issue(&subject).unwrap());
        assert_ne!(first.key, second.key);
        assert!(first.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(authority.certificate().starts_with("-----BEGIN CERTIFICATE-----"));
    }

    #[test]
    fn token_keys_are_in_the_forms_that_the_api_server_reads() {
        let keys = TokenKeys::generate().unwrap();
        assert!(keys.private.starts_with("-----BEGIN PRIVATE KEY-----"));
        assert!(keys.public.starts_with("-----BEGIN PUBLIC KEY-----"));
    }
}
