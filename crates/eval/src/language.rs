//! Recognises the language of a reply by its most frequent words. Good enough to notice that a model fell back to another
//! language; not meant to tell related dialects apart.

use crate::limits::LANGUAGE_WORDS_MIN;

/// The languages that are recognised, with frequent words that the others hardly use.
const LANGUAGES: [(DetectableLanguage, &str, &[&str]); 7] = [
    (
        DetectableLanguage::English,
        "en",
        &["the", "and", "you", "is", "to", "of", "your", "that", "this", "with", "for", "are", "it", "what", "have"],
    ),
    (
        DetectableLanguage::German,
        "de",
        &["der", "die", "und", "ist", "nicht", "sie", "das", "ein", "eine", "mit", "zu", "ich", "für", "auf", "ihr"],
    ),
    (
        DetectableLanguage::French,
        "fr",
        &["le", "la", "les", "et", "est", "vous", "des", "une", "pour", "dans", "que", "votre", "pas", "avec", "il"],
    ),
    (
        DetectableLanguage::Spanish,
        "es",
        &["el", "los", "las", "y", "es", "que", "una", "para", "con", "por", "su", "más", "como", "tu", "del"],
    ),
    (
        DetectableLanguage::Italian,
        "it",
        &["il", "gli", "di", "è", "che", "una", "per", "con", "non", "sono", "più", "della", "come", "anche", "tuo"],
    ),
    (
        DetectableLanguage::Portuguese,
        "pt",
        &["o", "os", "as", "e", "é", "que", "uma", "para", "com", "não", "você", "mais", "seu", "como", "em"],
    ),
    (
        DetectableLanguage::Dutch,
        "nl",
        &["de", "het", "een", "en", "is", "van", "je", "niet", "dat", "voor", "met", "op", "zijn", "wat", "ook"],
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectableLanguage {
    English,
    German,
    French,
    Spanish,
    Italian,
    Portuguese,
    Dutch,
}

impl DetectableLanguage {
    pub(crate) fn from_language_code(code: &str) -> Option<Self> {
        LANGUAGES.iter().find(|(_, known, _)| *known == code).map(|(language, _, _)| *language)
    }

    pub(crate) fn language_codes() -> Vec<&'static str> {
        LANGUAGES.iter().map(|(_, code, _)| *code).collect()
    }

    /// Returns whether a text may be in this language: no other language has clearly more of its frequent words.
    pub(crate) fn may_be_language_of(self, text: &str) -> bool {
        let words: Vec<String> = prose_words(text);
        if words.len() < LANGUAGE_WORDS_MIN {
            return true;
        }
        let count = |list: &[&str]| words.iter().filter(|word| list.contains(&word.as_str())).count();
        let own = LANGUAGES.iter().find(|(language, _, _)| *language == self).map_or(0, |(_, _, list)| count(list));
        let best = LANGUAGES.iter().map(|(_, _, list)| count(list)).max().unwrap_or(0);
        own * 4 >= best * 3
    }
}

/// Returns the words of a text in lower case, without code blocks.
fn prose_words(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut words = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let split = line.split(|letter: char| !letter.is_alphabetic());
            words.extend(split.filter(|word| !word.is_empty()).map(str::to_lowercase));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_told_apart() {
        let samples = [
            ("en", "You should first look at what the flat costs and compare it with the rent that you pay."),
            ("de", "Sie sollten zuerst ansehen, was die Wohnung kostet, und das mit der Miete vergleichen."),
            ("fr", "Vous devriez regarder le prix de la maison et le comparer avec le loyer que vous payez."),
            ("es", "Primero compara el precio de la casa con el alquiler que pagas por los años que vienen."),
            ("it", "Prima confronta il prezzo della casa con quello che paghi di affitto, anche per gli anni."),
        ];
        for (code, _) in samples {
            let language = DetectableLanguage::from_language_code(code).expect("known");
            for (other, text) in samples {
                assert_eq!(language.may_be_language_of(text), code == other, "{code} and {other}");
            }
        }
    }

    #[test]
    fn short_texts_and_code_are_not_judged() {
        assert!(DetectableLanguage::German.may_be_language_of("OK."));
        assert!(
            DetectableLanguage::German
                .may_be_language_of("```\nthe and you is to of your that this with\n```\nSo geht es.")
        );
    }
}
