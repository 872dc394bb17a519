//! Who runs: machine, process, user, version.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The process that holds a lock or makes an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The machine's name.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Who runs it: the user's name, or number.
    pub user: String,
    /// The version of the binary.
    pub version: String,
}

impl Process {
    /// This process, of a binary of that version.
    pub fn this(version: impl Into<String>) -> Process {
        Process { host: host(), pid: std::process::id(), user: user(), version: version.into() }
    }
}

fn host() -> String {
    let from = |path| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    from("/proc/sys/kernel/hostname")
        .or_else(|| from("/etc/hostname"))
        .or_else(|| std::env::var("HOSTNAME").ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".into())
}

fn user() -> String {
    let named = |name| std::env::var(name).ok().filter(|name| !name.is_empty());
    named("USER")
        .or_else(|| named("LOGNAME"))
        .or_else(|| fs::metadata("/proc/self").ok().map(|process| format!("uid {}", process.uid())))
        .unwrap_or_else(|| "unknown".into())
}
