//! Recognises the encoding of a CSV file that is not UTF-8, by the names of its columns. Such a
//! file is read as windows-1252, so its letters are wrong if it has another encoding.

use encoding_rs::{
    BIG5, EUC_KR, Encoding, GBK, IBM866, KOI8_R, SHIFT_JIS, WINDOWS_1250, WINDOWS_1251,
    WINDOWS_1252, WINDOWS_1253, WINDOWS_1254, WINDOWS_1256,
};

use super::names::translated_field;

/// Encodings, each with its name for `iconv`.
const ENCODINGS: [(&Encoding, &str); 11] = [
    (WINDOWS_1251, "CP1251"),
    (GBK, "GBK"),
    (SHIFT_JIS, "SHIFT_JIS"),
    (WINDOWS_1250, "CP1250"),
    (EUC_KR, "CP949"),
    (BIG5, "BIG5"),
    (KOI8_R, "KOI8-R"),
    (IBM866, "CP866"),
    (WINDOWS_1253, "CP1253"),
    (WINDOWS_1254, "CP1254"),
    (WINDOWS_1256, "CP1256"),
];

/// Returns advice on how to convert a file that has another encoding than windows-1252. `columns`:
/// the names of the columns, read as windows-1252. The advice names the first encoding in which a
/// column has the name of a field.
pub(super) fn advice(columns: &[String]) -> Option<String> {
    if columns.iter().all(|name| name.is_ascii() || translated_field(name).is_some()) {
        return None;
    }
    // Only letters outside ASCII tell encodings apart: `Latitude (°)` names a field in every
    // encoding.
    let is_named_by_ascii = |name: &str| {
        let ascii: String = name.chars().filter(char::is_ascii).collect();
        translated_field(&ascii).is_some()
    };
    let names_fields = |encoding: &'static Encoding| {
        let decoded = |name: &String| {
            let (bytes, _, has_unmappable) = WINDOWS_1252.encode(name);
            let text = encoding.decode_without_bom_handling_and_without_replacement(&bytes);
            text.filter(|_| !has_unmappable && !is_named_by_ascii(name)).map(String::from)
        };
        columns.iter().filter_map(decoded).any(|name| translated_field(&name).is_some())
    };
    let (_, name) = ENCODINGS.into_iter().find(|(encoding, _)| names_fields(encoding))?;
    Some(format!(
        "the file is not UTF-8, but seems to be {name}: convert it with iconv -f {name} -t UTF-8 \
         FILE | milepost import --format csv OPTIONS -"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_found_by_the_names_of_the_columns() {
        for (names, encoding, expected) in [
            ("Дата,Время,Широта,Долгота", WINDOWS_1251, "CP1251"),
            ("Дата,Время,Широта,Долгота", KOI8_R, "KOI8-R"),
            ("Дата,Время,Широта,Долгота", IBM866, "CP866"),
            ("时间,纬度,经度", GBK, "GBK"),
            ("日時,緯度,経度", SHIFT_JIS, "SHIFT_JIS"),
            ("Data,Czas,Szerokość,Długość", WINDOWS_1250, "CP1250"),
            ("Zeit,Breite,Länge", WINDOWS_1252, ""),
            ("Höhe,Prüfung", WINDOWS_1252, ""),
            ("time,été,naïve", WINDOWS_1252, ""),
            ("time,lat,lon", WINDOWS_1252, ""),
            ("when,Latitude (°),Longitude (°)", WINDOWS_1252, ""),
        ] {
            let (bytes, ..) = encoding.encode(names);
            let (shown, _) = WINDOWS_1252.decode_without_bom_handling(&bytes);
            let columns: Vec<String> = shown.split(',').map(str::to_owned).collect();
            let advice = advice(&columns).unwrap_or_default();
            let names_encoding = advice.contains(&format!("iconv -f {expected} "));
            assert_eq!(names_encoding, !expected.is_empty(), "{names}: {advice}");
        }
    }
}
