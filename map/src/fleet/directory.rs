//! Names and groups of drivers, from the table `drivers` and from attributes. Pure.
//!
//! Guarantee: at most 65,534 groups; a driver in any further group keeps its name and has no group.

use std::collections::HashMap;

/// Number that stands for "no group".
pub const NO_GROUP: u16 = 0;

#[derive(Debug, Default)]
struct Card {
    name: String,
    /// `name` after [`fold`], for a search that ignores case and accents.
    folded: String,
    group: u16,
}

/// Names and groups of the listed drivers; see the module. Drivers that are not listed use no
/// memory.
#[derive(Debug)]
pub struct Directory {
    cards: HashMap<Box<str>, Card>,
    /// Groups' names by number; the first one is "no group".
    groups: Vec<String>,
}

impl Default for Directory {
    fn default() -> Self {
        Self { cards: HashMap::new(), groups: vec![String::new()] }
    }
}

impl Directory {
    /// Builds a directory from rows of (driver id, name, group). If an id has several rows, the
    /// last name and the last group that are not empty count.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = (String, String, String)>) -> Self {
        let mut directory = Self::default();
        let mut numbers: HashMap<String, u16> = HashMap::new();
        for (id, name, group) in rows {
            let card = directory.cards.entry(id.into_boxed_str()).or_default();
            if !name.is_empty() {
                card.folded = fold(&name);
                card.name = name;
            }
            if group.is_empty() {
                continue;
            }
            let next_number = u16::try_from(directory.groups.len())
                .ok()
                .filter(|next_number| *next_number < u16::MAX);
            card.group = numbers.get(&group).copied().or(next_number).unwrap_or(NO_GROUP);
            if next_number == Some(card.group) {
                directory.groups.push(group.clone());
                numbers.insert(group, card.group);
            }
        }
        directory
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cards.is_empty()
    }

    /// Returns a driver's name; empty: it has none.
    #[must_use]
    pub fn name(&self, id: &str) -> &str {
        self.cards.get(id).map_or("", |card| &card.name)
    }

    /// Returns the number of a driver's group.
    #[must_use]
    pub fn group(&self, id: &[u8]) -> u16 {
        let id = str::from_utf8(id).unwrap_or_default();
        self.cards.get(id).map_or(NO_GROUP, |card| card.group)
    }

    /// Returns the name of a group; empty: no group.
    #[must_use]
    pub fn group_name(&self, group: u16) -> &str {
        self.groups.get(usize::from(group)).map_or("", String::as_str)
    }

    /// Returns whether any driver is in this group.
    #[must_use]
    pub fn has_group(&self, name: &str) -> bool {
        self.groups.iter().skip(1).any(|group| group == name)
    }

    /// Returns whether any driver has a group.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.groups.len() > 1
    }

    /// Returns the names of all groups, in alphabetical order.
    #[must_use]
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = self.groups.iter().skip(1).map(String::as_str).collect();
        groups.sort_unstable();
        groups
    }

    /// Returns one flag per group number: whether `accepts` returns true for the group's name. The
    /// flag of "no group" is false.
    #[must_use]
    pub fn flags<'a>(&self, accepts: impl Fn(&str) -> bool + 'a) -> Vec<bool> {
        let named = self.groups.iter().enumerate();
        named.map(|(number, name)| number != usize::from(NO_GROUP) && accepts(name)).collect()
    }

    /// Returns whether a driver's name contains a search text. `folded`: the text after [`fold`].
    #[must_use]
    pub fn name_contains(&self, id: &str, folded: &str) -> bool {
        self.cards.get(id).is_some_and(|card| card.folded.contains(folded))
    }
}

/// Returns `text` in lower case and without accents, so that "polak" finds "Poláková", and
/// "strasse" finds "Straße". Unicode does not split every letter into a base letter and an accent;
/// such a letter is replaced by the letters that people type instead.
#[must_use]
pub fn fold(text: &str) -> String {
    let split = icu_normalizer::DecomposingNormalizerBorrowed::new_nfkd()
        .normalize(&text.to_lowercase())
        .into_owned();
    let mut folded = String::with_capacity(split.len());
    for letter in split.chars() {
        match letter {
            '\u{300}'..='\u{36f}' => {}
            'ß' => folded.push_str("ss"),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'þ' => folded.push_str("th"),
            'ł' => folded.push('l'),
            'ø' => folded.push('o'),
            'đ' | 'ð' => folded.push('d'),
            'ħ' => folded.push('h'),
            'ı' => folded.push('i'),
            _ => folded.push(letter),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, name: &str, group: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), group.to_owned())
    }

    #[test]
    fn later_row_overrides_only_the_values_that_it_has() {
        let directory = Directory::new([
            row("d1", "Anna", "north"),
            row("d2", "Ben", ""),
            row("d1", "", "south"),
        ]);
        assert_eq!(
            (directory.name("d1"), directory.group_name(directory.group(b"d1"))),
            ("Anna", "south")
        );
        assert_eq!((directory.name("d2"), directory.group(b"d2")), ("Ben", NO_GROUP));
        assert_eq!((directory.name("d3"), directory.group(b"d3")), ("", NO_GROUP));
        assert_eq!(directory.groups(), ["north", "south"]);
        assert_eq!(directory.flags(|name| name == "south"), [false, false, true]);
    }

    #[test]
    fn names_match_anywhere_in_any_case() {
        let directory = Directory::new([row("d1", "Anna MÜLLER", "")]);
        let finds = |text: &str| directory.name_contains("d1", &fold(text));
        assert!(finds("müll") && finds("MULL") && finds("mu\u{308}ll") && !finds("x"));
    }

    #[test]
    fn names_match_with_and_without_accents() {
        for (name, typed) in [
            ("Tereza Poláková", "polak"),
            ("Ondřej Beneš", "ondrej benes"),
            ("Łukasz Wójcik", "lukasz wojc"),
            ("Søren Åkesson", "soren ak"),
            ("Jörg Weißmann", "weissm"),
            ("Nguyễn Văn Đạt", "nguyen van dat"),
            ("İbrahim Işık", "isik"),
            ("Muller", "Müller"),
            ("Пётр Андреев", "петр"),
            ("田中 太郎", "田中"),
        ] {
            let directory = Directory::new([row("d1", name, "")]);
            assert!(directory.name_contains("d1", &fold(typed)), "{typed} finds {name}");
        }
        let directory = Directory::new([row("d1", "Petra Müller", "")]);
        assert!(!directory.name_contains("d1", &fold("Mueller")));
    }
}
