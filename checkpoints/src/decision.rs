//! Decisions: what a look-up is asked, and what it answers.

use std::path::PathBuf;

use gegendruck::{Lines, Position};
use serde::{Deserialize, Serialize};

use crate::{Fingerprint, InputFile, RunInfo};

/// What a run does with its inputs. Workers, buffers, batch sizes, rates and the binary are no part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineIdentity {
    /// The pipeline's name.
    pub pipeline: String,
    /// Version of its rules.
    pub rules: u32,
    /// The table that it writes.
    pub table: String,
    /// How the inputs are to be read.
    pub dialect: String,
    /// Which column goes where.
    pub mapping: String,
    /// What becomes of rows whose key exists.
    pub conflict: String,
}

impl PipelineIdentity {
    /// True if both write the same table: to SQL, names that differ in case are one.
    pub fn has_table_of(&self, other: &PipelineIdentity) -> bool {
        self.table.eq_ignore_ascii_case(&other.table)
    }
}

/// What the operator has accepted beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// Inputs that have grown: the added records are taken.
    pub grown: bool,
    /// Other rules, dialect, mapping or conflict mode: they apply to the rest of the run.
    pub changed: bool,
}

/// Where an input of a run is gone on with, or begun.
#[derive(Clone, Debug)]
pub struct ResumePoint {
    /// Its index among the inputs of the run.
    pub input: u32,
    /// The file.
    pub file: InputFile,
    /// Where this run began in it.
    pub start: Position,
    /// The first byte that is not committed.
    pub at: Position,
    /// What else was counted between the two.
    pub lines: Lines,
    /// All bytes before it.
    pub fingerprint: Fingerprint,
    /// True if nothing is left of it.
    pub complete: bool,
}

impl ResumePoint {
    /// An input that is read from its first byte on.
    pub fn begin(input: u32, file: InputFile) -> ResumePoint {
        let at = Position { input, byte: 0, record: 1, line: 1 };
        let fingerprint = Fingerprint::new();
        ResumePoint {
            input,
            file,
            start: at,
            at,
            lines: Lines::default(),
            fingerprint,
            complete: false,
        }
    }

    /// True if it is read from its first byte on, header included.
    pub fn is_begin(&self) -> bool {
        self.at.byte == 0
    }
}

/// An input that was imported before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The input.
    pub path: PathBuf,
    /// The run that imported it.
    pub run: String,
    /// That run's exit code.
    pub exit_code: i32,
    /// The path that it had then, if that was another one.
    pub other_path: Option<PathBuf>,
    /// How that run's settings differ from today's; empty if they do not.
    pub differences: Vec<String>,
}

/// An unfinished run to go on with.
#[derive(Clone, Debug)]
pub struct GoOn {
    /// The run.
    pub run: String,
    /// What is known of it.
    pub info: RunInfo,
    /// What it does from now on.
    pub pipeline: PipelineIdentity,
    /// Its inputs that were given, those that are complete too; then those that are new to it.
    pub inputs: Vec<ResumePoint>,
    /// Inputs that other runs have imported.
    pub skipped: Vec<Done>,
    /// What the operator accepted, in whole sentences; they go to the audit trail.
    pub accepted: Vec<String>,
}

/// What to do with the inputs.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Begin a run with these inputs.
    New {
        /// The inputs of the new run.
        inputs: Vec<ResumePoint>,
        /// Inputs that other runs have imported.
        skipped: Vec<Done>,
    },
    /// Go on with a run.
    GoOn(Box<GoOn>),
    /// All inputs were imported.
    AlreadyDone(Vec<Done>),
}
