//! Terminals of ranks, and commands beside them, spoken to as a client does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use phalanx_api::protocol::{Answer, ErrorCode, ExecAsk, JobRef, TerminalView, Verb};
use phalanx_model::{Job, JobId};
use phalanx_node::terminal::frame::{Decoder, Frame, Size};

use crate::support::{Bench, NOBODY, NODE_OF_8, eventually, gang, is_root, refused, shell, until};

/// A client of a keeper.
struct Client {
    stream: UnixStream,
    decoder: Decoder,
    output: String,
    errors: String,
}

impl Client {
    fn attach(place: &TerminalView) -> Self {
        let path = place.dir.join(&place.name);
        let stream = eventually("the keeper", || UnixStream::connect(&path).ok());
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream, decoder: Decoder::default(), output: String::new(), errors: String::new() }
    }

    fn send(&mut self, frame: &Frame) {
        self.stream.write_all(&frame.bytes()).unwrap();
    }

    fn enter(&mut self, text: &str) {
        self.send(&Frame::Input(text.as_bytes().to_vec()));
    }

    /// The next frame; none at the end of the connection.
    fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                match &frame {
                    Frame::Output(bytes) => self.output += &String::from_utf8_lossy(bytes),
                    Frame::Error(bytes) => self.errors += &String::from_utf8_lossy(bytes),
                    _ => {}
                }
                return Some(frame);
            }
            let mut chunk = [0; 4096];
            let count = self.stream.read(&mut chunk).unwrap();
            if count == 0 {
                return None;
            }
            self.decoder.push(&chunk[..count]);
        }
    }

    fn reads(&mut self, text: &str) {
        while !self.output.contains(text) {
            assert!(self.next().is_some(), "{text:?} was not said, but {:?}", self.output);
        }
    }

    /// How the command ended.
    fn ended(&mut self) -> (Option<i32>, Option<i32>) {
        loop {
            match self.next() {
                Some(Frame::Ended { code, signal }) => return (code, signal),
                Some(_) => {}
                None => panic!("no end was told"),
            }
        }
    }
}

/// A job that somebody sits at.
fn session(script: &str) -> Job {
    let mut job = shell(1, script);
    gang(&mut job).program.terminal = true;
    job
}

fn terminal(bench: &Bench, id: JobId) -> TerminalView {
    place(bench.ask(Verb::Terminal { job: JobRef::Id(id) }).unwrap())
}

fn place(answer: Answer) -> TerminalView {
    match answer {
        Answer::Terminal(place) => place,
        other => panic!("{other:?}"),
    }
}

fn exec(rank: Option<u32>, script: &str) -> ExecAsk {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    ExecAsk { rank, argv, terminal: None }
}

/// Says each line back; ends with 7 at `end`.
const ECHO: &str =
    "tty; stty -echo; while read line; do echo \"got:$line\"; [ \"$line\" = end ] && exit 7; done";

#[test]
fn a_terminal_outlives_its_clients_and_the_daemon() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(session(ECHO));
    bench.await_state(id, "running");
    let mut client = Client::attach(&terminal(&bench, id));
    client.reads("/dev/pts/");
    client.enter("one\n");
    client.reads("got:one\r\n");

    bench.kill();
    client.enter("two\n");
    client.reads("got:two\r\n");
    drop(client);
    bench.up();
    assert_eq!(bench.await_state(id, "running").gangs[0].attempt, 1);
    let mut client = Client::attach(&terminal(&bench, id));
    client.enter("end\n");
    assert_eq!(client.ended(), (Some(7), None));
    assert!(!client.output.contains("got:one"), "what was seen is not shown again: {:?}", client.output);
    assert_eq!(bench.ended(id).exit_code, Some(7));
    let lines: Vec<String> = bench.logs(id).into_iter().map(|(_, line)| line).collect();
    assert!(lines.iter().any(|line| line.trim_end() == "got:two"), "{lines:?}");
    bench.await_nobody();
}

#[test]
fn a_terminal_has_the_size_of_the_window_and_passes_keys_on() {
    let bench = Bench::up_with(NODE_OF_8);
    let script = "trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done";
    let id = bench.submit(session(script));
    bench.await_state(id, "running");
    let mut client = Client::attach(&terminal(&bench, id));
    client.reads("ready");
    client.send(&Frame::Size(Size { rows: 33, columns: 121 }));
    client.reads("33 121");
    client.enter("\x03");
    assert_eq!(client.ended(), (Some(3), None));
    assert!(client.output.contains("interrupted"), "{:?}", client.output);
    assert_eq!(bench.ended(id).exit_code, Some(3));
}

#[test]
fn a_command_beside_a_rank_has_its_environment_and_its_own_streams() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(shell(2, "exec sleep 1000"));
    bench.await_state(id, "running");
    let script = "echo rank=$PHALANX_RANK; echo wrong >&2; cat; exit 4";
    let ask = exec(Some(1), script);
    let mut client = Client::attach(&place(bench.ask(Verb::Exec { job: JobRef::Id(id), ask }).unwrap()));
    client.enter("from the client\n");
    client.send(&Frame::InputEnd);
    assert_eq!(client.ended(), (Some(4), None));
    assert_eq!((client.output.as_str(), client.errors.as_str()), ("rank=1\nfrom the client\n", "wrong\n"));

    let ask = ExecAsk { argv: vec!["no-such-program".to_owned()], ..exec(None, "") };
    let mut client = Client::attach(&place(bench.ask(Verb::Exec { job: JobRef::Id(id), ask }).unwrap()));
    assert_eq!(client.ended(), (Some(127), None));
    assert!(client.errors.contains("cannot start no-such-program"), "{:?}", client.errors);
    assert_eq!(bench.get(id).state, "running", "what runs beside a rank does not end it");
    bench.cancel(id);
    bench.await_nobody();
}

/// More than pipes and buffers between the two ends hold, both ways at once.
#[test]
fn much_goes_through_a_command_in_both_directions() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(id, "running");
    let ask = exec(None, "cat");
    let mut client = Client::attach(&place(bench.ask(Verb::Exec { job: JobRef::Id(id), ask }).unwrap()));
    let sent = vec![b'x'; 8 << 20];
    let mut writer = client.stream.try_clone().unwrap();
    let bytes = [Frame::Input(sent.clone()).bytes(), Frame::InputEnd.bytes()].concat();
    let writing = std::thread::spawn(move || writer.write_all(&bytes));
    assert_eq!(client.ended(), (Some(0), None));
    writing.join().unwrap().unwrap();
    assert_eq!(client.output.len(), sent.len());
}

#[test]
fn a_command_ends_with_its_client_and_with_its_rank() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(id, "running");
    let begin = |file: &str| {
        let script = format!("echo $$ > {}; exec sleep 1000", bench.path(file).display());
        let ask = exec(None, &script);
        let client = Client::attach(&place(bench.ask(Verb::Exec { job: JobRef::Id(id), ask }).unwrap()));
        until(file, || bench.read(file).ends_with('\n'));
        (client, bench.read(file).trim().to_owned())
    };
    let is_alive = |pid: &str| std::path::Path::new("/proc").join(pid).exists();
    let (client, pid) = begin("of-client");
    assert!(is_alive(&pid));
    drop(client);
    until("the command to end with its client", || !is_alive(&pid));

    let (mut client, pid) = begin("of-rank");
    bench.cancel(id);
    bench.ended(id);
    assert!(!is_alive(&pid), "a command outlived its rank");
    while client.next().is_some() {}
    bench.await_nobody();
}

#[test]
fn what_cannot_be_entered_is_refused_by_its_reason() {
    let bench = Bench::up_with(NODE_OF_8);
    let message = |verb| refused(bench.ask(verb)).message;
    let id = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(id, "running");
    let job = || JobRef::Id(id);
    assert_eq!(message(Verb::Terminal { job: job() }), format!("job {id} has no terminal"));
    let ask = exec(Some(5), "true");
    assert_eq!(message(Verb::Exec { job: job(), ask }), format!("job {id} has no rank 5"));
    let ask = ExecAsk { argv: Vec::new(), ..exec(None, "") };
    assert_eq!(message(Verb::Exec { job: job(), ask }), "the command has 0 bytes");
    bench.cancel(id);
    bench.ended(id);
    let ask = exec(None, "true");
    assert_eq!(message(Verb::Exec { job: job(), ask }), format!("job {id} is not running: it is cancelled"));
    assert_eq!(message(Verb::Terminal { job: job() }), format!("job {id} is not running: it is cancelled"));
}

#[test]
fn only_its_owner_and_operators_enter_a_job() {
    if !is_root("only_its_owner_and_operators_enter_a_job") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let root = bench.submit(session("exec sleep 1000"));
    bench.await_state(root, "running");
    let ask = exec(None, "true");
    for verb in [Verb::Terminal { job: JobRef::Id(root) }, Verb::Exec { job: JobRef::Id(root), ask }] {
        let answers = bench.ask_as(NOBODY, &verb);
        assert!(
            matches!(answers.as_slice(), [Answer::Error(error)] if error.code == ErrorCode::Forbidden),
            "{answers:?}"
        );
    }
    let job = session("id -u; exec sleep 1000");
    let verb = Verb::Submit { job: Box::new(job), secrets: std::collections::BTreeMap::new() };
    let [Answer::Submitted { job: theirs, .. }] = bench.ask_as(NOBODY, &verb)[..] else { panic!("refused") };
    bench.await_state(theirs, "running");
    let place_of = terminal(&bench, theirs);
    assert_eq!(place_of.uid, NOBODY);
    let mode = std::fs::metadata(&place_of.dir).unwrap();
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    assert_eq!((mode.uid(), mode.permissions().mode() & 0o777), (NOBODY, 0o700));
    let mut client = Client::attach(&place_of);
    client.reads("65534");
    let mut other = {
        let ask = exec(None, "id -u");
        Client::attach(&place(bench.ask(Verb::Exec { job: JobRef::Id(theirs), ask }).unwrap()))
    };
    assert_eq!(other.ended(), (Some(0), None));
    assert_eq!(other.output, "65534\n", "a command runs as the owner of the job, whoever asks");
}
