use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// An exporter on a port of this host that gives each client the same answer.
fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while request.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            answer(&mut stream);
        }
    });
    at
}

fn says(status: &str, body: &str) -> SocketAddr {
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}");
    serve(move |stream| drop(stream.write_all(answer.as_bytes())))
}

fn uuids() -> Vec<String> {
    ["GPU-a1", "", "GPU-b2"].map(str::to_owned).to_vec()
}

fn exporter(at: SocketAddr) -> Exporter {
    Exporter::new(&format!("http://{at}/metrics"), uuids()).unwrap()
}

/// As exporters until 4.5 write it, of the first GPU.
const OLDER: &str = r#"# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a1",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-1"} 1980
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a1",Hostname="gpu-1",hpc_job="llama-12"} 97
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 65536
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 655.125000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 7654321012
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 3
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 0
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 2
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 1
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 4
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 0
DCGM_FI_DEV_ROW_REMAP_PENDING{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 1
DCGM_FI_DEV_RETIRED_PENDING{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 0
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0",UUID="GPU-a1",Hostname="gpu-1"} 72
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a1",Hostname="gpu-1",err_code="0",err_msg="No Error"} 0
"#;

#[test]
fn a_sample_has_every_value_of_the_exporter_and_no_other() {
    let sampled = exporter(says("200 OK", OLDER)).sample().unwrap();
    let vitals = Vitals {
        busy_percent: Some(97),
        memory_used_bytes: Some(64 << 30),
        temperature_c: Some(61),
        power_mw: Some(655_125),
        energy_mj: Some(7_654_321_012),
        sm_clock_mhz: Some(1_980),
        throttle: Some(Throttle { is_hardware: true, is_hot: true, ..Throttle::default() }),
        ecc_corrected: Some(3),
        ecc_uncorrected: Some(0),
        rows: Some(RemappedRows {
            correctable: Some(1),
            uncorrectable: Some(4),
            is_pending: Some(true),
            has_failed: Some(false),
        }),
        pcie_replays: Some(2),
        ..Vitals::default()
    };
    // The second device is not named by the driver, and the exporter does not have the third.
    assert_eq!(sampled, [(0, vitals)]);
}

/// The label of the host is `hostname`, the reasons for lower clocks have another name, and the use comes from the profiler.
#[test]
fn newer_names_are_read_and_what_is_missing_is_unknown() {
    let text = r#"DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-b2",hostname="gpu-1",GPU_I_ID="",GPU_I_PROFILE=""} 0.254
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0",UUID="GPU-b2",hostname="gpu-1"} 0x
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{ gpu="0", UUID="GPU-b2", hostname="gpu-1", note="a \"b\", }\\" } 32 1795262400000
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-b2"} NaN
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-b2"} -1
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-b2"} 2147483632
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-b2"} 9223372036854775792
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-b2"} +Inf
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-b2"} 1
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",UUID="GPU-b2"
DCGM_FI_DEV_PCIE_REPLAY_COUNTER 7
"#;
    let vitals = Vitals {
        busy_percent: Some(25),
        throttle: Some(Throttle { is_warm: true, ..Throttle::default() }),
        rows: Some(RemappedRows { has_failed: Some(true), ..RemappedRows::default() }),
        ..Vitals::default()
    };
    assert_eq!(exporter(says("200 OK", text)).sample().unwrap(), [(2, vitals)]);
}

#[test]
fn the_use_of_an_instance_is_not_that_of_its_gpu() {
    let text = r#"DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.99
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 512
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 44
"#;
    let vitals = Vitals { temperature_c: Some(44), ..Vitals::default() };
    assert_eq!(samples(text, &uuids()), Ok(vec![(0, vitals)]));
}

#[test]
fn an_exporter_that_does_not_answer_as_it_should_gives_no_sample_and_a_reason() {
    let why = |at: SocketAddr| exporter(at).sample().unwrap_err();
    assert_eq!(why(says("503 Service Unavailable", OLDER)), "the DCGM exporter answered 503");
    assert_eq!(why(says("200 OK", "<html>")), "the answer is not of a DCGM exporter");
    assert_eq!(why(says("200 OK", "")), "the answer is not of a DCGM exporter");
    let other = OLDER.replace("GPU-a1", "GPU-zz").replace("gpu-1", "gpu-\u{1b}9");
    let said = why(says("200 OK", &other));
    assert_eq!(said, "the DCGM exporter has no GPU of this machine; it has those of gpu-\u{1b}9");
    // Nobody is there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = why(free);
    assert!(said.starts_with("the DCGM exporter does not answer: "), "{said}");
    // It sends the client elsewhere.
    let elsewhere = says("200 OK", OLDER);
    let redirect =
        format!("HTTP/1.1 302 Found\r\nLocation: http://{elsewhere}/\r\nContent-Length: 0\r\n\r\n");
    let said = why(serve(move |stream| drop(stream.write_all(redirect.as_bytes()))));
    assert_eq!(said, "the DCGM exporter answered 302");
    // No end, and no length.
    let endless = serve(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    assert_eq!(why(endless), "the answer of the DCGM exporter has more than 8388608 bytes");
    // Silence.
    let begin = Instant::now();
    let said = why(serve(|_| thread::sleep(TIME_MAX * 4)));
    assert!(said.starts_with("the DCGM exporter does not answer: "), "{said}");
    assert!(begin.elapsed() < TIME_MAX * 2, "{:?}", begin.elapsed());
}

#[test]
fn only_addresses_of_http_and_machines_with_uuids_are_accepted() {
    for url in ["", "127.0.0.1:9400", "ftp://host/metrics", "http://", "file:///etc/passwd", "http://a b/"] {
        let error = Exporter::new(url, uuids()).unwrap_err().to_string();
        assert!(error.contains("expected the address of a DCGM exporter"), "{url}: {error}");
    }
    let exporter = Exporter::new("https://ana:secret@[::1]:9400/metrics?a=b@c", uuids()).unwrap();
    assert_eq!(exporter.place(), "[::1]:9400");
    assert!(matches!(Exporter::new("http://a", vec![String::new()]), Err(ExporterError::NoUuids)));
}

proptest! {
    #[test]
    fn whatever_is_served_is_read_without_panic(
        lines in proptest::collection::vec(
            (0..FIELDS.len(), "[ -~]{0,40}", any::<f64>(), any::<String>()),
            0..40,
        ),
    ) {
        let mut text = String::new();
        for (at, label, value, odd) in lines {
            let name = FIELDS[at].0;
            text += &format!("{name}{{UUID=\"GPU-a1\",x=\"{label}\"}} {value}\n{odd}\n{name}{{{odd}\n");
        }
        for (device, vitals) in samples(&text, &uuids()).unwrap_or_default() {
            prop_assert_eq!(device, 0);
            prop_assert!(vitals.busy_percent.is_none_or(|percent| percent <= 100));
        }
    }

    #[test]
    fn a_label_is_read_as_it_was_written(value in "[^\u{0}]{0,60}") {
        let written = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let text = format!("{}{{UUID=\"{written}\"}} 5", "DCGM_FI_DEV_GPU_TEMP");
        prop_assert_eq!(Series::read(&text).map(|series| series.uuid), Some(value));
    }
}
