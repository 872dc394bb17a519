//! `nightly-import`.

fn main() -> std::process::ExitCode {
    gegendruck_pipelines::program::main(std::env::args_os()).code().into()
}
