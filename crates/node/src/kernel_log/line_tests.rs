use proptest::prelude::*;

use super::*;

fn xid(line: &str) -> Option<(u32, String, String)> {
    parse(line).map(|xid| (xid.number, xid.address, xid.text))
}

fn expect(line: &str, number: u32, address: &str, text: &str) {
    assert_eq!(xid(line), Some((number, address.to_owned(), text.to_owned())), "{line}");
}

#[test]
fn reports_of_all_drivers_are_read() {
    // 304 and earlier; 340 to 430; 440 to 510; 515 and later; without a process; in MIG mode.
    for (report, number, address, text) in [
        (
            "NVRM: Xid (0000:03:00): 79, GPU has fallen off the bus.",
            79,
            "0000:03:00.0",
            "GPU has fallen off the bus.",
        ),
        ("NVRM: Xid (PCI:0000:02:00): 8, Channel 00000001", 8, "0000:02:00.0", "Channel 00000001"),
        (
            "NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.",
            79,
            "0000:01:00.0",
            "pid=1122, GPU has fallen off the bus.",
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
            79,
            "0000:3b:00.0",
            "pid=1234, name=python, GPU has fallen off the bus.",
        ),
        (
            "NVRM: Xid (PCI:0000:CB:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 0): x",
            13,
            "0000:cb:00.0",
            "pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 0): x",
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 62, 023f0f30 00000000 00000000 202c0ffe",
            62,
            "0000:01:00.0",
            "023f0f30 00000000 00000000 202c0ffe",
        ),
        (
            "NVRM: Xid (PCI:0000:87:00 GPU-I:02): 94, pid=7, name=a, Contained: CE User Channel (0x9). RST: No",
            94,
            "0000:87:00.0",
            "pid=7, name=a, Contained: CE User Channel (0x9). RST: No",
        ),
        (
            "NVRM: Xid (PCI:0000:87:00 GPU-I:02 GPU-CI:01): 43, pid=7, name=a, Ch 8",
            43,
            "0000:87:00.0",
            "pid=7, name=a, Ch 8",
        ),
        ("NVRM: Xid (PCI:00000000:00:1E.0): 79, pid=1234, x", 79, "0000:00:1e.0", "pid=1234, x"),
        ("NVRM: Xid (PCI:00010000:5E:00): 48", 48, "10000:5e:00.0", ""),
        ("NVRM: Xid (PCI:0018:01:00.4): 149,", 149, "0018:01:00.4", ""),
    ] {
        expect(report, number, address, text);
    }
}

#[test]
fn lines_of_all_logs_are_read() {
    let report = "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python";
    for before in [
        "",
        "4,1234,5678,-;",
        "3,1,98765432101,c,caller=T1234;",
        "[  888.328156] ",
        "[12345.678901][ T1234] ",
        "[12345.678901] [ T1234] ",
        "[Wed Jul 30 14:23:50 2026] ",
        "<4>",
        "<4>[  888.328156] ",
        "kern  :warn  : [  888.328156] ",
        "kern  :err   : [Wed Jul 30 14:23:50 2026] ",
        "2026-11-20T12:03:04,123456+00:00 ",
        "2026-11-20T12:03:04.123456+00:00 gpu7 kernel: ",
        "2026-11-20T12:03:04+0000 gpu7 kernel: [  888.328156] ",
        "Nov 20 12:03:04 gpu7 kernel: ",
        "Okt  6 17:59:27 gpu7 kernel: [  888.328156] ",
        "Nov 20 12:03:04.123456 gpu7 kernel: ",
    ] {
        for after in ["", "\n", "\r\n", "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:5e:00.0\n"] {
            expect(&format!("{before}{report}{after}"), 31, "0000:3b:00.0", "pid=1234, name=python");
        }
    }
}

#[test]
fn only_the_kernel_can_begin_a_report() {
    let report = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
    for before in [
        // Written to /dev/kmsg by root, by a daemon and by a user.
        "12,1234,5678,-;",
        "30,1234,5678,-;",
        "11,1,2,-;",
        "-4,1,2,-;",
        "99999999999,1,2,-;",
        "<12>",
        "<14>[  888.328156] ",
        "<>",
        "user  :notice: [  888.328156] ",
        "daemon:err   : ",
        // Of other programs.
        "Nov 20 12:03:04 gpu7 alice: ",
        "Nov 20 12:03:04 gpu7 kernel[123]: ",
        "Nov 20 12:03:04 gpu7 alice: x kernel: ",
        "2026-11-20T12:03:04.123456+00:00 gpu7 alice[99]: ",
        "2026-11-20T12:03:04.123456+00:00 gpu7 alice: kernel: ",
        // In what other messages quote.
        "python[123]: segfault at 0 ip ",
        "4,1234,5678,-;python[123]: ",
        "4,1234,5678,-;[  888.328156] ",
        "4,1234,5678,-; ",
        "[  888.328156] [x] [y] ",
        "[a;b] ",
        "[  888.328156] name=",
        "4,1234,5678,-;usb 1-1: Product: a\n",
        "4,1234,5678,-;usb 1-1: Product: a\\x0a",
        " ",
        "nvidia-nvswitch3: S",
    ] {
        assert_eq!(xid(&format!("{before}{report}")), None, "{before}");
    }
    // A process that is named like a report.
    let quoted = format!("4,1,2,-;NVRM: Xid (PCI:0000:5e:00): 13, pid=9, name={report}, Graphics Exception");
    expect(&quoted, 13, "0000:5e:00.0", &format!("pid=9, name={report}, Graphics Exception"));
}

#[test]
fn what_is_no_report_is_left_out() {
    for line in [
        "",
        "\n",
        "NVRM: GPU at PCI:0000:3b:00: GPU-fcdeaa4c-664a-4de8-2e32-23e14628ce8c",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0",
        "NVRM: Xid (",
        "NVRM: Xid (PCI:0000:3b:00)",
        "NVRM: Xid (PCI:0000:3b:00): ",
        "NVRM: Xid (PCI:0000:3b:00): x",
        "NVRM: Xid (PCI:0000:3b:00): 79x, a",
        "NVRM: Xid (PCI:0000:3b:00): -79, a",
        "NVRM: Xid (PCI:0000:3b:00): 4294967296, a",
        "NVRM: Xid (PCI:0000:3b): 79, a",
        "NVRM: Xid (PCI:0000:3b:00:00): 79, a",
        "NVRM: Xid (PCI:0000:3b:20): 79, a",
        "NVRM: Xid (PCI:0000:3b:00.8): 79, a",
        "NVRM: Xid (PCI:0000:3b:00.0.0): 79, a",
        "NVRM: Xid (PCI:0000:3b:): 79, a",
        "NVRM: Xid (PCI:000000000:3b:00): 79, a",
        "NVRM: Xid (PCI:+000:3b:00): 79, a",
        "NVRM: Xid (PCI:0000:3b:00 other): 79, a",
        "4,1,2;NVRM: Xid (PCI:0000:3b:00): 79, a",
    ] {
        assert_eq!(xid(line), None, "{line}");
    }
}

#[test]
fn texts_are_safe_to_print_and_bounded() {
    let text = |rest: &str| parse(&format!("4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 31, {rest}")).unwrap().text;
    assert_eq!(text(r"name=\xe2\x82\xac\x5cx41\x0aNVRM: b"), r"name=€\x41 NVRM: b");
    assert_eq!(text(r"a\x1b[31m\x00\x7f\xff b\x"), "a [31m  \u{fffd} b\\x");
    assert_eq!(text(r"a\xzz\x4"), r"a\xzz\x4");
    assert_eq!(text("a\u{202e}b\u{1b}c\td"), "a b c d");
    assert_eq!(text(&"x".repeat(10_000)), "x".repeat(512));
    assert_eq!(text(&"é".repeat(10_000)), "é".repeat(256));
    assert_eq!(text(&format!("x{}", "é".repeat(10_000))), format!("x{}", "é".repeat(255)));
    assert_eq!(text(&r"\xff".repeat(10_000)).len(), 510, "replacement characters take 3 bytes each");
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(line in "\\PC*|[\\x00-\\xff]*") {
        let _ = parse(&line);
    }

    /// Pieces of lines in any order.
    #[test]
    fn no_mixture_makes_it_panic(pieces in proptest::collection::vec(piece(), 0..12)) {
        let line = pieces.concat();
        if let Some(found) = parse(&line) {
            prop_assert!(line.contains(REPORT));
            prop_assert!(found.text.len() <= TEXT_MAX && !found.text.contains(char::is_control));
            prop_assert!(found.address.len() >= 12, "{}", found.address);
        }
    }

    /// Damage in the middle of a line.
    #[test]
    fn no_damage_makes_it_panic(from in 0_usize..120, length in 0_usize..20, other in "\\PC{0,4}") {
        let line = "Nov 20 12:03:04 gpu7 kernel: [  888.328147] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=a\\xe2\\x82\\xac";
        let from = from.min(line.len());
        let to = from.saturating_add(length).min(line.len());
        let _ = parse(&format!("{}{other}{}", &line[..from], &line[to..]));
    }
}

fn piece() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        REPORT,
        "PCI:",
        "0000:3b:00",
        ".0",
        "): ",
        "79",
        ", ",
        "\\x",
        "\\x0a",
        "é",
        "\n",
        "4,1,2,-;",
        "12,1,2,-;",
        "<4>",
        "[ 1.2] ",
        "Nov 20 12:03:04 h kernel: ",
        "kern  :warn  : ",
        " GPU-I:01",
        " ",
        "2026-11-20T12:03:04+00:00 ",
    ]);
    prop_oneof![4 => fixed.prop_map(str::to_owned), 1 => "\\PC{0,3}"]
}
