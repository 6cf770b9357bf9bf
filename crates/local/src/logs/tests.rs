use super::*;

fn tail_of(text: &str, lines: u32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, text).unwrap();
    let at = tail_begins(&File::open(&path).unwrap(), text.len() as u64, lines, &mut [0; 4]).unwrap();
    text[usize::try_from(at).unwrap()..].to_owned()
}

fn follower(path: &Path, tail: Option<u32>) -> Follower {
    let member = MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 };
    Follower::new(Log { member, path: path.to_owned() }, tail, None, false)
}

/// The lines of one look.
fn read(follower: &mut Follower, last: bool) -> Vec<String> {
    let mut seen = Vec::new();
    let each = |_, line: &str| {
        seen.push(line.to_owned());
        Ok(())
    };
    follower.lines(last, &mut Buffer::new(), each).unwrap();
    seen
}

/// Without the spaces that make all lines equally long.
fn trimmed(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| line.trim()).collect()
}

#[test]
fn a_tail_is_the_last_whole_lines() {
    assert_eq!(tail_of("a\nb\nc\n", 2), "b\nc\n");
    assert_eq!(tail_of("a\nb\nc", 1), "c");
    assert_eq!(tail_of("a\nb\n", 9), "a\nb\n");
    assert_eq!(tail_of("", 3), "");
    assert_eq!(tail_of("a\nb\nc\n", 0), "");
}

#[test]
fn where_a_log_was_cut_a_reader_is_told_and_goes_on_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let line = |n: usize| format!("{n:>99}\n");
    fs::write(&path, (0..100).map(line).collect::<String>()).unwrap();
    let mut early = follower(&path, None);
    assert_eq!(read(&mut early, true).len(), 100);
    assert!(output::cut(&path, 1_000).unwrap() > 0);
    let seen = read(&mut follower(&path, None), true);
    assert_eq!(seen[0], "[phalanx: 8192 bytes of output were cut here]");
    assert_eq!(trimmed(&seen[1..]), (82..100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(read(&mut early, true).is_empty(), "it has read what was cut");
    assert_eq!(trimmed(&read(&mut follower(&path, Some(2)), true)), ["98", "99"]);
}

#[test]
fn a_growing_log_gives_whole_lines_and_at_the_end_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut follower = follower(&path, None);
    assert!(read(&mut follower, false).is_empty());
    fs::write(&path, "one\ntw").unwrap();
    assert_eq!(read(&mut follower, false), ["one"]);
    fs::write(&path, "one\ntwo\nthree").unwrap();
    assert_eq!(read(&mut follower, false), ["two"]);
    assert_eq!(read(&mut follower, true), ["three"]);
}

#[test]
fn a_file_that_a_rank_made_long_costs_nothing_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let line = |n: usize| format!("{n:>4095}\n");
    fs::write(&path, line(1)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let mut follower = follower(&path, None);
    let hole = format!("[phalanx: {} bytes here were never written]", (1_u64 << 40) - 4096);
    assert_eq!(trimmed(&read(&mut follower, false)), ["1", &hole]);
    file.write_all_at(line(2).as_bytes(), 1 << 40).unwrap();
    assert_eq!(trimmed(&read(&mut follower, false)), ["2"]);
    assert_eq!(read(&mut follower, true), [""; 0]);
}

#[test]
fn a_line_without_an_end_comes_in_parts_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let text = format!("first\n{}\nlast", "x".repeat(2 * LINE_BYTES_MAX));
    fs::write(&path, &text).unwrap();
    let seen = read(&mut follower(&path, None), true);
    assert_eq!(seen.first().unwrap(), "first");
    assert_eq!(seen.last().unwrap(), "last");
    assert_eq!(seen.concat(), text.replace('\n', ""));
    assert!(seen.iter().all(|line| line.len() <= LINE_BYTES_MAX));
}

#[test]
fn lines_since_a_time_begin_with_a_whole_line_and_have_their_times() {
    let dir = tempfile::tempdir().unwrap();
    let paths = crate::Paths::new(dir.path());
    let member = MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 };
    let path = paths.log(member);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut sampler = times::Sampler::default();
    // At 20 s the third line was half written.
    let text = "one\ntwo\nthree\nfour\n";
    for (at, length) in [(10_000, 8), (20_000, 11), (30_000, text.len())] {
        fs::write(&path, &text[..length]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_millis(at)).unwrap();
        sampler.look(&paths, Timestamp(at), [(member.gang, 1)]);
    }
    let said = |since: Option<u64>, tail: Option<u32>| {
        let log = Log { member, path: path.clone() };
        let mut seen = Vec::new();
        let each = |at: Option<Timestamp>, line: &str| {
            seen.push(format!("{} {line}", at.unwrap().0 / 1_000));
            Ok(())
        };
        Follower::new(log, tail, since.map(Timestamp), true).lines(true, &mut Buffer::new(), each).unwrap();
        seen
    };
    assert_eq!(said(None, None), ["10 one", "10 two", "30 three", "30 four"]);
    assert_eq!(said(Some(20_000), None), ["30 three", "30 four"]);
    assert_eq!(said(Some(25_000), None), ["30 three", "30 four"], "it ended later");
    assert_eq!(said(Some(10_000), Some(3)), ["10 two", "30 three", "30 four"]);
    assert_eq!(said(Some(u64::MAX), None), [""; 0]);
}
