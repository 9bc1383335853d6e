//! The client: proxy and load generator in one.
//!
//! Each request goes to its encoder first and to its prefill instance as soon as the encoder has answered or
//! its time is up, as a proxy in front of disaggregated instances does. Attempts are bounded. What the client
//! sees is what a user would: an answer, or none.

use std::{future::Future, time::Duration};

use springtide::env::{Clock, Network, Time};

use super::{
    stranger,
    wire::{self, Answer, ENGINE_PORT, Job},
};
use crate::{
    event::{Event, RequestEnd},
    plan::{Item, Request},
    world::host::Host,
};

/// Pause before an attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Numbers of the requests that verify, above all numbers of the plan.
pub const VERIFY_FROM: u32 = 1_000_000;

/// Runs the client until the end of the world.
pub async fn run(host: Host) {
    host.process.spawn(Box::pin(stranger::run(host.clone())));
    let requests = host.world.plan.requests.iter().enumerate();
    for (number, request) in requests {
        host.clock.sleep_until(millis(request.at_ms)).await;
        start(&host, number as u32, request.clone());
    }
    host.clock.sleep_until(millis(host.world.plan.phases.verify_at())).await;
    // One after the other: what is verified is what is stored, not how much fits into one step. The last one
    // must have its answer before the connectors close.
    let phases = &host.world.plan.phases;
    let enough = millis(phases.verify_at() + phases.verify_ms / 2);
    for (number, request) in (VERIFY_FROM..).zip(verification(&host)) {
        if host.clock.now() < enough {
            serve(host.clone(), number, request).await;
        }
    }
}

fn millis(ms: u64) -> Time {
    Time::from_origin(Duration::from_millis(ms))
}

/// Requests for all items of the plan, each at an instance of every model that had it.
fn verification(host: &Host) -> Vec<Request> {
    let plan = &host.world.plan;
    let mut wanted: Vec<(u32, &Item)> = plan
        .requests
        .iter()
        .flat_map(|request| {
            let model = request.prefill % plan.topology.namespaces;
            request.items.iter().map(move |item| (model, item))
        })
        .collect();
    wanted.sort();
    wanted.dedup();
    // The latest items are the likeliest to be there still.
    wanted
        .into_iter()
        .rev()
        .map(|(model, item)| Request {
            at_ms: plan.phases.verify_at(),
            encoder: model,
            prefill: model,
            items: vec![item.clone()],
            decode_steps: 0,
            abort_after_ms: None,
            preempt: false,
            early: true,
        })
        .collect()
}

fn start(host: &Host, number: u32, request: Request) {
    let task = serve(host.clone(), number, request);
    host.process.spawn(Box::pin(task));
}

async fn serve(host: Host, number: u32, request: Request) {
    let visits = [format!("encoder{}", request.encoder), format!("prefill{}", request.prefill)];
    host.record(Event::RequestSent { request: number, visits: visits.clone() });
    let patience = request
        .abort_after_ms
        .map_or(Time::NEVER, |ms| host.clock.now() + Duration::from_millis(ms));
    let served = host.clock.timeout_at(patience, visit(&host, number, &request, &visits)).await;
    let end = served.unwrap_or(RequestEnd::Aborted);
    host.record(Event::RequestEnded { request: number, end });
}

async fn visit(
    host: &Host,
    number: u32,
    request: &Request,
    [encoder, prefill]: &[String; 2],
) -> RequestEnd {
    let engine = &host.world.plan.engine;
    let job = |attempt| Job {
        request: number,
        attempt,
        items: request.items.clone(),
        decode_steps: request.decode_steps,
        preempt: request.preempt,
        // Verification is about the connector, not about what the engine has kept.
        fresh: number >= VERIFY_FROM,
    };
    let ms = Duration::from_millis;
    if number < VERIFY_FROM {
        let process = host.process.clone();
        let (host, encoder, job) = (host.clone(), encoder.clone(), job(0));
        let limit = ms(engine.encoder_timeout_ms);
        let encoded = async move { encode(&host, &encoder, &job, limit).await };
        if request.early {
            process.spawn(Box::pin(encoded));
        } else {
            encoded.await;
        }
    }
    attempts(host, engine.attempts_max, |n| {
        ask(host, prefill, &job(n), ms(engine.prefill_timeout_ms))
    })
    .await
    .map_or_else(RequestEnd::Failed, |()| RequestEnd::Done)
}

/// Has an encoder encode, for at most `limit` in all: without its answer prefill encodes for itself, so the
/// next attempt is prefill's.
async fn encode(host: &Host, encoder: &str, job: &Job, limit: Duration) {
    let attempts_max = host.world.plan.engine.attempts_max;
    let job = |attempt| Job { attempt, ..job.clone() };
    let asked = attempts(host, attempts_max, |n| ask(host, encoder, &job(n), limit));
    // Whatever it was, the way to prefill is open.
    let _ = host.clock.timeout_at(host.clock.now() + limit, asked).await;
}

/// Makes up to `max` attempts, with pauses; the last one's error.
async fn attempts<F>(host: &Host, max: u32, attempt: impl Fn(u32) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    let mut last = Err("no attempt".to_owned());
    for number in 0..max {
        last = attempt(number).await;
        if last.is_ok() {
            break;
        }
        host.clock.sleep(RETRY_PAUSE).await;
    }
    last
}

/// Sends a job to an engine and waits for its answer.
fn ask<'a>(
    host: &'a Host,
    engine: &'a str,
    job: &Job,
    limit: Duration,
) -> impl Future<Output = Result<(), String>> + Send + use<'a> {
    let job = job.clone();
    async move {
        let exchange = async {
            let mut stream = host.network.connect(&format!("{engine}:{ENGINE_PORT}")).await?;
            wire::send(&mut stream, &job).await?;
            wire::receive::<Answer>(&mut stream).await
        };
        match host.clock.timeout_at(host.clock.now() + limit, exchange).await {
            Ok(Ok(answer)) if answer.request == job.request => Ok(()),
            Ok(Ok(answer)) => Err(format!("{engine} answered request {}", answer.request)),
            Ok(Err(error)) => Err(format!("{engine}: {}", error.kind())),
            Err(_) => Err(format!("{engine}: no answer within {limit:?}")),
        }
    }
}
