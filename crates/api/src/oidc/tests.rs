use std::cell::Cell;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::keys::{Key, KeySet};
use super::*;

const FILE: &str = "issuer: https://id.example\naudience: phalanx\nusers: {ada@example.com: ada, chief: root}\n\
                    operators: [gpu-admins]\nviewers: [auditors]\n";
/// A moment; tokens are valid until 600 s after it.
const NOW_S: u64 = 1_800_000_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The other side.
struct Issuer {
    pair: EcdsaKeyPair,
    kid: &'static str,
}

impl Issuer {
    fn new(kid: &'static str) -> Self {
        let (of, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(of, &random).unwrap();
        Self { pair: EcdsaKeyPair::from_pkcs8(of, pkcs8.as_ref(), &random).unwrap(), kid }
    }

    fn published(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "kid": self.kid, "alg": "ES256", "use": "sig",
                "x": b64(&point[1..33]), "y": b64(&point[33..]) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", b64(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": "ES256", "kid": self.kid, "typ": "JWT" }), claims)
    }
}

fn key_set(keys: &[Value]) -> Vec<Key> {
    serde_json::from_value::<KeySet>(json!({ "keys": keys })).unwrap().keys()
}

fn claims() -> Value {
    json!({ "iss": "https://id.example", "aud": "phalanx", "exp": NOW_S + 600, "preferred_username": "ada" })
}

fn with(changes: &Value) -> Value {
    let mut all = claims();
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// Someone who knows the keys of this issuer.
fn verifier(issuer: &Issuer) -> Oidc {
    let oidc = Oidc { settings: Settings::of(FILE), keys: Keys::default() };
    oidc.keys.renew("", &|| Ok(key_set(&[issuer.published()])));
    oidc
}

fn identify(oidc: &Oidc, token: &str) -> Result<Identity, &'static str> {
    oidc.identify(token, at(NOW_S)).map_err(|refused| match refused {
        Refused::Invalid(why) => why,
        Refused::NoKeys => "no keys",
    })
}

#[test]
fn a_token_names_an_account_and_its_groups_a_role() {
    let issuer = Issuer::new("k1");
    let oidc = verifier(&issuer);
    let of = |changes| identify(&oidc, &issuer.token(&with(&changes))).unwrap();
    let ada = of(json!({}));
    assert_eq!((ada.account.as_str(), ada.is_listed, ada.role), ("ada", false, None));
    let listed = of(json!({ "preferred_username": "ada@example.com" }));
    assert_eq!(
        (listed.login.as_str(), listed.account.as_str(), listed.is_listed),
        ("ada@example.com", "ada", true)
    );
    assert_eq!(of(json!({ "groups": ["x", "gpu-admins", "auditors"] })).role, Some(Role::Operator));
    assert_eq!(of(json!({ "groups": "auditors" })).role, Some(Role::Viewer));
    assert_eq!(of(json!({ "groups": [["gpu-admins"], 7, "gpu-admin"] })).role, None);
    assert_eq!(
        of(json!({ "aud": ["other", "phalanx"], "nbf": NOW_S + 20, "exp": NOW_S - 20 })).account,
        "ada"
    );
    let access = json!({ "alg": "ES256", "kid": "k1", "typ": "at+jwt" });
    assert!(identify(&oidc, &issuer.sign(&access, &claims())).is_ok());
    assert!(identify(&oidc, &issuer.sign(&json!({ "alg": "ES256" }), &claims())).is_ok(), "the only key");
    assert!(Oidc::is_one(&issuer.token(&claims())) && !Oidc::is_one("phx_0123"));
}

#[test]
fn claims_that_do_not_hold_are_refused() {
    let issuer = Issuer::new("k1");
    let oidc = verifier(&issuer);
    for (changes, why) in [
        (json!({ "iss": "https://id.example/" }), "the token is of another issuer"),
        (json!({ "iss": null }), "the token is of another issuer"),
        (json!({ "aud": "phalanx2" }), "the token is for another audience"),
        (json!({ "aud": null }), "the token is for another audience"),
        (json!({ "aud": [] }), "the token is for another audience"),
        (json!({ "exp": NOW_S - 30 }), "the token has expired"),
        (json!({ "exp": "9999999999" }), "the token does not say when it expires"),
        (json!({ "exp": null }), "the token does not say when it expires"),
        (json!({ "nbf": NOW_S + 60 }), "the token is not valid yet"),
        (json!({ "nbf": "now" }), "the token does not say from when on it is valid"),
        (json!({ "preferred_username": "" }), "the token has no claim that names its user"),
        (json!({ "preferred_username": ["ada"] }), "the token has no claim that names its user"),
        (json!({ "preferred_username": "a\nb" }), "the token has no claim that names its user"),
        (json!({ "preferred_username": "a".repeat(257) }), "the token has no claim that names its user"),
    ] {
        assert_eq!(identify(&oidc, &issuer.token(&with(&changes))), Err(why), "{changes}");
    }
    let by_email = format!("{FILE}username_claim: email\n");
    let oidc = Oidc { settings: Settings::of(&by_email), ..oidc };
    let of = |changes| identify(&oidc, &issuer.token(&with(&changes)));
    assert!(of(json!({ "email": "ada@example.com" })).is_ok());
    assert!(of(json!({ "email": "ada@example.com", "email_verified": true })).is_ok());
    for not in [json!(false), json!("true"), json!(null)] {
        assert!(of(json!({ "email": "ada@example.com", "email_verified": not })).is_err());
    }
}

#[test]
fn forged_tokens_are_refused() {
    let (issuer, other) = (Issuer::new("k1"), Issuer::new("k1"));
    let oidc = verifier(&issuer);
    let good = issuer.token(&claims());
    assert!(identify(&oidc, &good).is_ok());
    let (head, rest) = good.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let tampered = b64(with(&json!({ "preferred_username": "chief" })).to_string());
    let header = |header: Value| format!("{}.{rest}", b64(header.to_string()));
    // As a careless verifier would take it: the public key as the secret of an HMAC.
    let public = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, issuer.pair.public_key().as_ref());
    let signed =
        format!("{}.{}", b64(json!({ "alg": "HS256", "kid": "k1" }).to_string()), b64(claims().to_string()));
    let by_secret = format!("{signed}.{}", b64(ring::hmac::sign(&public, signed.as_bytes())));
    let none = json!({ "alg": "none", "kid": "k1" });
    for (token, why) in [
        (format!("{head}.{tampered}.{signature}"), "signature"),
        (format!("{head}.{rest}").replace(signature, ""), "signature"),
        (format!("{head}.{}.{}", rest.split('.').next().unwrap(), b64([0; 64])), "signature"),
        (other.token(&claims()), "signature"),
        (by_secret, "not signed with RS256"),
        (header(none.clone()), "not signed with RS256"),
        (format!("{}.{}.", b64(none.to_string()), b64(claims().to_string())), "not signed with RS256"),
        (header(json!({ "alg": "NONE", "kid": "k1" })), "not signed with RS256"),
        (header(json!({ "alg": "RS256", "kid": "k1" })), "does not publish"),
        (header(json!({ "alg": "ES256", "kid": "k2" })), "does not publish"),
        (header(json!({ "alg": "ES256", "kid": "k1", "crit": ["b64"], "b64": false })), "an extension"),
        (header(json!({ "alg": "ES256", "kid": "k1", "typ": "logout+jwt" })), "not for signing in"),
        (header(json!({ "alg": "ES256", "kid": "k1", "jwk": other.published() })), "signature"),
        (header(json!({ "kid": "k1" })), "no signed token"),
        (format!("{good}."), "no signed token"),
        (format!("{head}=.{rest}"), "no signed token"),
        ("eyJ..".to_owned(), "no signed token"),
        (format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX)), "too long"),
    ] {
        let said = identify(&oidc, &token).unwrap_err();
        assert!(said.contains(why), "{said}: {token}");
    }
    for at in 0..good.len() {
        for byte in *b"Ab_.~" {
            let mut changed = good.clone().into_bytes();
            changed[at] = byte;
            let changed = String::from_utf8(changed).unwrap();
            assert!(changed == good || identify(&oidc, &changed).is_err(), "{changed}");
            assert!(identify(&oidc, &good[..at]).is_err());
        }
    }
    let twice = r#"{"alg":"none","alg":"ES256","kid":"k1"}"#;
    assert!(identify(&oidc, &format!("{}.{rest}", b64(twice))).unwrap_err().contains("no signed token"));
}

#[test]
fn keys_of_all_kinds_verify_and_others_are_left_out() {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let ed = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(pair.public_key()) });
    let keys = key_set(&[
        ed.clone(),
        json!({ "kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256" }),
        json!({ "kty": "RSA", "kid": "to encrypt", "use": "enc", "n": "AQAB", "e": "AQAB" }),
        json!({ "kty": "RSA", "kid": "weak kind", "alg": "RS1", "n": "AQAB", "e": "AQAB" }),
        json!({ "kty": "EC", "crv": "secp256k1", "kid": "other curve", "x": "AA", "y": "AA" }),
        json!({ "kty": "EC", "crv": "P-256", "kid": "half", "x": "AA" }),
        json!("no key"),
    ]);
    assert_eq!(keys.len(), 1);
    let oidc = Oidc { settings: Settings::of(FILE), keys: Keys::default() };
    oidc.keys.renew("", &|| Ok(key_set(std::slice::from_ref(&ed))));
    let signed =
        format!("{}.{}", b64(json!({ "alg": "EdDSA", "kid": "ed" }).to_string()), b64(claims().to_string()));
    let token = format!("{signed}.{}", b64(pair.sign(signed.as_bytes())));
    assert_eq!(identify(&oidc, &token).unwrap().account, "ada");

    // RFC 7515, A.2: RS256 with a leading zero byte in the number, as some issuers write it.
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let zero = b64([vec![0], URL_SAFE_NO_PAD.decode(n).unwrap()].concat());
    let signed = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let rsa = key_set(&[json!({ "kty": "RSA", "n": zero, "e": "AQAB" })]);
    let (signature, bytes) = (URL_SAFE_NO_PAD.decode(signature).unwrap(), signed.as_bytes());
    let by = |algorithm| rsa[0].has_signed(algorithm, bytes, &signature);
    assert!(by(token::Algorithm::Rs256) && !by(token::Algorithm::Ps256) && !by(token::Algorithm::Es256));
}

#[test]
fn keys_are_fetched_again_for_an_unknown_one_and_not_for_a_burst() {
    let (old, new) = (Issuer::new("k1"), Issuer::new("k2"));
    let oidc = verifier(&old);
    let token = new.token(&claims());
    let before = std::time::Instant::now();
    for _ in 0..1_000 {
        assert!(identify(&oidc, &token).is_err());
    }
    assert!(before.elapsed() < Duration::from_secs(2), "nobody waits: the keys were fetched just now");
    oidc.keys.age();
    let fetches = std::sync::atomic::AtomicUsize::new(0);
    let oidc = std::sync::Arc::new(oidc);
    let of_thread = std::sync::Arc::clone(&oidc);
    let published = new.published();
    std::thread::spawn(move || {
        of_thread.keys.keep("", &|| {
            let count = fetches.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            assert!(count < 2, "the burst was fetched for once");
            std::thread::sleep(Duration::from_millis(100));
            Ok(key_set(std::slice::from_ref(&published)))
        });
    });
    assert_eq!(identify(&oidc, &token).unwrap().account, "ada");
    assert!(identify(&oidc, &old.token(&claims())).is_err(), "the issuer took it back");
    let forged = Issuer::new("k3").token(&claims());
    (0..1_000).for_each(|_| assert!(identify(&oidc, &forged).is_err()));
    assert!(identify(&oidc, &token).is_ok());
}

#[test]
fn the_last_keys_are_good_while_the_issuer_is_away() {
    let issuer = Issuer::new("k1");
    let oidc = Oidc { settings: Settings::of(FILE), keys: Keys::default() };
    oidc.keys.renew("", &|| Err("refused".to_owned()));
    let token = issuer.token(&claims());
    assert_eq!(identify(&oidc, &token), Err("no keys"));
    let calls = Cell::new(0);
    oidc.keys.renew("", &|| {
        calls.set(calls.get() + 1);
        Ok(key_set(&[issuer.published()]))
    });
    oidc.keys.renew("", &|| Err("refused".to_owned()));
    assert!(identify(&oidc, &token).is_ok() && calls.get() == 1);
    // Of a key that is not known it cannot be told whether it is a new one.
    let rotated = Issuer::new("k2").token(&claims());
    assert_eq!(identify(&oidc, &rotated), Err("no keys"));
    // It may have taken its keys back since it answered last.
    oidc.keys.outlive();
    assert_eq!(identify(&oidc, &token), Err("no keys"));
    oidc.keys.renew("", &|| Ok(key_set(&[issuer.published()])));
    assert!(identify(&oidc, &token).is_ok());
}
