//! What a keeper and its clients say to each other: a letter, the length of what follows in four bytes (big endian),
//! and that many bytes.

use std::collections::VecDeque;

/// Longest content of a frame, in bytes.
pub const CONTENT_BYTES_MAX: usize = 64 << 10;
const HEAD_BYTES: usize = 5;

/// Rows and columns of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Client: for the command to read.
    Input(Vec<u8>),
    /// Client: nothing more is to be read. Of a terminal it means nothing.
    InputEnd,
    /// Client: the size of its window.
    Size(Size),
    /// Client: it leaves, and means to.
    Detach,
    /// Keeper: what the command wrote; of a terminal, all of it.
    Output(Vec<u8>),
    /// Keeper: what the command wrote to its standard error.
    Error(Vec<u8>),
    /// Keeper, last: how the command ended.
    Ended { code: Option<i32>, signal: Option<i32> },
}

/// A frame that cannot be: the other end is no keeper or client of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came is no frame of a terminal")]
pub struct Garbled;

impl Frame {
    fn letter(&self) -> u8 {
        match self {
            Self::Input(_) => b'i',
            Self::InputEnd => b'e',
            Self::Size(_) => b's',
            Self::Detach => b'd',
            Self::Output(_) => b'o',
            Self::Error(_) => b'r',
            Self::Ended { .. } => b'x',
        }
    }

    /// The frame as bytes. Content above [`CONTENT_BYTES_MAX`] goes in several frames.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let of = |content: &[u8]| {
            let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
            [&[self.letter()], length.as_slice(), content].concat()
        };
        match self {
            Self::Input(content) | Self::Output(content) | Self::Error(content) => {
                content.chunks(CONTENT_BYTES_MAX).flat_map(of).collect()
            }
            Self::InputEnd | Self::Detach => of(&[]),
            Self::Size(Size { rows, columns }) => of(&[rows.to_be_bytes(), columns.to_be_bytes()].concat()),
            Self::Ended { code, signal } => {
                let number = |value: &Option<i32>| value.unwrap_or(i32::MIN).to_be_bytes();
                of(&[number(code), number(signal)].concat())
            }
        }
    }

    fn read(letter: u8, content: &[u8]) -> Result<Self, Garbled> {
        let two = |content: &[u8]| -> Option<(u16, u16)> {
            let (first, second) = content.split_first_chunk::<2>()?;
            Some((u16::from_be_bytes(*first), u16::from_be_bytes(second.try_into().ok()?)))
        };
        let numbers = |content: &[u8]| -> Option<(i32, i32)> {
            let (first, second) = content.split_first_chunk::<4>()?;
            Some((i32::from_be_bytes(*first), i32::from_be_bytes(second.try_into().ok()?)))
        };
        let known = |number: i32| Some(number).filter(|number| *number != i32::MIN);
        Ok(match letter {
            b'i' => Self::Input(content.to_vec()),
            b'e' if content.is_empty() => Self::InputEnd,
            b's' => {
                let (rows, columns) = two(content).ok_or(Garbled)?;
                Self::Size(Size { rows, columns })
            }
            b'd' if content.is_empty() => Self::Detach,
            b'o' => Self::Output(content.to_vec()),
            b'r' => Self::Error(content.to_vec()),
            b'x' => {
                let (code, signal) = numbers(content).ok_or(Garbled)?;
                Self::Ended { code: known(code), signal: known(signal) }
            }
            _ => return Err(Garbled),
        })
    }
}

/// Bytes as they come in, and the frames in them.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    bytes: VecDeque<u8>,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// When what came is none, or is longer than one may be. Nothing after it can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Garbled> {
        let bytes = self.bytes.make_contiguous();
        let Some((&[letter, a, b, c, d], rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(|_| Garbled)?;
        if length > CONTENT_BYTES_MAX {
            return Err(Garbled);
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::read(letter, content)?;
        self.bytes.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Vec<Frame>, Garbled> {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for byte in bytes {
            decoder.push(&[*byte]);
            frames.extend(decoder.next_frame()?);
        }
        Ok(frames)
    }

    #[test]
    fn every_frame_is_read_as_it_was_written_byte_by_byte() {
        let frames = [
            Frame::Input(b"ls\n".to_vec()),
            Frame::InputEnd,
            Frame::Size(Size { rows: 24, columns: 300 }),
            Frame::Detach,
            Frame::Output(vec![0, 255, 10]),
            Frame::Error(b"no such file".to_vec()),
            Frame::Ended { code: Some(3), signal: None },
            Frame::Ended { code: None, signal: Some(9) },
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::bytes).collect();
        assert_eq!(decode(&bytes), Ok(frames.to_vec()));
    }

    #[test]
    fn long_content_goes_in_several_frames() {
        let content = vec![7; CONTENT_BYTES_MAX * 2 + 1];
        let mut decoder = Decoder::default();
        decoder.push(&Frame::Output(content.clone()).bytes());
        let mut read = Vec::new();
        while let Some(Frame::Output(part)) = decoder.next_frame().unwrap() {
            read.extend(part);
        }
        assert_eq!(read, content);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in
            [b"GET / HTTP/1.1\r\n".as_slice(), b"i\xff\xff\xff\xff", b"s\0\0\0\x01\0", b"d\0\0\0\x01\0"]
        {
            assert_eq!(decode(bytes), Err(Garbled), "{bytes:?}");
        }
    }
}
