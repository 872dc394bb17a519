//! The import `contracts`: reference data, validated and upserted.

use gegendruck::{Pipeline, Reason};
use gegendruck_stages::value::Formats;

use super::{Contract, RawContract};
use crate::cli::OnConflict;
use crate::imports::{Context, Import};

/// Contracts, by their policy.
pub struct Contracts;

impl Import for Contracts {
    const NAME: &'static str = "contracts";
    const ABOUT: &'static str = "contracts, the reference data that claims are scored against";
    const RULES: u32 = 1;
    const ON_CONFLICT: OnConflict = OnConflict::Update;
    const NEEDS_CONTRACTS: bool = false;
    type Raw = RawContract;
    type Row = Contract;

    fn stages(source: Pipeline<RawContract>, context: &Context) -> Pipeline<Contract> {
        let formats = context.formats.clone();
        source.try_map("validate", move |raw| Contract::validate_as(raw, &formats))
    }

    fn faults(raw: &RawContract, formats: &Formats) -> Vec<Reason> {
        Contract::faults_as(raw, formats)
    }
}
