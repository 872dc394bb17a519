//! Values of flags as people write them: sizes, times, stages' names with a number.

use std::time::Duration;

use gegendruck::{Buffer, Bytes, Records};

use super::QuoteArg;
use crate::generate::{FaultKind, FaultKindError, Share, ShareError};

pub(super) fn reject_id(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "give a number, as `rejects list` prints it".into())
}

pub(super) fn byte(text: &str) -> Result<u8, String> {
    match text {
        "tab" | "\\t" => Ok(b'\t'),
        _ if text.len() == 1 => Ok(text.as_bytes()[0]),
        _ => Err("give one ASCII character, or `tab`".into()),
    }
}

pub(super) fn quote(text: &str) -> Result<QuoteArg, String> {
    if text == "none" { Ok(QuoteArg(None)) } else { byte(text).map(|byte| QuoteArg(Some(byte))) }
}

/// `64M`, `8K`, `1G` or bytes.
pub(super) fn size(text: &str) -> Result<Bytes, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("give a size such as 64M, 8K or a number of bytes".into()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "give a size such as 64M, 8K or a number of bytes".to_string())?;
    match number.checked_mul(unit) {
        Some(0) | None => Err("the size must be between 1 byte and 16 EiB".into()),
        Some(bytes) => Ok(Bytes(bytes)),
    }
}

/// `500ms`, `2s`, `15m`, `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("give a time with its unit, such as 500ms, 2s, 15m or 1h".into()),
    };
    let number: f64 =
        digits.parse().map_err(|_| "give a time such as 500ms, 2s, 15m or 1h".to_string())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "the time is out of range".into())
}

fn split_name(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_string(), value))
        }
        _ => Err("give the stage's name and a value, such as score=4".into()),
    }
}

pub(super) fn named<T: std::str::FromStr>(text: &str) -> Result<(String, T), String> {
    let (name, value) = split_name(text)?;
    value.parse().map(|value| (name, value)).map_err(|_| format!("\"{value}\" is no whole number"))
}

pub(super) fn buffer(text: &str) -> Result<(String, Buffer), String> {
    /// Most records that a buffer given as a time may grow to.
    const MOST: Records = Records(100_000);
    let (name, value) = split_name(text)?;
    if let Ok(records) = value.parse() {
        return Ok((name, Buffer::Records(Records(records))));
    }
    duration(value).map(|time| (name, Buffer::Time { time, most: MOST }))
}

pub(super) fn rate(text: &str) -> Result<(String, f64), String> {
    let (name, value) = split_name(text)?;
    let number = value.trim_end_matches("/s");
    match number.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok((name, rate)),
        _ => Err("give a rate above zero, such as score=200/s".into()),
    }
}

pub(super) fn fault(text: &str) -> Result<(FaultKind, Share), String> {
    let (kind, share) = split_name(text)
        .map_err(|_| "give a kind and a share, such as nul_byte=0.5%".to_string())?;
    let kind = kind.parse().map_err(|error: FaultKindError| error.to_string())?;
    Ok((kind, share.parse().map_err(|error: ShareError| error.to_string())?))
}
