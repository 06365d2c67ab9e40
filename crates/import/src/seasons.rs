//! Recognises names and values that state summer time or winter time, which only local times have.

use super::names::words;

/// Names of flags of summer time or of winter time.
pub(super) const FLAGS_OF_SUMMER_TIME: [&str; 22] = [
    "dst",
    "isdst",
    "summertime",
    "daylightsaving",
    "daylightsavings",
    "daylightsavingtime",
    "daylightsavingstime",
    "sommerzeit",
    "winterzeit",
    "heuredété",
    "heuredete",
    "heuredhiver",
    "horadeverano",
    "horariodeverano",
    "horáriodeverão",
    "horariodeverao",
    "oralegale",
    "zomertijd",
    "sommartid",
    "czasletni",
    "летнеевремя",
    "夏令时",
];
/// Words for summer, or for summer time.
const SUMMER: [&str; 12] = [
    "summer",
    "sommer",
    "sommerzeit",
    "été",
    "ete",
    "verano",
    "verão",
    "estate",
    "zomer",
    "zomertijd",
    "лето",
    "летнее",
];
/// Words for winter, or for standard time.
const WINTER: [&str; 11] = [
    "winter",
    "winterzeit",
    "hiver",
    "invierno",
    "inverno",
    "wintertijd",
    "standard",
    "normalzeit",
    "normal",
    "зима",
    "зимнее",
];
/// Words for a clock in the name of a column of seasons.
pub(super) const CLOCK_WORDS: [&str; 16] = [
    "time",
    "clock",
    "heure",
    "hora",
    "ora",
    "zeit",
    "tijd",
    "время",
    "sommerzeit",
    "winterzeit",
    "normalzeit",
    "zomertijd",
    "wintertijd",
    "horario",
    "horário",
    "orario",
];

/// Returns whether a name has words for both seasons: `Heure d'hiver/été`.
pub(super) fn names_both_seasons(words: &[String]) -> bool {
    let has = |season: &[&str]| words.iter().any(|word| season.contains(&&**word));
    has(&SUMMER) && has(&WINTER)
}

/// Returns whether all values have a word for a season. Returns `false` without values.
pub(super) fn has_only_seasons<'v>(mut values: impl Iterator<Item = &'v str>) -> bool {
    let is_season = |value: &str| {
        let words = words(value);
        let is_in = |word: &String| SUMMER.contains(&&**word) || WINTER.contains(&&**word);
        words.iter().any(is_in)
    };
    values.next().is_some_and(is_season) && values.all(is_season)
}
