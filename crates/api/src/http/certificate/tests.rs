use std::os::unix::fs::PermissionsExt as _;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};

use super::*;
use crate::http::Hosts;

const NAMES: [&str; 3] = ["gpu1.example.com", "*.lab.example.com", "192.0.2.7"];

/// A certificate of the names and a key for it in `folder`, changed by `edit`.
fn write(folder: &Path, names: &[&str], edit: impl FnOnce(&mut CertificateParams)) -> CertificateFiles {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    edit(&mut params);
    let pair = KeyPair::generate().unwrap();
    let files = CertificateFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    fs::write(&files.certificate, params.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(&files.key, pair.serialize_pem()).unwrap();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    files
}

fn refused(files: &CertificateFiles) -> String {
    Certificate::open(files.clone()).unwrap_err().to_string()
}

#[test]
fn clients_ask_under_the_names_of_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Arc::new(Certificate::open(write(folder.path(), &NAMES, |_| ())).unwrap());
    assert_eq!(certificate.names(), ["gpu1.example.com"]);
    assert_eq!(certificate.configuration().alpn_protocols, [PROTOCOL]);
    let host = |at: &str| certificate.host(at.parse().unwrap());
    assert_eq!(host("0.0.0.0").as_deref(), Some("gpu1.example.com"));
    assert_eq!(host("192.0.2.7").as_deref(), Some("gpu1.example.com"));

    let hosts =
        Hosts::of(Arc::clone(&certificate), 8443, &["front.example.com:443".to_owned(), "gpu".to_owned()]);
    for own in [
        "gpu1.example.com:8443",
        "GPU1.example.com:8443",
        "a.lab.example.com:8443",
        "192.0.2.7:8443",
        "front.example.com",
        "front.example.com:443",
        "gpu:8443",
    ] {
        assert!(hosts.has(own), "{own}");
    }
    for other in [
        "gpu1.example.com",
        "gpu1.example.com:7077",
        "gpu1.example.com:",
        "a.b.lab.example.com:8443",
        "evil@gpu1.example.com:8443",
        "gpu1.example.com:8443@evil.example:8443",
        "192.0.2.8:8443",
        "front.example.com:8443",
        "evil.example:8443",
        "*.lab.example.com:8443",
        "",
    ] {
        assert!(!hosts.has(other), "{other}");
    }
    let short = Hosts::of(certificate, 443, &[]);
    assert!(short.has("gpu1.example.com") && short.has("gpu1.example.com:443"));
}

#[test]
fn the_address_for_people_is_one_of_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let host = |names: &[&str], at: &str| {
        let certificate = Certificate::open(write(folder.path(), names, |_| ())).unwrap();
        certificate.host(at.parse().unwrap())
    };
    assert_eq!(host(&["127.0.0.1", "a.example"], "127.0.0.1").as_deref(), Some("127.0.0.1"));
    assert_eq!(host(&["::1"], "::1").as_deref(), Some("[::1]"));
    assert_eq!(host(&["192.0.2.7"], "192.0.2.7").as_deref(), Some("192.0.2.7"));
    assert_eq!(host(&["192.0.2.7"], "0.0.0.0"), None, "which of the addresses, nobody knows");
    assert_eq!(host(&["*.example"], "0.0.0.0"), None);
}

#[test]
fn what_cannot_be_used_is_refused_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let good = write(path, &NAMES, |_| ());
    let absent = CertificateFiles { certificate: path.join("absent.pem"), ..good.clone() };
    assert!(refused(&absent).starts_with(&format!("cannot read {}: ", path.join("absent.pem").display())));
    let swapped = CertificateFiles { certificate: good.key.clone(), key: good.certificate.clone() };
    assert!(
        refused(&swapped).contains("key.pem has no certificate that can be read"),
        "{}",
        refused(&swapped)
    );
    fs::set_permissions(&good.certificate, fs::Permissions::from_mode(0o600)).unwrap();
    let both = CertificateFiles { key: good.certificate.clone(), ..good.clone() };
    assert!(refused(&both).contains("cert.pem has no private key"), "{}", refused(&both));
    fs::set_permissions(&good.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Certificate::open(good.clone()).is_ok(), "the group may read it");
    for mode in [0o644, 0o620, 0o604] {
        fs::set_permissions(&good.key, fs::Permissions::from_mode(mode)).unwrap();
        let why = refused(&good);
        assert!(why.contains(&format!("(mode {mode:03o}): `chmod 600 ")), "{why}");
    }
    fs::write(&good.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    fs::set_permissions(&good.key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused(&good).contains("does not belong to the certificate in "), "{}", refused(&good));
    fs::write(&good.certificate, "x".repeat((1 << 20) + 1)).unwrap();
    assert!(refused(&good).contains("is longer than"));

    let year = |year| rcgen::date_time_ymd(year, 1, 1);
    let expired = write(path, &NAMES, |of| (of.not_before, of.not_after) = (year(2001), year(2002)));
    assert!(
        refused(&expired).ends_with("cert.pem expired at 2002-01-01T00:00:00Z: renew it"),
        "{}",
        refused(&expired)
    );
    let early = write(path, &NAMES, |of| (of.not_before, of.not_after) = (year(2901), year(2902)));
    assert!(refused(&early).contains("is valid from 2901-01-01T00:00:00Z on"), "{}", refused(&early));
    let of_client = write(path, &NAMES, |of| {
        of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert!(refused(&of_client).contains("cannot be used"), "{}", refused(&of_client));
    let own_issuer = write(path, &NAMES, |of| {
        of.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    assert!(Certificate::open(own_issuer).is_ok(), "one that signed itself");
}

#[test]
fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let certificate = Certificate::open(write(path, &["old.example"], |_| ())).unwrap();
    let mut renewal = certificate.renewal();
    let mut look = || {
        certificate.look(&mut renewal);
        certificate.names()
    };
    assert_eq!(look(), ["old.example"]);
    write(path, &["new.example"], |_| ());
    assert_eq!(look(), ["old.example"], "it may be written still");
    assert_eq!(look(), ["new.example"]);
    let files = CertificateFiles { certificate: path.join("cert.pem"), key: path.join("key.pem") };
    fs::write(&files.key, "no key any more").unwrap();
    assert_eq!((look(), look()), (vec!["new.example".to_owned()], vec!["new.example".to_owned()]));
    fs::remove_file(&files.certificate).unwrap();
    assert_eq!((look(), look()), (vec!["new.example".to_owned()], vec!["new.example".to_owned()]));
    write(path, &["third.example"], |_| ());
    look();
    assert_eq!(look(), ["third.example"]);
    let year = |year| rcgen::date_time_ymd(year, 1, 1);
    write(path, &["late.example"], |of| (of.not_before, of.not_after) = (year(2001), year(2002)));
    look();
    assert_eq!(look(), ["third.example"], "an expired one is worse");
}
