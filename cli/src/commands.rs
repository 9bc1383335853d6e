//! What each command does.

use std::io::{self, ErrorKind, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use springtide::{
    backend::{MooncakeConfig, Protocol},
    runtime::TokioClock,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    signal::unix::{SignalKind, signal},
};

use crate::{
    args::{BenchArgs, Cli, Command, DoctorArgs, HwArgs, HwStore, StoreKind},
    bench::{self, Plan, Report},
    config,
    doctor::{self, Machine},
    failure::{Failure, tell},
    hw::{self, Stores},
    plan,
    stores::{Disk, Fake, Interpreter, Mooncake, Python, Target},
};

/// Does what the command line says. Returns the exit code.
pub(crate) fn execute<I: Interpreter>(cli: Cli, interpreter: &I) -> u8 {
    let done = match cli.command {
        Command::Bench(arguments) => measure(&arguments, interpreter),
        Command::Config(command) => config::execute(&command).and_then(|text| print(&text)),
        Command::Doctor(arguments) => examine(&arguments),
        Command::Hw(arguments) => climb(&arguments, interpreter),
        Command::Plan(arguments) => plan::execute(&arguments).and_then(|text| print(&text)),
    };
    match done {
        Ok(()) => 0,
        Err(failure) => {
            tell(&failure);
            failure.exit_code()
        }
    }
}

fn examine(arguments: &DoctorArgs) -> Result<(), Failure> {
    let settings = config::read(arguments.config.as_deref())?;
    let report = doctor::examine(&Machine::this(), &settings, arguments.role);
    print(&if arguments.json { report.to_json() } else { report.lines() })?;
    match report.problems() {
        0 => Ok(()),
        1 => Err(Failure::failed("1 problem: an instance with these settings will not work here")),
        many => Err(Failure::failed(format!(
            "{many} problems: an instance with these settings will not work here"
        ))),
    }
}

fn measure<I: Interpreter>(arguments: &BenchArgs, interpreter: &I) -> Result<(), Failure> {
    let plan = Plan::new(arguments)?;
    let runtime = started()?;
    let handle = runtime.handle();
    let report = runtime.block_on(async {
        match arguments.store {
            StoreKind::Disk => {
                let disk = Disk::open(arguments, plan.stored_bytes_max())?;
                // Its files are removed whatever ends it.
                let report = tokio::select! {
                    report = measured(&disk, &plan, handle) => report,
                    failure = ended() => Err(failure),
                };
                disk.remove(TokioClock::new()).await;
                report
            }
            StoreKind::Fake => {
                let fake = Fake::open(arguments, plan.stored_bytes_max(), handle).await?;
                measured(&fake, &plan, handle).await
            }
            StoreKind::Mooncake => measured(&Mooncake::new(arguments), &plan, handle).await,
            StoreKind::Python => {
                measured(&Python::new(arguments, interpreter), &plan, handle).await
            }
        }
    });
    // What a store has started may never end.
    runtime.shutdown_background();
    let report = report?;
    print(&if arguments.json { report.to_json() } else { report.table() })
}

fn started() -> Result<Runtime, Failure> {
    let cannot = |error| Failure::failed(format!("cannot start a runtime: {error}"));
    Builder::new_multi_thread().enable_all().build().map_err(cannot)
}

fn climb<I: Interpreter>(arguments: &HwArgs, interpreter: &I) -> Result<(), Failure> {
    let runtime = started()?;
    let config = |protocol| {
        let master = arguments.master.as_deref()?;
        Some(MooncakeConfig {
            protocol,
            device: arguments.device.clone(),
            segment_bytes: arguments.segment,
            library: arguments.library.clone(),
            ..MooncakeConfig::new(master, &arguments.hostname)
        })
    };
    let (tcp, rdma) = (config(Protocol::Tcp), config(Protocol::Rdma));
    let (machine, handle, clock) = (Machine::this(), runtime.handle(), TokioClock::new());
    let report = runtime.block_on(async {
        match arguments.store {
            HwStore::Mooncake => {
                let stores =
                    Stores { tcp: tcp.map(Mooncake::with), rdma: rdma.map(Mooncake::with) };
                hw::climb(arguments, &machine, &stores, handle, clock).await
            }
            HwStore::Python => {
                let with = |config| Python::with(config, interpreter);
                let stores = Stores { tcp: tcp.map(with), rdma: rdma.map(with) };
                hw::climb(arguments, &machine, &stores, handle, clock).await
            }
        }
    });
    // What a store has started may never end.
    runtime.shutdown_background();
    let json = || serde_json::to_string_pretty(&report).map_err(Failure::failed);
    print(&if arguments.json { json()? } else { report.lines() })?;
    hw::verdict(&report, &arguments.require)
}

async fn measured<T: Target>(target: &T, plan: &Plan, handle: &Handle) -> Result<Report, Failure> {
    let progress = progress(plan.rounds());
    let step = |what: &str| {
        progress.set_message(what.to_owned());
        progress.inc(1);
    };
    let report = bench::measure(target, plan, handle, TokioClock::new(), &step).await;
    progress.finish_and_clear();
    report
}

/// Waits for a signal that asks the program to end.
async fn ended() -> Failure {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals: {error}")));
    let all = || {
        let (interrupt, hangup) = (SignalKind::interrupt(), SignalKind::hangup());
        Ok((listen(interrupt)?, listen(SignalKind::terminate())?, listen(hangup)?))
    };
    let (mut interrupt, mut terminate, mut hangup) = match all() {
        Ok(signals) => signals,
        Err(failure) => return failure,
    };
    let kind = tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
        _ = hangup.recv() => SignalKind::hangup(),
    };
    Failure::Ended(u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX - 128))
}

/// Shown on a terminal only.
fn progress(rounds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(rounds), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} rounds, {elapsed}, {wide_msg}");
    ProgressBar::new(rounds).with_style(style.expect("the template is constant"))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // A reader that has seen enough is no mistake.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}
