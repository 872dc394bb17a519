//! What reporters write: causes and descriptions.

use super::rng::{Rng, Subject};
use crate::contracts::Line;

/// A cause of losses and how reporters begin to tell it. No beginning needs quotes in CSV.
#[derive(Clone, Copy)]
pub(super) struct Cause {
    pub(super) name: &'static str,
    beginnings: &'static [&'static str],
}

const fn cause(name: &'static str, beginnings: &'static [&'static str]) -> Cause {
    Cause { name, beginnings }
}

/// The causes of each line, by its place in [`Line::ALL`].
pub(super) const CAUSES: [&[Cause]; Line::ALL.len()] = [
    &[
        cause(
            "fall",
            &["Auf nasser Treppe gestürzt", "Beim Fensterputzen von der Leiter gefallen"],
        ),
        cause("sport", &["Beim Fußball das Knie verdreht", "Skiunfall auf präparierter Piste"]),
    ],
    &[
        cause("storm", &["Sturm hat das Dach abgedeckt", "Baum auf die Garage gestürzt"]),
        cause(
            "hail",
            &["Hagel hat Dachfenster zerschlagen", "Photovoltaikanlage durch Hagel beschädigt"],
        ),
        cause("water", &["Rohrbruch im Keller", "Starkregen ist in das Untergeschoss gelaufen"]),
        cause("fire", &["Brand in der Küche", "Schwelbrand im Heizungsraum"]),
    ],
    &[
        cause(
            "burglary",
            &["Einbruch über die Terrassentür", "Wohnung während des Urlaubs aufgebrochen"],
        ),
        cause("water", &["Waschmaschine ausgelaufen", "Wasserschaden durch geplatzten Schlauch"]),
        cause(
            "lightning",
            &["Überspannung nach Blitzschlag", "Fernseher und Router nach Gewitter defekt"],
        ),
    ],
    &[
        cause(
            "employment",
            &["Kündigungsschutzklage gegen den Arbeitgeber", "Streit über ein Arbeitszeugnis"],
        ),
        cause(
            "tenancy",
            &["Vermieter behält die Kaution ein", "Streit über die Nebenkostenabrechnung"],
        ),
    ],
    &[
        cause(
            "property_damage",
            &["Rotwein auf fremdes Sofa verschüttet", "Brille des Nachbarn zerbrochen"],
        ),
        cause(
            "key_loss",
            &["Schlüssel der Schließanlage verloren", "Büroschlüssel nicht mehr auffindbar"],
        ),
        cause("dog", &["Hund hat Postboten gebissen", "Hund hat Fahrradfahrer zu Fall gebracht"]),
    ],
    &[
        cause(
            "collision",
            &[
                "Auffahrunfall an der Ampel",
                "Beim Ausparken Fahrzeug gestreift",
                "Vorfahrt missachtet",
            ],
        ),
        cause("glass", &["Steinschlag in der Frontscheibe", "Seitenscheibe eingeschlagen"]),
        cause("hail", &["Hagelschaden an Dach und Motorhaube"]),
        cause("marten", &["Marder hat Kühlschlauch zerbissen"]),
        cause("theft", &["Fahrzeug nachts entwendet", "Räder abmontiert"]),
        cause("deer", &["Wildunfall mit Reh"]),
    ],
    &[
        cause("luggage", &["Koffer auf dem Rückflug verloren", "Rucksack am Bahnhof gestohlen"]),
        cause("illness", &["Reise wegen Krankheit abgesagt", "Ärztliche Behandlung im Urlaub"]),
    ],
];

const PLACES: &[&str] = &[
    "Köln",
    "München",
    "Düsseldorf",
    "Zürich",
    "Würzburg",
    "Görlitz",
    "Saarbrücken",
    "Lübeck",
    "Berlin",
    "Hamburg",
    "Leipzig",
    "Dresden",
    "Frankfurt (Oder)",
    "Weißenfels",
    "Füssen",
    "Salzburg",
    "Bad Kötzting",
    "Rheda-Wiedenbrück",
];

const PLAIN_ENDS: &[&str] = &[
    ". Fotos liegen bei",
    ". Kostenvoranschlag folgt",
    ". Polizei war vor Ort",
    ". Rechnung der Werkstatt liegt vor",
    ". Keine Zeugen",
    ". Schaden wurde notdürftig gesichert",
    " – Gutachter bitte beauftragen",
    "",
];

const ENDS_WITH_COMMA: &[&str] = &[
    ", Stoßfänger und Kühler beschädigt",
    ", Zeugin: Frau Öztürk, Tel. folgt",
    ", Teppich, Sofa und Parkett müssen ersetzt werden",
    ", Aktenzeichen der Polizei folgt",
];

const ENDS_WITH_QUOTE: &[&str] = &[
    ". Der Fahrer sagte: \"Ich habe nichts gesehen\"",
    ". Fernseher 55\" und Lautsprecher betroffen",
    ". Laut Zeuge \"viel zu schnell\", Bremsspur vorhanden",
];

/// Two lines each.
const ENDS_OF_LINES: &[[&str; 2]] = &[
    ["; beschädigt sind:", "- Tür links, - Kotflügel, - Spiegel"],
    [". Bitte um Rückruf.", "Mit freundlichen Grüßen"],
    [", siehe Anlage.", "Zeuge: \"Es ging alles sehr schnell\""],
];

/// What the description of a row may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wording {
    /// Anything that reporters write, also nothing.
    Free,
    /// Some words that need no quotes.
    Plain,
}

/// Appends the description of a row whose loss has that cause. Breaks lines as the file ends them.
///
/// A description never begins with a quote, a comma or a line end: where a faulty row before it left a quote open, its own
/// opening quote is then followed by text, and costs no more than that faulty row.
pub(super) fn describe(
    out: &mut Vec<u8>,
    seed: u64,
    row: u64,
    line: Line,
    cause: &str,
    line_end: &[u8],
    wording: Wording,
) {
    let mut rng = Rng::of(seed, Subject::Description, row);
    let kind = if wording == Wording::Plain { 0 } else { rng.below(100) };
    if kind >= 97 {
        return;
    }
    let causes = CAUSES[line as usize];
    let cause = causes.iter().find(|candidate| candidate.name == cause).unwrap_or(&causes[0]);
    let mut push = |text: &str| out.extend_from_slice(text.as_bytes());
    push(rng.pick(cause.beginnings));
    push(" in ");
    push(rng.pick(PLACES));
    match kind {
        0..70 => push(rng.pick(PLAIN_ENDS)),
        70..88 => push(rng.pick(ENDS_WITH_COMMA)),
        88..94 => push(rng.pick(ENDS_WITH_QUOTE)),
        _ => {
            let [first, second] = rng.pick(ENDS_OF_LINES);
            push(first);
            out.extend_from_slice(line_end);
            out.extend_from_slice(second.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_need_no_quotes() {
        let beginnings =
            CAUSES.iter().flat_map(|causes| causes.iter()).flat_map(|cause| cause.beginnings);
        for text in beginnings.chain(PLACES).chain(PLAIN_ENDS) {
            assert!(!text.contains(['"', ',', '\n', '\r']), "{text}");
        }
    }
}
