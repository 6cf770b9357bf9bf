//! A launcher of ours: `mpirun` in the first pod reaches the others by SSH, with a key that lives as long as the job.

use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::indexed::host;
use super::pod::variable;
use super::{Manifest, Refused, Work};

/// Where the key is seen: in nobody's home, since images run as different users.
const KEYS: &str = "/etc/phalanx/ssh";
const HOSTS: &str = "/tmp/phalanx-hostfile";
/// Not that of a daemon that the host may have.
const SSH_PORT: u16 = 2_222;

/// What runs in every pod: a daemon for SSH, and in the first of them the user's command once all others answer. The words of
/// the command become `"$@"`, so that no shell reads them a second time.
///
/// sshd ends well when it is told to. A pod that is evicted has not succeeded all the same: its index would be complete, and
/// the launcher would wait for ever for a pod that the Job does not make again.
const SCRIPT: &str = r#"set -eu
mkdir -p /run/sshd
ssh-keygen -A >/dev/null
sshd="$(command -v sshd || echo /usr/sbin/sshd)"
if [ "$JOB_COMPLETION_INDEX" != 0 ]; then
  trap 'exit 143' TERM
  "$sshd" -D -e -p SSH_PORT -o StrictModes=no -o AuthorizedKeysFile=KEYS/authorized_keys &
  wait "$!" || exit
  exit 1
fi
"$sshd" -p SSH_PORT -o StrictModes=no -o AuthorizedKeysFile=KEYS/authorized_keys
: > HOSTFILE
rank=0
while [ "$rank" -lt "$PHALANX_WORLD_SIZE" ]; do
  host="JOB_NAME-$rank.JOB_NAME"
  until ssh SSH_OPTIONS "$host" true 2>/dev/null; do sleep 1; done
  echo "$host slots=SLOTS" >> HOSTFILE
  rank=$((rank + 1))
done
exec "$@"
"#;

const SSH_OPTIONS: &str = "-p SSH_PORT -i KEYS/id_ecdsa -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR";

fn ssh_options() -> String {
    SSH_OPTIONS.replace("SSH_PORT", &SSH_PORT.to_string()).replace("KEYS", KEYS)
}

/// So many ranks in each pod, see [`Work::ranks`].
pub(super) fn command(work: &Work, per_pod: u32) -> Value {
    let script = SCRIPT
        .replace("SSH_OPTIONS", &ssh_options())
        .replace("SSH_PORT", &SSH_PORT.to_string())
        .replace("KEYS", KEYS)
        .replace("HOSTFILE", HOSTS)
        .replace("JOB_NAME-$rank.JOB_NAME", &host_pattern(work))
        .replace("SLOTS", &work.ranks(per_pod).to_string());
    let mut words = vec!["/bin/sh".to_owned(), "-c".to_owned(), script, "phalanx".to_owned()];
    words.extend(work.argv.iter().cloned());
    json!(words)
}

/// The name of every host, with the shell's variable for its index.
fn host_pattern(work: &Work) -> String {
    host(work, 0).replacen("-0.", "-$rank.", 1)
}

/// Open MPI 4 and 5 read these.
pub(super) fn env() -> Vec<Value> {
    vec![
        variable("OMPI_MCA_orte_default_hostfile", HOSTS),
        variable("PRTE_MCA_prte_default_hostfile", HOSTS),
        variable("OMPI_MCA_orte_keep_fqdn_hostnames", true),
        variable("PRTE_MCA_prte_keep_fqdn_hostnames", true),
        variable("OMPI_MCA_plm_rsh_args", ssh_options()),
        variable("PRTE_MCA_plm_ssh_args", ssh_options()),
    ]
}

fn secret_name(work: &Work) -> String {
    format!("{}-ssh", work.name)
}

/// The key as a volume, and where it is seen.
pub(super) fn volume(work: &Work) -> (Value, Value) {
    // SSH refuses keys that others can read.
    let secret = json!({ "secretName": secret_name(work), "defaultMode": 0o600 });
    (json!({ "name": "ssh", "secret": secret }), json!({ "name": "ssh", "mountPath": KEYS }))
}

/// A Secret with a new key.
pub(super) fn key(work: &Work) -> Result<Manifest, Refused> {
    let failed = |_| Refused::new("the key for MPI", "could not be made", "try again");
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(failed)?;
    let rejected = |_| Refused::new("the key for MPI", "could not be read back", "try again");
    let public = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pair.as_ref(), &random)
        .map_err(rejected)?;
    let public = format!("ecdsa-sha2-nistp256 {}\n", base64(public_key(public.public_key().as_ref())));
    let private = pem(&base64(pair.as_ref().to_vec()));
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": secret_name(work), "labels": work.labels() },
        "stringData": { "id_ecdsa": private, "authorized_keys": public },
    });
    Ok(Manifest { plural: "secrets", object })
}

/// As RFC 5656 writes a public key: each part with its length before it.
fn public_key(point: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [b"ecdsa-sha2-nistp256".as_slice(), b"nistp256", point] {
        bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(part);
    }
    bytes
}

fn pem(base64: &str) -> String {
    let lines = base64.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: Vec<_> = lines.collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

/// As the API writes bytes.
fn base64(bytes: Vec<u8>) -> String {
    json!(ByteString(bytes)).as_str().unwrap_or_default().to_owned()
}
