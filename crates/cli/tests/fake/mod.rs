//! A daemon of canned answers on a socket in a folder of its own, and the binary run against it.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use phalanx_api::http::{self, Backend, NoPeer, serve_socket};
use phalanx_api::protocol::{Answer, ErrorView, Verb};
use phalanx_api::{Peer, Reply};
use phalanx_model::Owner;
use tempfile::TempDir;

/// What answers a request: says one answer after the other.
type Serve = dyn Fn(&Verb, &mut dyn FnMut(Answer)) + Send + Sync;

/// In the environment of every run.
pub const TOKEN: &str = "s3cret";

/// With which a port is asked.
pub const API_TOKEN: &str = "phx_good";

pub struct Fake {
    dir: TempDir,
    asked: Arc<Mutex<Vec<Verb>>>,
}

pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Fake {
    /// A folder where no daemon is.
    pub fn absent() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), asked: Arc::default() }
    }

    /// Answers each request with a list, and closes.
    pub fn start(answers: impl Fn(&Verb) -> Vec<Answer> + Send + Sync + 'static) -> Self {
        Self::stream(move |verb, say| answers(verb).into_iter().for_each(say))
    }

    /// Answers each request in a thread of its own, as long as it takes.
    pub fn stream(serve: impl Fn(&Verb, &mut dyn FnMut(Answer)) + Send + Sync + 'static) -> Self {
        let fake = Self::absent();
        let listener = UnixListener::bind(fake.dir.path().join("phalanx.sock")).unwrap();
        let world = Arc::new(World { asked: Arc::clone(&fake.asked), serve: Box::new(serve) });
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve_socket(listener, world, peer, |peer| peer))
        });
        fake
    }

    /// The same at a port of this machine, for [`API_TOKEN`]. Its address is returned.
    pub fn port(answers: impl Fn(&Verb) -> Vec<Answer> + Send + Sync + 'static) -> (Self, String) {
        let fake = Self::absent();
        let serve = move |verb: &Verb, say: &mut dyn FnMut(Answer)| answers(verb).into_iter().for_each(say);
        let world = Arc::new(World { asked: Arc::clone(&fake.asked), serve: Box::new(serve) });
        let listening = http::listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let url = listening.url();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(http::serve(listening, world))
        });
        (fake, url)
    }

    pub fn state(&self) -> &Path {
        self.dir.path()
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Verb> {
        self.asked.lock().unwrap().clone()
    }

    /// `phalanx` with these words, in an environment that says nothing of the one that tests run in.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        command.args(words.split_whitespace());
        command.env_clear().env("PHALANX_STATE", self.state()).env("TOKEN", TOKEN).env("TZ", "UTC");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &str) -> Run {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }

    /// What a shell is offered for the last of these words.
    pub fn complete(&self, words: &[&str]) -> String {
        let mut command = self.command("");
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command.env("_CLAP_IFS", "\n").args(["--", "phalanx"]).args(words);
        let Output { stdout, .. } = command.output().unwrap();
        let text = String::from_utf8(stdout).unwrap();
        text.lines().map(|line| format!("{line}\n")).collect()
    }
}

struct World {
    asked: Arc<Mutex<Vec<Verb>>>,
    serve: Box<Serve>,
}

impl Backend for World {
    fn peer(&self, token: &str) -> Result<Peer, NoPeer> {
        match token {
            API_TOKEN => Ok(peer(1, 1)),
            _ => Err(NoPeer::Unauthorized("the token is not valid, or no longer")),
        }
    }

    fn answer(&self, _: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), ErrorView> {
        self.asked.lock().unwrap().push(verb.clone());
        let mut refusal = None;
        (self.serve)(&verb, &mut |answer| match answer {
            Answer::Error(error) => refusal = Some(error),
            // A client that went away is part of some tests.
            other => drop(reply.send(&other).and_then(|()| reply.flush())),
        });
        refusal.map_or(Ok(()), Err)
    }
}

fn peer(uid: u32, gid: u32) -> Peer {
    let owner = Owner { uid, gid, name: uid.to_string() };
    Peer { owner, is_operator: true, is_known: true, is_reader: false, login: None, cluster_user: None }
}
