//! Arguments → configuration → logging → serve → exit code.

mod cli;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use milepost_clickhouse::Reader;
use milepost_map::answer_cache::AnswerCache;
use milepost_map::config::Config;
use milepost_map::driver::Columns;
use milepost_map::fences::Unreadable;
use milepost_map::http::{self, Gates, State};
use milepost_map::live::Live;
use milepost_map::store::Store;
use milepost_map::tls;
use milepost_observe::http::ask_ready;
use milepost_observe::logging;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Semaphore, watch};
use tracing::{error, info};

use self::cli::{Arguments, Command};

/// Any failure but bad usage or an invalid configuration.
const FAILED: u8 = 1;
/// Bad usage or configuration (sysexits' EX_USAGE).
const BAD_USAGE: u8 = 64;
/// Maximum length of a ClickHouse response, in bytes. The last positions take about a hundred bytes
/// per driver.
const ANSWER_BYTES_MAX: u64 = 4 << 30;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { BAD_USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let variable = std::env::var_os("MILEPOST_MAP_CONFIG").filter(|path| !path.is_empty());
    let path = arguments.config.or_else(|| variable.map(PathBuf::from));
    let config = match Config::load(path.as_deref(), arguments.behind_proxy) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("milepost-map: {error}");
            return BAD_USAGE.into();
        }
    };
    let outcome = match arguments.command {
        Command::Config => {
            print_result(&config);
            return ExitCode::SUCCESS;
        }
        Command::Health => {
            let ask = if config.http.tls.is_some() { tls::ask_ready } else { ask_ready };
            ask(config.http.listen).map_err(anyhow::Error::msg)
        }
        Command::Run => {
            logging::start(&config.log);
            let (configuration, version) =
                (config.to_string().replace('\n', " "), milepost_observe::build::LONG);
            info!(%configuration, version, "milepost-map");
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime
                .map_err(anyhow::Error::from)
                .and_then(|runtime| {
                    let outcome = runtime.block_on(run(config));
                    runtime.shutdown_background(); // a hung disk must not delay the exit
                    outcome.inspect_err(|failure| error!("{failure:#}"))
                })
                .inspect(|()| logging::flush())
                .inspect_err(|_| logging::flush())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("milepost-map: {failure:#}");
            FAILED.into()
        }
    }
}

#[expect(clippy::print_stdout, reason = "the command's result")]
fn print_result(config: &Config) {
    print!("{config}");
}

/// Serves until SIGTERM or SIGINT. If a task ends earlier, the process ends with an error.
async fn run(config: Config) -> Result<()> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listen = config.http.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("http.listen: cannot listen on {listen}"))?;
    if let Some(path) = &config.map.basemap {
        milepost_map::basemap::check(path).map_err(|why| anyhow::anyhow!("map.basemap: {why}"))?;
    }
    let (shutdown_sender, shutdown) = watch::channel(false);
    let state = Arc::new(State {
        live: Live::new(&config.map, Arc::default()),
        writer: config
            .fences
            .writer
            .as_ref()
            .map(|server| Reader::new(server, ANSWER_BYTES_MAX))
            .transpose()
            .context("fences.password_file cannot be read")?,
        store: Store::new(&config.clickhouse, &config.map.names, ANSWER_BYTES_MAX)
            .context("clickhouse.password_file cannot be read")?,
        columns: Columns::default(),
        unreadable_fences: Unreadable::default(),
        fence_changes: Mutex::default(),
        card_changes: Mutex::default(),
        acknowledged: AtomicU64::default(),
        answers: AnswerCache::default(),
        query_permits: Semaphore::new(config.clickhouse.queries_max),
        viewers: Arc::new(Semaphore::new(config.http.viewers_max)),
        shutdown: shutdown.clone(),
        gates: Gates::default(),
        config,
    });
    let live_state = Arc::clone(&state);
    let mut live = tokio::spawn(async move { live_state.live.run(&live_state.store).await });
    let names_state = Arc::clone(&state);
    let mut names = tokio::spawn(async move {
        let has_scopes = names_state.config.access.limits_viewers();
        names_state.live.poll_names(&names_state.store, has_scopes).await;
    });
    let router = http::router(Arc::clone(&state));
    let server_state = Arc::clone(&state);
    let mut server = tokio::spawn(async move {
        http::serve(listener, router, &server_state.config.http, shutdown).await
    });
    let scheme = if state.config.http.tls.is_some() { "https" } else { "http" };
    info!("{scheme}://{listen}");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = &mut live => anyhow::bail!("the query loop ended: {ended:?}"),
        ended = &mut names => anyhow::bail!("the loop that reads names ended: {ended:?}"),
        ended = &mut server => {
            ended.context("the HTTP server panicked")?.map_err(anyhow::Error::msg)?;
            anyhow::bail!("the HTTP server ended");
        }
    }
    info!("shutting down: finishing the requests in flight");
    let _ = shutdown_sender.send(true);
    server.await.context("the HTTP server panicked")?.map_err(anyhow::Error::msg)?;
    live.abort();
    names.abort();
    Ok(())
}
