//! Detects the format and encoding of a file by its first bytes, and converts its text to UTF-8.

use std::io::{self, BufRead, BufReader, Read};

use anyhow::{Result, bail};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Maximum bytes that are inspected before a file is read.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

/// Reads the first [`HEAD_BYTES`], or the whole input if it is shorter.
pub(super) fn head(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    input.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Checks that the content is of a kind that `import` reads.
///
/// # Errors
/// The content is of another kind; the error names the kind and, if there is one, the program that
/// converts it.
pub(super) fn refuse_foreign(head: &[u8], name: &str) -> Result<()> {
    let compressed = [
        (&[0x1f, 0x8b][..], "gzip", "zcat"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstdcat"),
        (b"BZh", "bzip2", "bzcat"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xzcat"),
    ];
    if let Some((_, kind, cat)) = compressed.iter().find(|(magic, ..)| head.starts_with(magic)) {
        bail!(
            "it is {kind}: unpack it, or pipe it in: {cat} {name} | milepost import - --format …"
        );
    }
    if head.starts_with(b"PK\x03\x04") {
        bail!("it is a zip file: unzip {name}, and import what is in it");
    }
    if head.get(8..12) == Some(b".FIT") {
        bail!("{}", conversion_advice("a FIT file", "garmin_fit", name));
    }
    if head.starts_with(b"$GP") || head.starts_with(b"$GN") || head.starts_with(b"$GL") {
        bail!("{}", conversion_advice("NMEA", "nmea", name));
    }
    if head.starts_with(&[0xd0, 0xcf, 0x11, 0xe0]) {
        bail!("it is a spreadsheet: save it as CSV, and import that");
    }
    let documents = [
        (&b"PAR1"[..], "a Parquet file"),
        (b"ARROW1", "an Arrow file"),
        (b"\x89HDF", "an HDF5 file"),
        (b"Obj\x01", "an Avro file"),
        (b"%PDF", "a PDF document"),
        (b"{\\rtf", "a document of a word processor"),
    ];
    if let Some((_, kind)) = documents.iter().find(|(magic, _)| head.starts_with(magic)) {
        bail!("it is {kind}, which is not read: export it as CSV, and import that");
    }
    if head.starts_with(b"SQLite format 3") {
        bail!("it is a database: export a table of it as CSV, and import that");
    }
    let text = head_text(head);
    let lower = text.trim_start().to_ascii_lowercase();
    if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        bail!("it is a web page, perhaps a login page: download the file itself");
    }
    if matches!(root(&text), Some("osm" | "osmChange")) {
        bail!("{}", conversion_advice("OpenStreetMap data", "osm", name));
    }
    Ok(())
}

/// Returns the name of the root element of an XML text: the first element after declarations and
/// comments.
pub(super) fn root(text: &str) -> Option<&str> {
    let mut after_bracket = text.strip_prefix('<')?;
    loop {
        let end = match after_bracket {
            _ if after_bracket.starts_with("!--") => "-->",
            _ if after_bracket.starts_with('?') => "?>",
            _ if after_bracket.starts_with('!') => ">",
            _ => {
                return after_bracket.split(|c: char| c.is_whitespace() || "/>".contains(c)).next();
            }
        };
        after_bracket = after_bracket.split_once(end)?.1.split_once('<')?.1;
    }
}

/// Checks that a CSV file is not JSON. Otherwise the JSON would be read as the names of columns.
///
/// # Errors
/// The file begins with an object, or with an array of objects.
pub(super) fn refuse_json(head: &[u8]) -> Result<()> {
    let text = head_text(head);
    // A bracket alone does not mean JSON: `[lat],[lon]` are names of columns.
    let inner = text.strip_prefix('[').unwrap_or(&text).trim_start();
    if inner.starts_with('{') {
        bail!("it is JSON, not CSV: give --format geojson, geojsonl or timeline");
    }
    Ok(())
}

/// Checks that JSON is GeoJSON. `head`: the beginning of the file, which may end before the first
/// `"type":"Feature"`. So the members `features` and `coordinates` also prove that the file is
/// GeoJSON.
///
/// # Errors
/// The file begins with other JSON.
pub(super) fn refuse_other_json(head: &[u8], name: &str) -> Result<()> {
    let text = head_text(head);
    let has = |member: &&[u8]| memchr::memmem::find(head, member).is_some();
    let members: [&[u8]; 3] = [b"\"Feature", b"\"features\"", b"\"coordinates\""];
    let has_feature = members.iter().any(has);
    let has_object = head.contains(&b'}');
    if encoding(head).is_some() || has_feature || !has_object || !text.starts_with(['{', '[']) {
        return Ok(());
    }
    let jq_filter = if text.starts_with('[') { "'.[]'" } else { "." };
    let stem = stem(name);
    bail!(
        "it is JSON, but neither GeoJSON nor an export of Google's Timeline: write each fix to a \
         line, jq -c {jq_filter} {name} > {stem}.geojsonl, and import that with --format NAME, \
         where [formats.NAME] says which member is which field"
    )
}

/// Returns the first 4,096 bytes as a string, without a byte order mark and leading white space.
pub(super) fn head_text(head: &[u8]) -> String {
    let text = match encoding(head) {
        Some(encoding) => encoding.decode(&head[..head.len().min(4_096)]).0.into_owned(),
        None => String::from_utf8_lossy(&head[..head.len().min(4_096)]).into_owned(),
    };
    text.trim_start_matches(['\u{feff}', ' ', '\r', '\n', '\t']).to_owned()
}

/// Returns advice on how to convert a file. `kind`: the kind of file; `format`: gpsbabel's name
/// for it.
pub(super) fn conversion_advice(kind: &str, format: &str, name: &str) -> String {
    let stem = stem(name);
    let gpx = if name.ends_with(".gpx") { format!("{stem}-converted") } else { stem.to_owned() };
    format!(
        "it is {kind}, which is not read; convert it: gpsbabel -i {format} -f {name} -o gpx -F \
         {gpx}.gpx"
    )
}

/// Returns the name of a file without its extension.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Returns the encoding of a file, by its byte order mark, by zeros between ASCII characters as in
/// UTF-16, or by the XML declaration. `None`: UTF-8, perhaps with invalid bytes.
pub(super) fn encoding(head: &[u8]) -> Option<&'static Encoding> {
    if let Some((encoding, _)) = Encoding::for_bom(head) {
        return Some(encoding).filter(|encoding| *encoding != UTF_8);
    }
    match head {
        [1..=127, 0, 1..=127, 0, ..] => return Some(UTF_16LE),
        [0, 1..=127, 0, 1..=127, ..] => return Some(UTF_16BE),
        _ => {}
    }
    let text = String::from_utf8_lossy(&head[..head.len().min(256)]);
    let declared =
        text.trim_start().strip_prefix("<?xml")?.split_once("?>")?.0.split_once("encoding")?.1;
    let label = declared.trim_start().strip_prefix('=')?.trim_start();
    let label = label.split(['"', '\'']).nth(1)?;
    // A declaration of UTF-16 is wrong here: in UTF-16, the declaration itself would not be ASCII.
    Encoding::for_label(label.as_bytes())
        .filter(|encoding| ![UTF_8, UTF_16LE, UTF_16BE].contains(encoding))
}

/// Returns a reader that converts the input to UTF-8. Bytes that are invalid in `encoding` become
/// U+FFFD.
pub(super) fn utf8(input: impl Read, encoding: &'static Encoding) -> impl BufRead {
    let decoder = encoding.new_decoder_without_bom_handling();
    let (raw, text) = (vec![0; 32 * 1024], vec![0; 128 * 1024]);
    let decoded =
        Decoded { input, decoder, raw, pending: 0, text, read: 0, written: 0, is_end: false };
    BufReader::with_capacity(64 * 1024, decoded)
}

/// A reader that converts its input to UTF-8.
struct Decoded<R> {
    input: R,
    decoder: encoding_rs::Decoder,
    raw: Vec<u8>,
    /// Number of bytes at the beginning of `raw` that are an incomplete character.
    pending: usize,
    /// Converted text; the unread bytes are `text[read..written]`.
    text: Vec<u8>,
    read: usize,
    written: usize,
    is_end: bool,
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.read == self.written && !self.is_end {
            let new = self.input.read(&mut self.raw[self.pending..])?;
            self.is_end = new == 0;
            let filled = self.pending + new;
            let (_, used, written, _) =
                self.decoder.decode_to_utf8(&self.raw[..filled], &mut self.text, self.is_end);
            self.raw.copy_within(used..filled, 0);
            (self.pending, self.read, self.written) = (filled - used, 0, written);
        }
        let bytes = to.len().min(self.written - self.read);
        to[..bytes].copy_from_slice(&self.text[self.read..self.read + bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

/// Decodes a row as windows-1252, the Windows encoding of Western Europe and America.
pub(super) fn windows_1252(row: &[u8]) -> String {
    WINDOWS_1252.decode_without_bom_handling(row).0.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_any_encoding_becomes_utf_8() {
        let text = "<?xml version='1.0'?>Zürich, Königsallee\n";
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let with_mark: Vec<u8> =
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
        let declared = text.replace("'?>", "' encoding=\"ISO-8859-1\"?>");
        let latin = encoding_rs::WINDOWS_1252.encode(&declared).0.into_owned();
        for (bytes, expected) in [(utf_16, text), (with_mark, text), (latin, &*declared)] {
            let found = encoding(&bytes).unwrap();
            let mut read = String::new();
            utf8(io::Cursor::new(bytes), found).read_to_string(&mut read).unwrap();
            assert_eq!(read.trim_start_matches('\u{feff}'), expected);
        }
        assert_eq!(encoding(text.as_bytes()), None);
        assert_eq!(encoding(b"<?xml version='1.0' encoding='UTF-16'?><gpx/>"), None);
        assert_eq!(encoding("\u{feff}a,b".as_bytes()), None);
        assert_eq!(encoding(b"lat,lon\n1,2\n\xff"), None);
    }

    #[test]
    fn error_for_foreign_content_names_the_converter() {
        for (head, message) in [
            (&b"\x1f\x8b\x08\0"[..], "zcat x.gpx"),
            (b"PK\x03\x04", "unzip x.gpx"),
            (b"BZh91", "bzcat"),
            (b"\x0e\x10\x6c\x00\x01\x00\x00\x00.FIT", "-i garmin_fit"),
            (
                b"<?xml version=\"1.0\"?>\n<osm>",
                "gpsbabel -i osm -f x.gpx -o gpx -F x-converted.gpx",
            ),
            (b"$GPRMC,1", "-i nmea"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1", "save it as CSV"),
            (b"SQLite format 3\0", "database"),
            (b"<!DOCTYPE html>", "web page"),
            (b"PAR1\x15", "it is a Parquet file, which is not read: export it as CSV"),
            (b"%PDF-1.7", "a PDF document"),
        ] {
            let why = refuse_foreign(head, "x.gpx").unwrap_err().to_string();
            assert!(why.contains(message), "{why}");
        }
        for head in [&b"<gpx>"[..], b"lat,lon\n", b"{\"type\":\"FeatureCollection\"", b""] {
            assert!(refuse_foreign(head, "x").is_ok());
        }
        for json in [&b"{\"lat\":1}"[..], b"[\n {\"lat\":1}"] {
            assert!(refuse_json(json).is_err());
        }
        for (json, message) in [
            (&b"{\"lat\":1}"[..], "jq -c . x.json > x.geojsonl"),
            (b"[{\"lat\":1}]", "jq -c '.[]' x.json"),
        ] {
            let why = refuse_other_json(json, "x.json").unwrap_err().to_string();
            assert!(why.contains(message), "{why}");
        }
        for json in [
            &b"{\"type\":\"FeatureCollection\""[..],
            b"[{\"type\":\"Feature\"}]",
            b"{\"crs\":{},\"features\":[{\"geometry\":",
            b"{\"a long description\":\"",
            b"",
            b"x",
        ] {
            assert!(refuse_other_json(json, "x.json").is_ok());
        }
        for csv in [&b"lat,lon\n"[..], b"[lat],[lon]\n", b""] {
            assert!(refuse_json(csv).is_ok());
        }
    }
}
