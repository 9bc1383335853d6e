//! The connector's part of a round: a step saves all items and waits, or asks for all in one request, in the
//! order of calls in which an engine makes them.

use std::{thread, time::Duration};

use springtide::{
    connector::{Availability, ItemRequest, LoadTarget, SaveOutcome},
    env::{Clock, ErrorCode},
    runtime::HostEvent,
};

use super::{
    Taken,
    bed::{Bed, LIMIT},
    cpu_time,
    plan::ROW_BYTES,
};
use crate::{failure::Failure, stores::Target};

/// Between two scheduling passes of an engine that has nothing else to do.
const PASS: Duration = Duration::from_micros(50);

const SAVED: &str = "saved";

impl<T: Target> Bed<'_, T> {
    /// Saves the items of each step and waits for them.
    pub(super) async fn save(&mut self) -> Result<Taken, Failure> {
        let mut taken = Taken::default();
        for step in 0..self.cell.steps {
            let identifiers = self.identifiers(step);
            let (started, cpu) = (self.clock.now(), cpu_time());
            for (identifier, tensor) in identifiers.iter().zip(&self.sources) {
                self.worker.save(identifier, tensor.clone(), HostEvent::ready());
            }
            let report = self.worker.wait_for_save(started + LIMIT).await;
            taken.add(self.clock.now() - started, cpu_time() - cpu);
            let stored = |outcome: SaveOutcome| outcome == SaveOutcome::Stored;
            if let Some(entry) = report.entries.iter().find(|entry| !stored(entry.outcome)) {
                let no_room = SaveOutcome::Failed(springtide::connector::SaveFailure::Store(
                    ErrorCode::NoAvailableHandle,
                ));
                return Err(match entry.outcome == no_room {
                    true => Failure::failed(self.target.no_room()),
                    false => Failure::failed(format!("save: {report}, expected all stored")),
                });
            }
            for item in 0..identifiers.len() {
                let key = self.key(SAVED, step, item);
                self.has_stored(key);
            }
        }
        Ok(taken)
    }

    /// Loads the items of each step as one request.
    pub(super) async fn load(&mut self) -> Result<Taken, Failure> {
        let mut taken = Taken::default();
        for step in 0..self.cell.steps {
            let identifiers = self.identifiers(step);
            let (request, rows) =
                (format!("{}-{step}", self.round), self.cell.item_bytes / ROW_BYTES);
            let item = |identifier: &String| ItemRequest { identifier: identifier.clone(), rows };
            let items: Vec<ItemRequest> = identifiers.iter().map(item).collect();
            let (started, cpu) = (self.clock.now(), cpu_time());
            while self.scheduler.ensure_available(&request, &items) == Availability::Wait {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "this thread is the engine, in real time"
                )]
                thread::sleep(PASS);
            }
            self.deliver(&request, &identifiers).await?;
            taken.add(self.clock.now() - started, cpu_time() - cpu);
            // They leave the engine's own cache.
            self.scheduler.build_step(&identifiers);
        }
        Ok(taken)
    }

    /// Hands the items of a request that is ready to the worker.
    async fn deliver(&self, request: &str, identifiers: &[String]) -> Result<(), Failure> {
        for identifier in identifiers {
            if !self.scheduler.has_item(identifier) {
                let why = self.scheduler.decision(request, identifier);
                let text = format!("load of {identifier}: {why:?}, expected the item");
                return Err(Failure::failed(text));
            }
            self.scheduler.allocated(request, identifier);
        }
        let orders = self.scheduler.build_step(&[]).orders;
        let targets = orders.into_iter().zip(&self.targets).map(|(order, tensor)| LoadTarget {
            order,
            tensor: tensor.clone(),
            free: HostEvent::ready(),
        });
        let deliveries = self.loader.load(targets.collect()).await;
        let mut delivered = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            delivery.result.map_err(|error| Failure::failed(format!("copy: {error}")))?;
            delivered.push(delivery.order);
        }
        if delivered.len() != identifiers.len() {
            let (got, expected) = (delivered.len(), identifiers.len());
            return Err(Failure::failed(format!("load: {got} orders, expected {expected}")));
        }
        self.scheduler.acknowledge(0, &delivered);
        self.scheduler.request_finished(request);
        Ok(())
    }

    fn identifiers(&self, step: usize) -> Vec<String> {
        (0..self.cell.items()).map(|item| self.identifier(SAVED, step, item)).collect()
    }
}

impl Taken {
    fn add(&mut self, one: Duration, cpu: Duration) {
        self.total += one;
        self.cpu += cpu;
        self.each.push(one);
    }
}
