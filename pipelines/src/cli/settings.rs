//! Where settings come from: the command line, the environment, and the file that `--config` names.
//!
//! ```text
//! file --> arguments, but for those that the environment sets --+
//! command line ------------------------------------------------+--> one parser --> command, and where each setting came from
//! environment --------------------------------------------------+
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use super::Cli;
use crate::exit::Refused;

/// A switch in the environment, in any of the usual words: 1, yes, true, on. One without a word is not set.
fn switch(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "t" | "true" | "on" => Ok(true),
        "" | "0" | "n" | "no" | "f" | "false" | "off" => Ok(false),
        _ => Err("say 1 or 0, yes or no, true or false, on or off".into()),
    }
}

/// All commands and their flags.
pub(crate) fn definition() -> clap::Command {
    let is_switch = |arg: &clap::Arg| matches!(arg.get_action(), clap::ArgAction::SetTrue);
    Cli::command().mut_subcommands(|sub| {
        sub.mut_args(|arg| if is_switch(&arg) { arg.value_parser(switch) } else { arg })
    })
}

/// Parses the command line, with the settings file that it names. Help and version are printed by the parser itself.
///
/// # Errors
/// What the parser or the file has to say; the caller prints it and exits with 2.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, Settings), ParseError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    unknown_environment()?;
    let matches = definition().try_get_matches_from(&arguments)?;
    let config = matches
        .subcommand()
        .and_then(|(_, sub)| sub.try_get_one::<PathBuf>("config").ok().flatten().cloned());
    let mut from_file = Vec::new();
    let matches = match config {
        None => matches,
        Some(path) => {
            let name = matches.subcommand_name().expect("a command is required").to_string();
            let place = arguments.iter().position(|argument| *argument == *name).unwrap_or(1);
            let mut all = arguments[..=place].to_vec();
            from_file = settings(&path, &name)?;
            all.extend(from_file.iter().cloned());
            all.extend_from_slice(&arguments[place + 1..]);
            definition().try_get_matches_from(all)?
        }
    };
    let settings = Settings::of(&matches, &arguments, &from_file);
    Ok((Cli::from_arg_matches(&matches)?, settings))
}

/// Every setting of the command, and where it came from.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<String, Setting>);

/// One setting.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Setting {
    /// Its value, as written.
    pub value: String,
    /// `flag`, `environment`, `file` or `default`.
    pub from: &'static str,
}

impl Settings {
    /// The settings but for those of these names.
    pub(crate) fn without(&self, names: &[&str]) -> Settings {
        let mut rest = self.clone();
        rest.0.retain(|name, _| !names.contains(&name.as_str()));
        rest
    }

    fn of(matches: &clap::ArgMatches, arguments: &[OsString], from_file: &[OsString]) -> Settings {
        let Some((name, sub)) = matches.subcommand() else { return Settings::default() };
        let command = definition();
        let Some(definition) = command.find_subcommand(name) else { return Settings::default() };
        let mut all = BTreeMap::new();
        for argument in definition.get_arguments() {
            let (Some(long), id) = (argument.get_long(), argument.get_id().as_str()) else {
                continue;
            };
            let Ok(Some(raw)) = sub.try_get_raw(id) else { continue };
            let value = if argument.get_action().takes_values() {
                raw.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
            } else {
                sub.get_flag(id).to_string()
            };
            let named = |all: &[OsString]| {
                let flag = format!("--{long}");
                let is = |text: &OsString| {
                    let text = text.to_string_lossy();
                    text == flag.as_str() || text.starts_with(&format!("{flag}="))
                };
                all.iter().any(is)
            };
            let from = match sub.value_source(id) {
                Some(ValueSource::EnvVariable) => "environment",
                Some(ValueSource::CommandLine) if !named(arguments) && named(from_file) => "file",
                Some(ValueSource::CommandLine) => "flag",
                _ => "default",
            };
            all.insert(long.to_string(), Setting { value, from });
        }
        Settings(all)
    }
}

/// Why the command line cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The parser's words; also help and version.
    #[error("{0}")]
    Clap(#[from] clap::Error),
    /// The settings file or the environment.
    #[error("{0}")]
    Settings(#[from] Refused),
}

/// The settings of a file as arguments.
fn settings(path: &std::path::Path, command: &str) -> Result<Vec<OsString>, Refused> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Refused::usage(format!("{shown}: the settings file cannot be read: {error}"))
    })?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
        Refused::usage(format!("{shown}: line {line}: {}", error.message()))
    })?;
    let definition = definition();
    let sub = definition.find_subcommand(command).expect("the command was parsed");
    let mut arguments = Vec::new();
    for (key, value) in table {
        if key == "config" {
            return Err(Refused::usage(format!(
                "{shown}: a settings file cannot name another one"
            )));
        }
        let named = |argument: &&clap::Arg| argument.get_long() == Some(key.as_str());
        let Some(argument) = sub.get_arguments().find(named) else {
            // One file for all commands, as one environment.
            if definition.get_subcommands().any(|other| other.get_arguments().any(|a| named(&a))) {
                continue;
            }
            let known: Vec<_> = sub.get_arguments().filter_map(clap::Arg::get_long).collect();
            let hint = nearest(&key, &known)
                .map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
            return Err(Refused::usage(format!(
                "{shown}: there is no setting \"{key}\" for {command}{hint}"
            )));
        };
        if argument.get_env().is_some_and(|name| std::env::var_os(name).is_some()) {
            continue;
        }
        add_setting(&mut arguments, argument, &key, &value)
            .map_err(|wrong| Refused::usage(format!("{shown}: \"{key}\" {wrong}")))?;
    }
    Ok(arguments)
}

fn add_setting(
    arguments: &mut Vec<OsString>,
    argument: &clap::Arg,
    key: &str,
    value: &toml::Value,
) -> Result<(), String> {
    let flag = !argument.get_action().takes_values();
    match value {
        toml::Value::Boolean(true) if flag => arguments.push(format!("--{key}").into()),
        toml::Value::Boolean(false) if flag => {}
        _ if flag => return Err("is a switch: write true or false".into()),
        toml::Value::Array(values) => {
            for value in values {
                add_setting(arguments, argument, key, value)?;
            }
        }
        toml::Value::Table(values) => {
            for (stage, value) in values {
                arguments.push(format!("--{key}={stage}={}", plain(value)?).into());
            }
        }
        value => arguments.push(format!("--{key}={}", plain(value)?).into()),
    }
    Ok(())
}

fn plain(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Datetime(when) => Ok(when.to_string()),
        _ => Err("takes a text or a number".into()),
    }
}

/// The known name that differs least, if any is near.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &str| {
        let (a, b): (Vec<_>, Vec<_>) = (name.chars().collect(), other.chars().collect());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, left) in a.iter().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, right) in b.iter().enumerate() {
                let cost = diagonal + usize::from(left != right);
                diagonal = row[j + 1];
                row[j + 1] = cost.min(row[j] + 1).min(row[j + 1] + 1);
            }
        }
        row[b.len()]
    };
    known.iter().copied().min_by_key(|other| distance(other)).filter(|other| distance(other) <= 3)
}

/// A variable that looks like a setting and is none is refused, as a flag would be.
fn unknown_environment() -> Result<(), Refused> {
    const PREFIX: &str = "NIGHTLY_IMPORT_";
    let command = definition();
    let mut known: Vec<String> = Vec::new();
    for sub in command.get_subcommands() {
        for sub in std::iter::once(sub).chain(sub.get_subcommands()) {
            known.extend(
                sub.get_arguments()
                    .filter_map(|a| a.get_env())
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && !known.contains(&name) {
            let names: Vec<_> = known.iter().map(String::as_str).collect();
            let hint = nearest(&name, &names)
                .map_or(String::new(), |near| format!("; did you mean {near}?"));
            return Err(Refused::usage(format!("there is no setting {name} (environment){hint}")));
        }
    }
    Ok(())
}
