//! Inputs and faults that an import must survive, by their numbers, each through the program and with every number of workers
//! and records in a transaction that could matter.

mod databases;
mod records;
mod restart;
