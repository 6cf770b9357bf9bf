//! Files and standard streams, for whoever has no others to lend.

use std::fs::File;
use std::io::{self, Read, Write};

pub(super) fn read(file: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = match file {
        "-" => io::stdin().lock().take(bytes_max).read_to_end(&mut text),
        _ => File::open(file).and_then(|file| file.take(bytes_max).read_to_end(&mut text)),
    };
    read.map(|_| text).map_err(|error| format!("cannot read {file}: {error}"))
}

pub(super) fn write(file: &str, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(file, bytes).map_err(|error| format!("cannot write {file}: {error}"))
}

/// A reader that went away (`phalanx sim policies | head`) is no error.
pub(super) fn print(text: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) fn segments(dir: &str) -> Result<Vec<String>, String> {
    let segments = phalanx_journal::segments(std::path::Path::new(dir)).map_err(|error| error.to_string())?;
    Ok(segments.iter().map(|segment| segment.path.display().to_string()).collect())
}
