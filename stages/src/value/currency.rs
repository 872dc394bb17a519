//! Currencies by their ISO 4217 code.

use std::fmt;

use super::Fault;

/// A currency of ISO 4217's list of active codes (list one) that amounts can be stated in.
///
/// The list is that of amendment 180, in force since 1 January 2026 (the Bulgarian lev has left it). Codes without a minor
/// unit are not taken, since no amount can be stated in them: precious metals, units of account, `XTS` for tests and `XXX`
/// for "no currency".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Currency(u8);

impl Currency {
    /// The currency of that code: three capital letters.
    ///
    /// # Errors
    /// If the list has no such code.
    pub fn parse(code: &str) -> Result<Currency, CurrencyFault> {
        let found = CODES.binary_search(&code).map_err(|_| CurrencyFault)?;
        Ok(Currency(u8::try_from(found).expect("the list has fewer than 256 codes")))
    }

    /// The code.
    pub fn code(self) -> &'static str {
        CODES[usize::from(self.0)]
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// The text is no active currency's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an active ISO 4217 code in capital letters")]
pub struct CurrencyFault;

impl Fault for CurrencyFault {
    fn kind(&self) -> &'static str {
        "unknown_currency"
    }
}

/// In alphabetical order, for the binary search.
#[rustfmt::skip]
const CODES: &[&str] = &[
    "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN",
    "BAM", "BBD", "BDT", "BHD", "BIF", "BMD", "BND", "BOB", "BOV", "BRL", "BSD", "BTN", "BWP", "BYN", "BZD",
    "CAD", "CDF", "CHE", "CHF", "CHW", "CLF", "CLP", "CNY", "COP", "COU", "CRC", "CUP", "CVE", "CZK",
    "DJF", "DKK", "DOP", "DZD", "EGP", "ERN", "ETB", "EUR", "FJD", "FKP",
    "GBP", "GEL", "GHS", "GIP", "GMD", "GNF", "GTQ", "GYD", "HKD", "HNL", "HTG", "HUF",
    "IDR", "ILS", "INR", "IQD", "IRR", "ISK", "JMD", "JOD", "JPY",
    "KES", "KGS", "KHR", "KMF", "KPW", "KRW", "KWD", "KYD", "KZT",
    "LAK", "LBP", "LKR", "LRD", "LSL", "LYD",
    "MAD", "MDL", "MGA", "MKD", "MMK", "MNT", "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MXV", "MYR", "MZN",
    "NAD", "NGN", "NIO", "NOK", "NPR", "NZD", "OMR",
    "PAB", "PEN", "PGK", "PHP", "PKR", "PLN", "PYG", "QAR", "RON", "RSD", "RUB", "RWF",
    "SAR", "SBD", "SCR", "SDG", "SEK", "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL",
    "THB", "TJS", "TMT", "TND", "TOP", "TRY", "TTD", "TWD", "TZS",
    "UAH", "UGX", "USD", "USN", "UYI", "UYU", "UYW", "UZS",
    "VED", "VES", "VND", "VUV", "WST", "XAD", "XAF", "XCD", "XCG", "XOF", "XPF",
    "YER", "ZAR", "ZMW", "ZWG",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_finds_each_of_its_codes() {
        assert!(CODES.is_sorted_by(|a, b| a < b));
        for code in CODES {
            assert_eq!(Currency::parse(code).map(Currency::code), Ok(*code));
        }
    }

    #[test]
    fn withdrawn_codes_and_other_spellings_are_refused() {
        for code in [
            "DEM", "HRK", "BGN", "ANG", "CUC", "SLL", "ZWL", "XXX", "XTS", "XAU", "eur", "EU",
            "EURO", " EUR", "",
        ] {
            assert_eq!(Currency::parse(code), Err(CurrencyFault), "for {code:?}");
        }
    }
}
