//! An issuer of `OpenID` Connect: publishes its keys over TLS, and signs tokens.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::Authority;

pub(crate) struct Issuer {
    pub(crate) url: String,
    pair: EcdsaKeyPair,
    is_away: Arc<AtomicBool>,
    /// Requests that were answered.
    asked: Arc<AtomicUsize>,
}

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    pub(crate) fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let pair = key_pair();
        let point = pair.public_key().as_ref();
        let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "use": "sig",
                                      "x": b64(&point[1..33]), "y": b64(&point[33..]) }] });
        let discovery = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        let (certificate, key) = authority.sign(&["127.0.0.1"]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let (is_away, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let issuer = Self { url, pair, is_away: is_away.clone(), asked: asked.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_away.load(Ordering::SeqCst) {
                    continue;
                }
                asked.fetch_add(1, Ordering::SeqCst);
                let _ = answer(stream, &config, &discovery, &keys);
            }
        });
        issuer
    }

    /// From now on it closes every connection.
    pub(crate) fn go_away(&self) {
        self.is_away.store(true, Ordering::SeqCst);
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The public key, as somebody knows it who forges tokens.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        self.pair.public_key().as_ref().to_vec()
    }

    pub(crate) fn claims(&self, name: &str) -> Value {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        json!({ "iss": self.url, "aud": "phalanx", "exp": now + 3_600, "preferred_username": name })
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        sign(&self.pair, &json!({ "alg": "ES256", "kid": "k1", "typ": "JWT" }), claims)
    }

    pub(crate) fn token_of(&self, name: &str) -> String {
        self.token(&self.claims(name))
    }
}

pub(crate) fn key_pair() -> EcdsaKeyPair {
    let (of, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(of, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(of, pkcs8.as_ref(), &random).unwrap()
}

pub(crate) fn sign(pair: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
    let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", b64(signature))
}

fn answer(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    discovery: &Value,
    keys: &Value,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut first = String::new();
    stream.read_line(&mut first)?;
    let mut line = String::new();
    while stream.read_line(&mut line)? > 2 {
        line.clear();
    }
    let body = match first.split(' ').nth(1) {
        Some("/.well-known/openid-configuration") => discovery.to_string(),
        Some("/keys") => keys.to_string(),
        _ => "{}".to_owned(),
    };
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())?;
    stream.conn.send_close_notify();
    stream.flush()
}
