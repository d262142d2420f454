//! How values are encoded on disk: records of one row are framed together, compressed if that helps, and sealed with a
//! checksum where nothing else detects corruption. Decoding never panics: any bytes give a value or an error.

use crate::limits::{
    COMPRESS_BYTES_MIN, COMPRESS_TEXT_BYTES_MIN, JOURNAL_ROW_BYTES_MAX, PREALLOCATED_BYTES_MAX, SQLITE_VALUE_BYTES_MAX,
};
use std::cell::RefCell;
use std::io::Read as _;
use std::sync::LazyLock;

use segue_core::body::BodyId;
use segue_core::ids::{Seq, SessionId, SubmissionId, UnixMillis};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

use crate::{JournalRecord, SessionSummary, Snapshot};

const MARK_UNCOMPRESSED: u8 = 0;
const MARK_ZSTD: u8 = 1;
/// Compressed with the journal dictionary.
const MARK_ZSTD_JOURNAL: u8 = 2;
/// The first bytes of every zstd frame, which are not stored.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ZSTD_LEVEL: i32 = 1;
const CHECKSUM_BYTES: usize = 8;

/// A dictionary of what journals contain often. Part of the file format: a better dictionary needs a mark of its own
/// (see the example `dictionary`).
const JOURNAL_DICTIONARY: &[u8] = include_bytes!("journal-1.zdict");
static JOURNAL_ENCODER_DICTIONARY: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(JOURNAL_DICTIONARY, ZSTD_LEVEL));
static JOURNAL_DECODER_DICTIONARY: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(JOURNAL_DICTIONARY));

/// Encodes the records of one row as a sealed value.
pub(crate) fn seal_records(session: &SessionId, first: Seq, records: &[JournalRecord]) -> Vec<u8> {
    let size: usize = records.iter().map(|record| record.bytes.len() + 8).sum();
    let mut frame = Vec::with_capacity(size + 8);
    write_varint(&mut frame, records.len() as u64);
    let mut last = 0;
    for record in records {
        write_varint(&mut frame, zigzag_encode(record.at.0.wrapping_sub(last)));
        write_varint(&mut frame, record.bytes.len() as u64);
        last = record.at.0;
    }
    for record in records {
        frame.extend_from_slice(&record.bytes);
    }
    seal(session, &first.0.to_le_bytes(), &compress_with_mark(MARK_ZSTD_JOURNAL, &frame))
}

/// Splits the records of a commit into rows.
pub(crate) fn split_into_rows(records: &[JournalRecord]) -> Vec<&[JournalRecord]> {
    let mut rows = Vec::with_capacity(1);
    let (mut row_start, mut bytes) = (0, 0);
    for (index, record) in records.iter().enumerate() {
        bytes += record.bytes.len();
        if bytes > JOURNAL_ROW_BYTES_MAX && index > row_start {
            rows.push(&records[row_start..index]);
            (row_start, bytes) = (index, record.bytes.len());
        }
    }
    rows.push(&records[row_start..]);
    rows
}

/// Decodes the records that were sealed for this session and first sequence number.
pub(crate) fn unseal_records(session: &SessionId, first: Seq, sealed: &[u8]) -> Result<Vec<JournalRecord>, String> {
    let frame = decompress(unseal(session, &first.0.to_le_bytes(), sealed)?)?;
    let mut rest = frame.as_slice();
    let count = read_varint(&mut rest)?;
    let mut headers = Vec::new();
    let mut last = 0u64;
    for _ in 0..count {
        last = last.wrapping_add(zigzag_decode(read_varint(&mut rest)?));
        headers.push((UnixMillis(last), read_varint(&mut rest)?));
    }
    let mut seq = first;
    let mut records = Vec::with_capacity(headers.len());
    for (at, len) in headers {
        let len = usize::try_from(len).map_err(|_| "the length of a record is too large".to_owned())?;
        let (bytes, tail) = rest.split_at_checked(len).ok_or("a record is truncated")?;
        records.push(JournalRecord { seq, at, bytes: bytes.to_vec() });
        rest = tail;
        seq = seq.next();
    }
    if rest.is_empty() { Ok(records) } else { Err("there are bytes after the last record".into()) }
}

/// Seals encoded records for another session, without decoding them.
pub(crate) fn reseal_records(from: &SessionId, to: &SessionId, first: Seq, sealed: &[u8]) -> Result<Vec<u8>, String> {
    let context = first.0.to_le_bytes();
    Ok(seal(to, &context, unseal(from, &context, sealed)?))
}

/// Encodes a summary as a sealed value.
pub(crate) fn seal_summary(session: &SessionId, summary: &SessionSummary) -> Vec<u8> {
    let json = serde_json::to_vec(summary).expect("a summary serializes to JSON");
    seal(session, b"summary", &json)
}

/// Decodes the summary that was sealed for this session.
pub(crate) fn unseal_summary(session: &SessionId, sealed: &[u8]) -> Result<SessionSummary, String> {
    serde_json::from_slice(unseal(session, b"summary", sealed)?).map_err(|error| format!("its summary: {error}"))
}

/// Encodes a snapshot's bytes as a sealed value.
pub(crate) fn seal_snapshot(session: &SessionId, snapshot: &Snapshot) -> Vec<u8> {
    seal(session, &snapshot_checksum_context(snapshot.seq, snapshot.format), &compress(&snapshot.bytes))
}

/// Decodes the snapshot that was sealed for this session, sequence number and format.
pub(crate) fn unseal_snapshot(session: &SessionId, seq: Seq, format: u32, sealed: &[u8]) -> Result<Vec<u8>, String> {
    decompress(unseal(session, &snapshot_checksum_context(seq, format), sealed)?)
}

/// Compresses bytes if that helps; the first byte of the result tells whether they are compressed. Adds no checksum.
pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    compress_with_mark(MARK_ZSTD, bytes)
}

/// Compresses a text in the same way. A short text is not compressed, because the time is worth more than the space.
pub(crate) fn compress_text(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    if bytes.len() < COMPRESS_TEXT_BYTES_MIN { mark_uncompressed(bytes) } else { compress(bytes) }
}

fn compress_with_mark(mark: u8, bytes: &[u8]) -> Vec<u8> {
    try_compress(mark, bytes).unwrap_or_else(|| mark_uncompressed(bytes))
}

fn mark_uncompressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 1);
    out.push(MARK_UNCOMPRESSED);
    out.extend_from_slice(bytes);
    out
}

/// Decodes the result of [`compress`].
pub(crate) fn decompress(packed: &[u8]) -> Result<Vec<u8>, String> {
    match packed.split_first() {
        Some((&MARK_UNCOMPRESSED, bytes)) => Ok(bytes.to_vec()),
        Some((mark @ &(MARK_ZSTD | MARK_ZSTD_JOURNAL), mut rest)) => {
            let len = usize::try_from(read_varint(&mut rest)?).unwrap_or(usize::MAX);
            if len > SQLITE_VALUE_BYTES_MAX {
                return Err("a length is too large".into());
            }
            let mut frame = Vec::with_capacity(rest.len() + ZSTD_MAGIC.len());
            frame.extend_from_slice(&ZSTD_MAGIC);
            frame.extend_from_slice(rest);
            let bytes =
                decompress_frame(*mark, &frame, len).map_err(|error| format!("decompression failed: {error}"))?;
            if bytes.len() == len { Ok(bytes) } else { Err("the decompressed length is wrong".into()) }
        }
        Some((mark, _)) => Err(format!("unknown compression mark {mark}")),
        None => Err("the value is empty".into()),
    }
}

/// A journal row's reference to a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalRowBodyRef {
    /// The row of the body.
    pub(crate) body: i64,
    pub(crate) is_visible: bool,
    /// The first record of the journal row that refers to the body, counted from zero.
    pub(crate) record_offset: u64,
}

/// Comes before references with record offsets. Rows of format 2 and before have references without them, which never
/// begin with this byte.
const MARK_RECORD_OFFSETS: u8 = 0;

/// Encodes the references of a journal row to the bodies that came with it.
pub(crate) fn encode_body_refs(body_refs: &[JournalRowBodyRef]) -> Vec<u8> {
    let mut out = vec![MARK_RECORD_OFFSETS];
    for body_ref in body_refs {
        write_varint(&mut out, body_ref.body.cast_unsigned() << 1 | u64::from(body_ref.is_visible));
        write_varint(&mut out, body_ref.record_offset);
    }
    out
}

/// Decodes the result of [`encode_body_refs`]. A reference without an offset counts as one of the first record.
pub(crate) fn decode_body_refs(mut bytes: &[u8]) -> Result<Vec<JournalRowBodyRef>, String> {
    let has_offsets = bytes.first() == Some(&MARK_RECORD_OFFSETS);
    bytes = &bytes[usize::from(has_offsets)..];
    let mut body_refs = Vec::new();
    while !bytes.is_empty() {
        let number = read_varint(&mut bytes)?;
        let record_offset = if has_offsets { read_varint(&mut bytes)? } else { 0 };
        body_refs.push(JournalRowBodyRef {
            body: (number >> 1).cast_signed(),
            is_visible: number & 1 == 1,
            record_offset,
        });
    }
    Ok(body_refs)
}

/// Encodes the content of an inbox entry as a sealed value.
pub(crate) fn seal_inbox_entry(session: &SessionId, submission: SubmissionId, bytes: &[u8]) -> Vec<u8> {
    seal(session, &submission_checksum_context(b'i', submission), &compress(bytes))
}

/// Decodes the inbox entry that was sealed for this session and submission.
pub(crate) fn unseal_inbox_entry(
    session: &SessionId,
    submission: SubmissionId,
    sealed: &[u8],
) -> Result<Vec<u8>, String> {
    decompress(unseal(session, &submission_checksum_context(b'i', submission), sealed)?)
}

/// Encodes the outcome of a submission as a sealed value.
pub(crate) fn seal_outcome(session: &SessionId, submission: SubmissionId, bytes: &[u8]) -> Vec<u8> {
    seal(session, &submission_checksum_context(b'o', submission), &compress(bytes))
}

/// Decodes the outcome that was sealed for this session and submission.
pub(crate) fn unseal_outcome(session: &SessionId, submission: SubmissionId, sealed: &[u8]) -> Result<Vec<u8>, String> {
    decompress(unseal(session, &submission_checksum_context(b'o', submission), sealed)?)
}

fn seal(session: &SessionId, context: &[u8], content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(CHECKSUM_BYTES + content.len());
    out.extend_from_slice(&checksum(session, context, content));
    out.extend_from_slice(content);
    out
}

fn unseal<'a>(session: &SessionId, context: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], String> {
    let (sum, content) = sealed.split_at_checked(CHECKSUM_BYTES).ok_or("the value is truncated")?;
    if checksum(session, context, content) == sum { Ok(content) } else { Err("the checksum does not match".into()) }
}

/// Includes the session and the position of the value, so that a value in a wrong place is detected too.
fn checksum(session: &SessionId, context: &[u8], content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let name = session.as_str().as_bytes();
    let mut all = Vec::with_capacity(name.len() + context.len() + content.len() + 1);
    all.extend_from_slice(name);
    all.push(0);
    all.extend_from_slice(context);
    all.extend_from_slice(content);
    let digest = BodyId::hash_bytes(&all).0;
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&digest[..CHECKSUM_BYTES]);
    sum
}

fn submission_checksum_context(kind: u8, submission: SubmissionId) -> [u8; 9] {
    let mut context = [kind; 9];
    context[1..].copy_from_slice(&submission.0.to_le_bytes());
    context
}

fn snapshot_checksum_context(seq: Seq, format: u32) -> [u8; 13] {
    let mut context = [b's'; 13];
    context[1..9].copy_from_slice(&seq.0.to_le_bytes());
    context[9..].copy_from_slice(&format.to_le_bytes());
    context
}

thread_local! {
    static COMPRESSORS: RefCell<[Option<Compressor<'static>>; 2]> = RefCell::new([plain_compressor(), journal_compressor()]);
    static DECOMPRESSORS: RefCell<[Option<Decompressor<'static>>; 2]> =
        RefCell::new([Decompressor::new().ok(), Decompressor::with_prepared_dictionary(&JOURNAL_DECODER_DICTIONARY).ok()]);
}

/// Returns none if there is no memory for a compressor. Then bytes are stored as they are.
fn plain_compressor() -> Option<Compressor<'static>> {
    Compressor::new(ZSTD_LEVEL).ok()
}

/// Returns none if there is no memory for a compressor. Then bytes are stored as they are.
fn journal_compressor() -> Option<Compressor<'static>> {
    let mut compressor = Compressor::with_prepared_dictionary(&JOURNAL_ENCODER_DICTIONARY).ok()?;
    // The mark tells which dictionary was used.
    compressor.include_dictid(false).ok()?;
    Some(compressor)
}

/// Compresses `bytes`, if that makes them shorter.
fn try_compress(mark: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    let frame = COMPRESSORS.with_borrow_mut(|compressors| {
        let compressor = &mut compressors[usize::from(mark == MARK_ZSTD_JOURNAL)];
        compressor.as_mut()?.compress(bytes).ok()
    })?;
    let content = frame.strip_prefix(&ZSTD_MAGIC)?;
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(mark);
    write_varint(&mut out, bytes.len() as u64);
    out.extend_from_slice(content);
    (out.len() <= bytes.len()).then_some(out)
}

fn decompress_frame(mark: u8, frame: &[u8], len: usize) -> std::io::Result<Vec<u8>> {
    if len <= PREALLOCATED_BYTES_MAX {
        return DECOMPRESSORS.with_borrow_mut(|decompressors| {
            let decompressor = &mut decompressors[usize::from(mark == MARK_ZSTD_JOURNAL)];
            decompressor.as_mut().ok_or(std::io::ErrorKind::OutOfMemory)?.decompress(frame, len)
        });
    }
    let mut bytes = Vec::new();
    let limit = len as u64 + 1;
    if mark == MARK_ZSTD_JOURNAL {
        zstd::stream::Decoder::with_prepared_dictionary(frame, &JOURNAL_DECODER_DICTIONARY)?
            .take(limit)
            .read_to_end(&mut bytes)?;
    } else {
        zstd::stream::Decoder::new(frame)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a number is truncated")?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err("a number is too long".into())
}

/// Maps small steps in either direction to small numbers.
fn zigzag_encode(step: u64) -> u64 {
    let signed = step.cast_signed();
    (signed << 1 ^ signed >> 63).cast_unsigned()
}

fn zigzag_decode(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fuzz_unseal() {
        let session = SessionId::from("s");
        let sealed = [
            seal_records(&session, Seq(1), &records(1, vec![(5, b"an event".to_vec()), (9, vec![7; 2_000])])),
            seal(&session, b"summary", br#"{"flow":"chat","title":"t","phase":"","turns":1,"calls":1}"#),
            seal_snapshot(&session, &Snapshot { seq: Seq(1), format: 1, bytes: vec![b'x'; 3_000] }),
            seal_outcome(&session, SubmissionId(1), b"{}"),
        ];
        // Without the checksum, so that changed contents are decoded, too.
        let contents: Vec<Vec<u8>> = sealed.iter().map(|value| value[CHECKSUM_BYTES..].to_vec()).collect();
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/unseal");
        segue_testkit::run_fuzz_target("unseal", &corpus, &contents, |bytes| {
            let submission = SubmissionId(1);
            let as_records = seal(&session, &1u64.to_le_bytes(), bytes);
            for value in [bytes, &as_records] {
                // Damaged values give an error or another value, but never a panic.
                let _ = unseal_records(&session, Seq(1), value);
                let _ = reseal_records(&session, &SessionId::from("t"), Seq(1), value);
            }
            let _ = unseal_summary(&session, &seal(&session, b"summary", bytes));
            let _ = unseal_snapshot(&session, Seq(1), 1, &seal(&session, &snapshot_checksum_context(Seq(1), 1), bytes));
            for (kind, unseal) in [(b'i', unseal_inbox_entry as fn(_, _, &[u8]) -> _), (b'o', unseal_outcome)] {
                let _ = unseal(
                    &session,
                    submission,
                    &seal(&session, &submission_checksum_context(kind, submission), bytes),
                );
            }
        });
    }

    fn records(first: u64, parts: Vec<(u64, Vec<u8>)>) -> Vec<JournalRecord> {
        let number = |(index, (at, bytes))| JournalRecord { seq: Seq(first + index as u64), at: UnixMillis(at), bytes };
        parts.into_iter().enumerate().map(number).collect()
    }

    proptest! {
        #[test]
        fn records_survive_encoding(
            name in "[a-z]{1,9}",
            first in 1u64..1_000_000,
            parts in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..300)), 1..5),
        ) {
            let session = SessionId::from(name);
            let records = records(first, parts);
            let sealed = seal_records(&session, Seq(first), &records);
            prop_assert_eq!(unseal_records(&session, Seq(first), &sealed), Ok(records.clone()));
            prop_assert!(unseal_records(&session, Seq(first + 1), &sealed).is_err(), "another sequence number");
            let other = SessionId::from("other-session");
            prop_assert!(unseal_records(&other, Seq(first), &sealed).is_err(), "another session");
            let resealed = reseal_records(&session, &other, Seq(first), &sealed).expect("intact");
            prop_assert_eq!(unseal_records(&other, Seq(first), &resealed), Ok(records));
        }

        #[test]
        fn a_flipped_bit_is_detected(bytes in prop::collection::vec(any::<u8>(), 0..300), bit in any::<prop::sample::Index>()) {
            let session = SessionId::from("s");
            let mut sealed = seal_records(&session, Seq(1), &records(1, vec![(5, bytes)]));
            let bit = bit.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(unseal_records(&session, Seq(1), &sealed).is_err());
        }

        #[test]
        fn compression_is_lossless(bytes in prop::collection::vec(0u8..6, 0..3000)) {
            for mark in [MARK_ZSTD, MARK_ZSTD_JOURNAL] {
                let packed = compress_with_mark(mark, &bytes);
                prop_assert!(packed.len() <= bytes.len() + 1);
                prop_assert_eq!(decompress(&packed), Ok(bytes.clone()));
            }
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for mark in [MARK_UNCOMPRESSED, MARK_ZSTD, MARK_ZSTD_JOURNAL] {
                let mut packed = vec![mark];
                packed.extend_from_slice(&bytes);
                let _ = decompress(&packed);
            }
            let _ = decode_body_refs(&bytes);
        }

        #[test]
        fn body_references_survive_encoding(
            parts in prop::collection::vec((0i64..i64::MAX >> 1, any::<bool>(), any::<u64>()), 0..9)
        ) {
            let to_ref = |(body, is_visible, record_offset)| JournalRowBodyRef { body, is_visible, record_offset };
            let body_refs: Vec<JournalRowBodyRef> = parts.into_iter().map(to_ref).collect();
            prop_assert_eq!(decode_body_refs(&encode_body_refs(&body_refs)), Ok(body_refs));
        }
    }

    #[test]
    fn body_references_without_offsets_are_read_as_those_of_the_first_record() {
        let mut written = Vec::new();
        write_varint(&mut written, 300 << 1 | 1);
        let body_ref = JournalRowBodyRef { body: 300, is_visible: true, record_offset: 0 };
        assert_eq!(decode_body_refs(&written), Ok(vec![body_ref]));
    }

    #[test]
    fn long_texts_survive_compression() {
        let bytes = b"all work and no play ".repeat(200_000);
        for mark in [MARK_ZSTD, MARK_ZSTD_JOURNAL] {
            let packed = compress_with_mark(mark, &bytes);
            assert!(packed.len() < bytes.len() / 100);
            assert_eq!(decompress(&packed).as_ref(), Ok(&bytes));
        }
    }

    #[test]
    fn records_compressed_with_the_first_dictionary_stay_readable() {
        let event = r#"{"type":"turn_started","turn":7,"messages":[9]}{"type":"turn_ended","turn":7,"outcome":"done"}"#;
        let written = [2, 94, 32, 94, 141, 0, 0, 16, 55, 57, 5, 252, 241, 32, 216, 80, 96, 167, 160, 1, 7, 76, 136, 19];
        assert_eq!(decompress(&written).as_deref(), Ok(event.as_bytes()));
    }
}
