//! Lists names of the fields in languages other than English. Columns with these names are not
//! read, because some names have other meanings too; an error or a list of unread columns suggests
//! the field.

use super::names::{normalised, words};

/// Each field with its names in lower case.
const TRANSLATIONS: [(&str, &[&str]); 7] = [
    (
        "lat",
        &[
            "breite",
            "breitengrad",
            "geobreite",
            "latitud",
            "latitudine",
            "latitude",
            "breedte",
            "breedtegraad",
            "bredd",
            "breddgrad",
            "breddegrad",
            "leveysaste",
            "szerokość",
            "szerokosc",
            "šířka",
            "sirka",
            "szélesség",
            "enlem",
            "lintang",
            "широта",
            "纬度",
            "緯度",
        ],
    ),
    (
        "lng",
        &[
            "länge",
            "laenge",
            "längengrad",
            "laengengrad",
            "geolänge",
            "longitud",
            "longitudine",
            "lengte",
            "lengtegraad",
            "längd",
            "längdgrad",
            "lengdegrad",
            "længdegrad",
            "pituusaste",
            "długość",
            "dlugosc",
            "délka",
            "delka",
            "hosszúság",
            "boylam",
            "bujur",
            "долгота",
            "经度",
            "經度",
            "経度",
        ],
    ),
    (
        "ts",
        &[
            "zeit",
            "uhrzeit",
            "zeitpunkt",
            "zeitstempel",
            "datumzeit",
            "fecha",
            "fechahora",
            "hora",
            "horodatage",
            "heure",
            "dateheure",
            "datahora",
            "dataora",
            "ora",
            "tijd",
            "tijdstip",
            "tijdstempel",
            "datumtijd",
            "czas",
            "čas",
            "tidpunkt",
            "tidspunkt",
            "aika",
            "idő",
            "zaman",
            "waktu",
            "время",
            "时间",
            "時間",
            "日時",
        ],
    ),
    (
        "speed",
        &[
            "geschwindigkeit",
            "velocidad",
            "velocidade",
            "vitesse",
            "velocità",
            "velocita",
            "snelheid",
            "prędkość",
            "predkosc",
            "rychlost",
            "hastighet",
            "hastighed",
            "nopeus",
            "sebesség",
            "hız",
            "hiz",
            "kecepatan",
            "скорость",
            "速度",
        ],
    ),
    (
        "heading",
        &[
            "kurs",
            "richtung",
            "rumbo",
            "curso",
            "rumo",
            "rotta",
            "direzione",
            "koers",
            "richting",
            "kurz",
            "suunta",
            "курс",
        ],
    ),
    (
        "alt",
        &[
            "höhe",
            "hoehe",
            "meereshöhe",
            "altitud",
            "altura",
            "elevación",
            "hauteur",
            "altezza",
            "quota",
            "hoogte",
            "wysokość",
            "wysokosc",
            "výška",
            "vyska",
            "höjd",
            "højde",
            "høyde",
            "korkeus",
            "magasság",
            "высота",
            "海拔",
            "高度",
        ],
    ),
    (
        "acc",
        &[
            "genauigkeit",
            "precisión",
            "precision",
            "précision",
            "precisão",
            "precisione",
            "nauwkeurigheid",
            "dokładność",
            "noggrannhet",
            "точность",
        ],
    ),
];

/// Names of columns with a date, in lower case.
const DATES: [&str; 8] = ["datum", "fecha", "data", "dato", "päivä", "tarih", "дата", "日期"];

/// Returns the field that a name, or one of its words, means in another language.
pub(super) fn field_of(name: &str) -> Option<&'static str> {
    let (whole, words) = (normalised(name), words(name));
    let is_in = |names: &[&str]| {
        names.contains(&&*whole) || words.iter().any(|word| names.contains(&&**word))
    };
    TRANSLATIONS.iter().find(|(_, names)| is_in(names)).map(|(field, _)| *field)
}

/// Returns whether the name means a date in another language.
pub(super) fn is_date(name: &str) -> bool {
    DATES.contains(&&*normalised(name))
}
