//! Exit codes: what schedulers and operators script on.

use std::fmt;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Every record accounted for, none rejected.
    Complete = 0,
    /// Complete; some records were rejected, within the limit. Of an export: some rejects are not in it.
    Rejects = 1,
    /// Usage, configuration, columns, rights. Tables unchanged.
    Usage = 2,
    /// The reject limit was passed; the group that passed it is committed.
    Limit = 3,
    /// Database, service, disk or input failed.
    Failed = 4,
    /// A signal: settled, committed.
    Interrupted = 5,
    /// Another run holds this target, or has taken this one over.
    Held = 6,
    /// Not the input, target or pipeline that the checkpoint describes.
    Mismatch = 7,
    /// The accounting does not balance.
    Unbalanced = 8,
    /// The input is not there.
    NotThere = 9,
    /// The same content was already loaded under another name.
    Known = 10,
    /// An internal error.
    Internal = 70,
}

impl Exit {
    /// All of them, in the order of their codes.
    pub const ALL: [Exit; 12] = [
        Exit::Complete,
        Exit::Rejects,
        Exit::Usage,
        Exit::Limit,
        Exit::Failed,
        Exit::Interrupted,
        Exit::Held,
        Exit::Mismatch,
        Exit::Unbalanced,
        Exit::NotThere,
        Exit::Known,
        Exit::Internal,
    ];

    /// The code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The code as the ledger stores it, turned back.
    pub fn from_code(code: i64) -> Option<Exit> {
        Exit::ALL.into_iter().find(|exit| i64::from(exit.code()) == code)
    }

    /// All codes with what they mean, in one line: the help and the README have it.
    pub fn list() -> String {
        let one = |exit: Exit| format!("{} {}", exit.code(), exit.meaning());
        Exit::ALL.map(one).join(", ")
    }

    fn meaning(self) -> &'static str {
        match self {
            Exit::Complete => "complete",
            Exit::Rejects => "complete with rejects",
            Exit::Usage => "usage",
            Exit::Limit => "reject limit",
            Exit::Failed => "failed",
            Exit::Interrupted => "interrupted",
            Exit::Held => "held by another run",
            Exit::Mismatch => "not what the checkpoint describes",
            Exit::Unbalanced => "does not balance",
            Exit::NotThere => "no input",
            Exit::Known => "known content",
            Exit::Internal => "internal",
        }
    }

    /// The words at the head of a summary.
    pub fn words(self) -> &'static str {
        match self {
            Exit::Complete => "COMPLETE",
            Exit::Rejects => "COMPLETE WITH REJECTS",
            Exit::Usage => "NOT STARTED",
            Exit::Limit => "STOPPED AT THE REJECT LIMIT",
            Exit::Failed => "FAILED",
            Exit::Interrupted => "INTERRUPTED",
            Exit::Held => "HELD BY ANOTHER RUN",
            Exit::Mismatch => "REFUSED",
            Exit::Unbalanced => "DOES NOT BALANCE",
            Exit::NotThere => "NO INPUT",
            Exit::Known => "ALREADY LOADED",
            Exit::Internal => "INTERNAL ERROR",
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (exit {})", self.words(), self.code())
    }
}

/// Why the program ends without having done what it was asked for: one clear sentence, and the code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The code.
    pub exit: Exit,
    /// What, where, and what to do.
    pub message: String,
}

impl Refused {
    /// A refusal with this code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Refused {
        Refused { exit, message: message.into() }
    }

    /// A refusal for wrong usage (exit 2).
    pub fn usage(message: impl Into<String>) -> Refused {
        Refused::new(Exit::Usage, message)
    }

    /// A panic (exit 70).
    pub fn internal() -> Refused {
        let words = "internal error; what is committed stays, and the next run goes on behind it";
        Refused::new(Exit::Internal, words)
    }

    /// A failure of database, disk or input (exit 4).
    pub fn failed(message: impl Into<String>) -> Refused {
        Refused::new(Exit::Failed, message)
    }
}

/// A word of a command line, quoted if a shell would take it apart.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_lists_the_codes_that_there_are() {
        let readme = include_str!("../../README.md");
        let line = format!("Exit codes: {}.", Exit::list());
        assert!(readme.contains(&line), "the README has not the line\n{line}");
    }

    #[test]
    fn every_code_turns_back_into_its_exit() {
        for exit in Exit::ALL {
            assert_eq!(Exit::from_code(exit.code().into()), Some(exit));
        }
    }
}
